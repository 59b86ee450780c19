"""What is known within a step, and lost with it."""

from __future__ import annotations

from headway.stores.ledger.gaterows import GateRow
from headway.stores.postgres.parkedahead import ParkedAhead
from headway.stores.postgres.statement import Row, Rows


class Known:
    """What the tables of a step know of the store, so that nothing is asked twice.

    Attributes:
        wakes: lanes to be woken after the step (None: any), with from when (None: now).
        gates: rows of gates as far as they are known in this step; None for one without a row.
        quiet: names at which nothing is parked.
        looked_at: names of gates that were asked for.
        heads: rows of the first waiting jobs of flows, with how many were asked for.
        wanted: how many heads were asked for, by flow.
        lanes_asked: flows with waiting jobs, by lane, after which flow, and how many; None as
            long as it was not answered.
        bounding: flows of which that is asked.
        bounded: flows that were looked at from their marks on.
        gone: seqs that wait no more.
        risen: what nothing waits before any more, and how many started, by flow.
        behind: this step lets jobs wait that may stand before others.
        found: the flows of a lane with waiting jobs, as they were found last.
        defined: this step has written definitions, so that nothing of them may be kept.
        alone: this step has written what only one with the turn may.
        finished: of settlements that were sent ahead, what each has ended, by worker, run and job.
        hasty: waits only briefly for a transaction that has sent the same key.
        kept_events: how many events are kept; None until it is read.
        parked: what was read ahead of jobs that wait at gates.
        workers: the numbers of workers' rows as they were read or written last; 0 for no row.
        totals: of rates, by gate and after when: what is forgotten by then, and what counts still.
    """

    def __init__(self) -> None:
        self.forget_step()

    def forget_step(self) -> None:
        """Another step begins, of which nothing is known."""
        self.gates: dict[str, GateRow | None] = {}
        self.quiet: set[str] = set()
        self.looked_at: dict[str, None] = {}
        self.heads: dict[int, tuple[int, Rows]] = {}
        self.wanted: dict[int, int] = {}
        self.found: list[int] = []
        self.lanes_asked: dict[tuple[str, int, int], Rows | None] = {}
        self.bounded: set[int] = set()
        self.bounding: set[int] = set()
        self.gone: set[int] = set()
        self.risen: dict[int, tuple[dict[int, tuple[int, int]], int]] = {}
        self.behind = False
        self.workers: dict[str, int] = {}
        self.totals: dict[str, dict[int, tuple[int, int]]] = {}
        self.wakes: list[tuple[str | None, int | None]] = []
        self.defined = False
        self.finished: dict[tuple[str, int, str], Row | None] = {}
        self.alone = False
        self.hasty = False
        self.kept_events: int | None = None
        self.parked = ParkedAhead()
