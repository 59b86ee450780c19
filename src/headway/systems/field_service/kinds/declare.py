"""All kinds of this system, declared to an app."""

from __future__ import annotations

from headway.core.gates.pool import Pool
from headway.core.gates.slots import Slots
from headway.core.retry import Backoff
from headway.runtime.app import App
from headway.systems.field_service.context import FieldContext
from headway.systems.field_service.kinds.after import Ended, LookOver, RingEnded, Taken
from headway.systems.field_service.kinds.alert import CALL, CHOOSE, Alert
from headway.systems.field_service.kinds.ring import ASK_WITHIN, Ring, Text
from headway.systems.field_service.kinds.turn import Turn
from headway.systems.field_service.names import (
    AFTER,
    ALERT,
    CALL_TO,
    LINES,
    LOOK_OVER,
    OFFER,
    OFFER_ENDED,
    OFFER_TAKEN,
    OFFERS,
    RING,
    RING_ENDED,
    RINGS,
    TECHNICIAN,
    TEXT,
)

# A worker that dies in a turn uses an attempt, and a request has many turns; what follows an end,
# such as an alert, must not be lost however many die over it.
_STEADY = Backoff(attempts=1_000, base="1s", cap="30s")
_FEW = Backoff(attempts=3, base="1s", cap="10s")
_OFTEN = Backoff(attempts=12, base="10s", cap="10m")

LEASE = "10s"
"""After which the turn of a worker that died is taken up by another."""


def declare(app: App, context: FieldContext) -> None:
    """Declare the kinds of this system.

    Args:
        context: what their handlers work with.
    """
    settings = context.settings
    lines = Pool(LINES, settings.lines)
    call_to = Slots(CALL_TO, 1)
    for lane in (OFFERS, AFTER, RINGS):
        app.lane(lane, lease=LEASE)
    ring, text, alert = Ring(context), Text(context), Alert(context)
    app.job(name=OFFER_ENDED, lane=AFTER, retry=_STEADY)(Ended(context).ended)
    app.job(name=OFFER_TAKEN, lane=AFTER, retry=_STEADY)(Taken(context).taken)
    app.job(name=RING_ENDED, lane=AFTER)(RingEnded(context).ended)
    app.job(name=LOOK_OVER, lane=AFTER, retry=_STEADY)(LookOver(context).look)
    app.job(
        name=OFFER,
        lane=OFFERS,
        # Its turn begins when no call to him goes on; from the hand-over on its own call has that.
        gates=[Slots(TECHNICIAN, 1), call_to.take(hold="run")],
        cascade=True,
        retry=_STEADY,
        keep=f"{settings.keep}ms",
        on_accepted=OFFER_TAKEN,
        on_final=OFFER_ENDED,
        on_final_states=("succeeded", "dead", "cancelled"),
    )(Turn(context).turn)
    app.job(
        name=RING,
        lane=RINGS,
        gates=[lines, call_to],
        retry=_FEW,
        expires=f"{settings.line_wait}ms",
        on_final=RING_ENDED,
        on_final_states=("succeeded", "dead", "cancelled"),
        reconcile=ring.ask,
        reconcile_within=ASK_WITHIN,
    )(ring.ring)
    app.job(
        name=TEXT,
        lane=RINGS,
        retry=_FEW,
        on_final=RING_ENDED,
        on_final_states=("dead",),
    )(text.text)
    alerting = app.job(
        name=ALERT,
        lane=AFTER,
        stages={CHOOSE: [], CALL: [lines]},
        retry=_OFTEN,
        on_deadline="retry",
    )(alert.choose)
    alerting.stage(CALL)(alert.call)
    context.declared = app
