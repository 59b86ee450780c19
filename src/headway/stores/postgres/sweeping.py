"""Sweeps: a look first where the last one found nothing, then a step with the turn."""

from __future__ import annotations

from headway.contract.sweeps import SweepReply
from headway.stores.ledger.verbs import sweep
from headway.stores.postgres.done import Done
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.mode import Mode, NeedsMore
from headway.stores.postgres.steps import Steps


class Sweeps:
    """The sweeps of one process.

    Args:
        steps: on the connection that takes the turn.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._idle = False

    def sweep(self, n: int, keep_trail_ms: int) -> tuple[SweepReply, Done]:
        """See `Store.sweep`."""

        def verb(ledger: PostgresLedger) -> SweepReply:
            return sweep(ledger, n, keep_trail_ms)

        kind = ("sweep", n)
        if self._idle:
            try:
                return self._steps.run(Mode.PEEK, verb, kind=kind)
            except NeedsMore:
                self._idle = False
        reply, done = self._steps.run(Mode.TURN, verb, kind=kind)
        self._idle = not done.wrote
        return reply, done
