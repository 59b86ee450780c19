"""Asking a provider how a call goes of which it has said nothing for a while."""

from __future__ import annotations

from datetime import timedelta

from headway.contract.views import JobQuery, StatsQuery
from headway.core.errors import ProviderUnsure
from headway.runtime.answers import Ended, Running, Unknown
from headway.runtime.awaited import Awaited
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.names import LINES
from headway.systems.field_service.ring_args import call_of
from headway.systems.field_service.settings import FieldSettings
from headway.systems.telephony.voice import CallEvent, NotFound, Sought, Voice

ASK_EACH_S = 10
"""After so long without a word of the provider it is asked."""
ASK_WITHIN = "1m"
"""If nobody can ask it, the call's job ends so long after that."""
BEGINS_S = 10
"""Longer after the hand-over no call is placed, however long the worker stood still."""
LISTED_S = 15
"""Until a provider lists the call that it was asked for."""
SPARE_S = 60
"""Beyond ringing and talking, until a call must be over."""
UNSURE = "deadline"
"""The reason of a call of which nobody knows what became of it: the offer's own time decides."""


async def ask(desk: Desk, awaited: Awaited) -> Running | Ended | Unknown:
    """Asks the provider how a call to a technician goes.

    The line and whoever is called are kept until it has ended, though nobody can say now whether it
    has; but not for a call that was certainly never placed, and never for longer than
    `given_up_ms`.

    Args:
        desk: of the system.
        awaited: the call's job, in doubt or at its deadline.

    Raises:
        StoreError: the store cannot tell now; it is asked again.
    """
    if awaited.handed_at is None:
        return Unknown()
    handed_at = int(awaited.handed_at.timestamp() * 1000)
    # What counts is when it is asked: a call can begin while the provider looks.
    past_ms = (await desk.app.store.read(StatsQuery())).now - handed_at
    if past_ms >= given_up_ms(desk.settings):
        return Ended("dead", reason=UNSURE)
    line = desk.settings.lines.get(awaited.permits.get(LINES, ""))
    if line is None:
        return Running(extend=timedelta(seconds=ASK_EACH_S))
    voice = desk.exchange.voice(line.provider)
    try:
        event = await voice.look_up(await _sought(desk, awaited, line.number, handed_at))
    except ProviderUnsure:
        return Running(extend=timedelta(seconds=ASK_EACH_S))
    return _answer(voice, event, past_ms)


def longest_ms(settings: FieldSettings) -> int:
    """How long a call can take, and a little more."""
    return (settings.ring_s + settings.call_limit_s + SPARE_S) * 1000


def given_up_ms(settings: FieldSettings) -> int:
    """So long after the hand-over a line and whoever is called are free in any case."""
    return 2 * longest_ms(settings)


def certain_ms(voice: Voice) -> int:
    """So long after the hand-over a call that its provider does not list was never placed."""
    return (BEGINS_S + LISTED_S) * 1000 + voice.answers_ms


def _answer(voice: Voice, event: CallEvent | NotFound, past_ms: int) -> Running | Ended:
    if isinstance(event, NotFound):
        unlisted_ms = certain_ms(voice) - past_ms
        if unlisted_ms > 0:
            return Running(extend=timedelta(milliseconds=unlisted_ms))
        return Ended("dead", reason=UNSURE)
    if not event.status.ended:
        # Now it can be hung up as well.
        known_as = f"{voice.name}:{event.call_id}"
        return Running(extend=timedelta(seconds=ASK_EACH_S), known_as=known_as)
    body = {"status": str(event.status), "call_id": event.call_id, "asked": True}
    return Ended("succeeded", body=body, reason=str(event.status))


async def _sought(desk: Desk, awaited: Awaited, number: str, handed_at: int) -> Sought:
    view = await desk.app.store.read(JobQuery(id=awaited.id))
    runs = view.runs if view is not None else ()
    known = {one.run: call_of(one.keys) for one in runs}
    mine = known.pop(awaited.run, None)
    return Sought(
        ref=awaited.ref,
        to=str(awaited.args.get("to", "")),
        from_=number,
        since=handed_at,
        call_id=mine[1] if mine else None,
        others=[one[1] for one in known.values() if one],
    )
