"""Signals: those that wait are applied in one step with the turn."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.signals import Signal, SignalReply
from headway.stores.ledger.verbs.signal import look_of, signals
from headway.stores.postgres.done import Done
from headway.stores.postgres.mode import Mode
from headway.stores.postgres.steps import Steps


class Signals:
    """The signals of one process.

    Args:
        steps: on the connection that takes the turn.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def apply(self, events: Sequence[Signal]) -> tuple[list[SignalReply], Done]:
        """Apply signals in their order, all of them or none; see `Store.signal`."""
        return self._steps.run(
            Mode.TURN, lambda ledger: signals(ledger, events), ahead=look_of(events)
        )

    def apply_one(self, event: Signal) -> tuple[SignalReply, Done]:
        """Apply one signal."""
        (reply,), done = self.apply((event,))
        return reply, done
