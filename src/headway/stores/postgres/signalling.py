"""Signals: those that wait are applied in one step with the turn."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.signals import Signal, SignalReply
from headway.core.errors import OutcomeUnknown
from headway.stores.ledger.verbs import signal
from headway.stores.postgres.calls import AnyCall
from headway.stores.postgres.done import Done
from headway.stores.postgres.mode import Mode
from headway.stores.postgres.steps import Steps

TOGETHER = 32
"""Signals of one step: its turn stays short, so that claims and settlements do not wait long."""


def are_signals(first: AnyCall, other: AnyCall) -> bool:
    """Whether two calls may be served in one step."""
    return first.signal is not None and other.signal is not None


class Signals:
    """The signals of one process.

    Args:
        steps: on the connection that takes the turn.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def apply(self, event: Signal) -> tuple[SignalReply, Done]:
        """See `Store.signal`."""
        return self._steps.run(Mode.TURN, lambda ledger: signal(ledger, event))

    def serve(self, calls: Sequence[AnyCall]) -> Done | None:
        """Applies several signals in one step, in their order.

        Returns:
            What the step has done; None if it failed and each must be applied by itself, because
            one of them is refused.
        """
        events = [call.signal for call in calls if call.signal is not None]
        try:
            replies, done = self._steps.run(
                Mode.TURN, lambda ledger: [signal(ledger, event) for event in events]
            )
        except OutcomeUnknown as error:
            for call in calls:
                call.error = error
            return Done(wrote=False, woken={}, told=False)
        except Exception:  # noqa: BLE001  (one of them was refused: each gets a step of its own)
            return None
        for call, reply in zip(calls, replies, strict=True):
            call.answer = reply
        return done
