"""The table of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from headway.contract.views import JobsQuery
from headway.core.flow import Head, Order
from headway.core.job import JobPolicy
from headway.stores.ledger.rows import (
    DueRow,
    Finished,
    FlowKey,
    GatedStart,
    HeldRow,
    JobRow,
    RunRow,
)


class JobTable(Protocol):
    """Jobs, their flows and policies, and the runs that ended.

    No operation's cost grows with the number of jobs; each is a scan of one index.
    """

    def flow_number(self, key: FlowKey) -> int:
        """Return the flow's number; a new flow gets one."""
        ...

    def flow(self, number: int) -> FlowKey:
        """Return the flow of a number."""
        ...

    def policy_number(self, policy: JobPolicy) -> int:
        """Return the policy's number; a new policy gets one."""
        ...

    def policy(self, number: int) -> JobPolicy:
        """Return the policy of a number."""
        ...

    def insert(self, rows: Sequence[JobRow]) -> None:
        """Add jobs with new ids, and assign each its `seq`, growing in this order."""
        ...

    def known(self, ids: Sequence[str]) -> set[str]:
        """Return those of the ids that exist."""
        ...

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        """Return copies of the jobs that exist, by id."""
        ...

    def save(self, rows: Iterable[JobRow]) -> None:
        """Write changed jobs.

        `seq`, `id`, `lane`, `tenant`, `kind` and `created_at` never change.
        """
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Remove jobs with their runs, signal keys, events and dedupe keys."""
        ...

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        """Return flows of a lane with waiting jobs, by number, those above `after`."""
        ...

    def heads(self, flow: int, limit: int) -> list[Head]:
        """Return the first waiting jobs of a flow, in order."""
        ...

    def start_plain(self, seqs: Sequence[int], worker: str, request: int) -> None:
        """Make waiting jobs that take no permits running; adds 1 to `run` and `attempt`.

        Args:
            seqs: of the jobs.
            worker: its id.
            request: the number of its claim.
        """
        ...

    def start_gated(self, starts: Sequence[GatedStart], worker: str, request: int) -> None:
        """Start jobs as `start_plain`, with what each holds; its ticket is removed."""
        ...

    def finish_plain(self, worker: str, runs: Sequence[tuple[str, int]], purge_at: int) -> Finished:
        """Make running jobs of this worker and run that need no care succeeded.

        The caller returns their permits.
        """
        ...

    def due(self, lane: str, limit: int) -> list[DueRow]:
        """Return due scheduled jobs of a lane, by due time and arrival."""
        ...

    def promote(self, seqs: Sequence[int]) -> set[int]:
        """Make scheduled jobs waiting.

        Returns:
            Their flows.
        """
        ...

    def next_due(self, lane: str) -> int | None:
        """Return when the next scheduled job of a lane is due."""
        ...

    def lanes_due(self, limit: int) -> list[str]:
        """Return lanes that have a due scheduled job."""
        ...

    def expired(self, limit: int) -> list[str]:
        """Return queued jobs with `run` 0 that are past their `expires_at`, earliest first."""
        ...

    def next_expiry(self) -> int | None:
        """Return when the next queued job that never ran expires."""
        ...

    def parked_flows(self, gate: str, after: int, limit: int) -> list[int]:
        """Return flows with jobs parked at a gate, without unfit ones, those above `after`."""
        ...

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        """Return the first jobs of a flow parked at a gate, without unfit ones, in order."""
        ...

    def parked_ids(self, gate: str, flows: Sequence[int], limit: int) -> dict[int, list[str]]:
        """Return the ids of the first parked jobs of each flow that has any; see `parked_heads`."""
        ...

    def parked_order(self, gate: str, flow: int) -> Order | None:
        """Return the order of the first of them."""
        ...

    def parked_counts(self, gates: Sequence[str], limit: int) -> Mapping[str, int]:
        """Return how many jobs are parked at each gate, including unfit ones, up to `limit`."""
        ...

    def unfit_at(self, gate: str, limit: int) -> list[str]:
        """Return unfit jobs parked at a gate, in order of arrival."""
        ...

    def parked_gates(self, after: str, limit: int) -> list[str]:
        """Return gates with parked jobs, including unfit ones, by name, those above `after`."""
        ...

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        """Return waiting jobs of a flow with the gate's ticket and their amounts, in order."""
        ...

    def feed(self, seqs: Sequence[int], gate: str, amounts: Sequence[int]) -> None:
        """Make parked jobs waiting with the gate's ticket, and add up the time parked."""
        ...

    def park(self, seqs: Sequence[int], gate: str, *, unfit: bool) -> None:
        """Park waiting jobs at a gate now; their tickets are removed."""
        ...

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        """Return running and awaiting jobs whose run this worker holds, in order of start."""
        ...

    def held_counts(self, workers: Sequence[str]) -> Mapping[str, int]:
        """Return how many jobs each of these workers holds; 0 may be left out."""
        ...

    def taken_by(self, worker: str, request: int) -> list[JobRow]:
        """Return running jobs that this claim of the worker took, in order of start."""
        ...

    def deadlines(self, limit: int) -> list[str]:
        """Return awaiting jobs past their deadline, earliest first."""
        ...

    def next_deadline(self) -> int | None:
        """Return when the next deadline is."""
        ...

    def purgeable(self, limit: int) -> list[str]:
        """Return final jobs past their retention, oldest first."""
        ...

    def of_entry(self, entry: str) -> list[JobRow]:
        """Return jobs of a timetable entry that are not final, by the moment fired."""
        ...

    def place(self, flow: int, order: Order, limit: int) -> int:
        """Return how many waiting jobs of the flow come before this order, up to `limit`."""
        ...

    def waiting_counts(self, lane: str, flows: Sequence[int], limit: int) -> dict[int, int]:
        """Return how many jobs of each of these flows of a lane wait, each up to `limit`."""
        ...

    def page(self, query: JobsQuery) -> tuple[list[JobRow], str | None]:
        """Return a bounded page of a listing and its cursor; `ids` and `key` are ignored."""
        ...

    def held(self, after: str, limit: int) -> list[JobRow]:
        """Return running and awaiting jobs by id, those above `after`."""
        ...

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        """Return copies of jobs in any state by `seq`, those above `after`."""
        ...

    def oldest_due(self, lanes: Sequence[str]) -> Mapping[str, int]:
        """Return the due time of a waiting job among the oldest of each lane that has any."""
        ...

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        """Keep runs that ended."""
        ...

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        """Return the ended runs of each job, oldest first."""
        ...
