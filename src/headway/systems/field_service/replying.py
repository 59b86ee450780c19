"""Replying: what a technician hears or reads when he has answered."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.store import Store
from headway.contract.views import JobQuery
from headway.core.errors import UnknownRecord
from headway.systems.field_service.answering import Answered, Verdict, answer
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.hanging_up import BY_CALL
from headway.systems.field_service.offers_of import request_held_by
from headway.systems.field_service.request import read_request
from headway.systems.field_service.standing import acceptor, asked_now, ref_of, run_of
from headway.systems.field_service.technicians.book import technician_of_phone
from headway.systems.field_service.words import (
    ASK_AGAIN,
    BYE,
    DECLINED,
    KEYS,
    KEYS_WRITTEN,
    NO_OFFER,
    OVER,
    TAKEN,
    WITHDRAWN,
    accepted_words,
)
from headway.systems.telephony.texts import Inbound
from headway.systems.telephony.voice import Ask, Pressed, Say

ACCEPT = frozenset({"1", "yes", "y", "accept", "ok"})
DECLINE = frozenset({"2", "no", "n", "decline"})
BY_TEXT = "by text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The reply to a message.

    Attributes:
        text: what it says.
        declined: the request whose offer was declined by it; None for none.
    """

    text: str
    declined: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """The reply to keys.

    Attributes:
        script: what is said.
        declined: the request whose offer was declined by them; None for none.
    """

    script: Say | Ask
    declined: str | None = None


async def reply_to_keys(
    store: Store, desk: Desk, ref: str, pressed: Pressed, again_url: str
) -> Said:
    """What is said to whoever pressed a key.

    Args:
        store: where the jobs are.
        desk: of the system.
        ref: of the offer.
        pressed: the keys.
        again_url: where the next key is told.

    Raises:
        UnknownRecord: there is no such offer.
        StoreError: the store cannot do it now.
    """
    request, run = run_of(ref)
    job = await store.read(JobQuery(id=request))
    said = next((one for one in job.runs if one.run == run), None) if job is not None else None
    if job is None or said is None or not said.candidate:
        message = "there is no such offer"
        raise UnknownRecord(message)
    if not pressed.digits:
        return Said(script=Say(text=BYE))
    if pressed.digits not in ACCEPT | DECLINE:
        return Said(script=Ask(text=f"{ASK_AGAIN} {KEYS}", answer_url=again_url))
    answered = await answer(
        store,
        desk.tally,
        ref=ref,
        technician=said.candidate,
        accepts=pressed.digits in ACCEPT,
        event=pressed.event,
        by=BY_CALL,
    )
    declined = job.id if answered.verdict is Verdict.DECLINED else None
    return Said(script=Say(text=_words(answered)), declined=declined)


async def reply_to_text(store: Store, desk: Desk, inbound: Inbound) -> Reply:
    """What is replied to whoever wrote.

    Raises:
        StoreError: the store or the directory cannot do it now.
    """
    async with desk.directory.read() as session:
        technician = await technician_of_phone(session, inbound.from_)
    if technician is None:
        return Reply(text="This number is not known here.")
    word = inbound.text.strip().strip(".!").casefold()
    if word not in ACCEPT | DECLINE:
        return Reply(text=KEYS_WRITTEN)
    job = await request_held_by(store, technician.id)
    if job is None or technician.id not in {asked_now(job), acceptor(job)}:
        return Reply(text=NO_OFFER)
    answered = await answer(
        store,
        desk.tally,
        ref=ref_of(job),
        technician=technician.id,
        accepts=word in ACCEPT,
        event=f"text:{inbound.event}",
        by=BY_TEXT,
    )
    declined = job.id if answered.verdict is Verdict.DECLINED else None
    return Reply(text=_words(answered), declined=declined)


def _words(answered: Answered) -> str:
    match answered.verdict:
        case Verdict.ACCEPTED:
            return accepted_words(read_request(answered.request.args))
        case Verdict.DECLINED:
            return DECLINED
        case Verdict.TAKEN:
            return TAKEN
        case Verdict.OVER:
            return OVER
        case Verdict.WITHDRAWN:
            return WITHDRAWN
