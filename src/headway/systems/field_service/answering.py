"""Answering: what a technician says about an offer, and the definite reply to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.contract.signals import Decided, Heard, Signal, SignalKind
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobView
from headway.core.errors import UnknownRecord
from headway.core.state import State
from headway.runtime.encoding import encode
from headway.systems.field_service.seen.tally import OfferEnd, Tally
from headway.systems.field_service.standing import acceptor, run_of


class Verdict(StrEnum):
    """The definite reply to an answer."""

    ACCEPTED = "accepted"
    """He has it."""
    DECLINED = "declined"
    """He was asked, and the next one is."""
    TAKEN = "taken"
    """Too late: another has it."""
    OVER = "over"
    """Too late: his offer is over, though nobody may have taken it yet."""
    WITHDRAWN = "withdrawn"
    """Too late: it is not wanted any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """What became of an answer.

    Attributes:
        verdict: definite.
        request: the request's job, as it is now.
    """

    verdict: Verdict
    request: JobView


async def answer(  # noqa: PLR0913  (what an answer is)
    store: Store, tally: Tally, *, ref: str, technician: str, accepts: bool, event: str, by: str
) -> Answered:
    """Tells the engine what a technician says, and reads what that came to.

    Args:
        store: where the jobs are.
        tally: counts how offers end.
        ref: of the offer's run.
        technician: who answers.
        accepts: whether he takes it.
        event: the same whenever the same answer is told again.
        by: "by call", "by text" or "by API"; stands on the record.

    Returns:
        The reply; the same for an answer that is told again.

    Raises:
        UnknownRecord: there is no such request.
        StoreError: the store cannot do it now; the answer is to be told again.
    """
    reply = await store.signal(
        Signal(
            key=ref,
            event=event,
            decided=Decided.ACCEPTED if accepts else Decided.DECLINED,
            candidate=technician,
            reason=by,
            body=encode("body", {"by": by}) if accepts else None,
        )
    )
    if reply.answer is Heard.APPLIED:
        tally.ended(OfferEnd.ACCEPTED if accepts else OfferEnd.DECLINED)
    id_, run = run_of(ref)
    request = await store.read(JobQuery(id=id_))
    if request is None:
        message = f"there is no request {id_[:64]!r}"
        raise UnknownRecord(message)
    verdict = _verdict(request, run, technician, accepts=accepts)
    if reply.answer is Heard.LATE:
        await _note_late(store, ref, event, technician, accepts=accepts)
    return Answered(verdict=verdict, request=request)


def _verdict(request: JobView, run: int, technician: str, *, accepts: bool) -> Verdict:
    """What holds now of the answer of one run, however often it was told."""
    winner = acceptor(request)
    said = next((one for one in request.runs if one.run == run), None)
    if request.state is State.CANCELLED:
        return Verdict.WITHDRAWN
    if winner == technician and request.run == run:
        return Verdict.ACCEPTED
    if said is not None and said.outcome == Decided.DECLINED and not accepts:
        return Verdict.DECLINED
    return Verdict.TAKEN if winner else Verdict.OVER


async def _note_late(store: Store, ref: str, event: str, technician: str, *, accepts: bool) -> None:
    """Puts an answer that came too late on the record."""
    word = "accepts" if accepts else "declines"
    await store.signal(
        Signal(
            key=ref,
            event=f"late:{event}"[:512],
            kind=SignalKind.NOTE,
            label=f"late: {technician} {word}"[:512],
        )
    )
