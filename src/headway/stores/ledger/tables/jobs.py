"""The table of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    No operation's cost grows with the number of jobs; each is a walk along one index.
    """

    def flow_number(self, key: FlowKey) -> int:
        """The flow's number; a new flow is given one."""
        ...

    def flow(self, number: int) -> FlowKey:
        """The flow of a number."""
        ...

    def policy_number(self, policy: JobPolicy) -> int:
        """The policy's number; a new policy is given one."""
        ...

    def policy(self, number: int) -> JobPolicy:
        """The policy of a number."""
        ...

    def insert(self, rows: Sequence[JobRow]) -> None:
        """Adds jobs whose ids are new, and gives each its `seq`, growing in this order."""
        ...

    def known(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that exist."""
        ...

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        """The jobs that exist, by id; a copy each."""
        ...

    def save(self, rows: Iterable[JobRow]) -> None:
        """Writes changed jobs back whole.

        What never changes: `seq`, `id`, `lane`, `tenant`, `kind`, `created_at`.
        """
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Forgets jobs with their runs, known keys, events and dedupe keys."""
        ...

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        """Flows of a lane with waiting jobs, by number, those above `after`."""
        ...

    def heads(self, flow: int, limit: int) -> list[Head]:
        """The first waiting jobs of a flow, in order."""
        ...

    def start_plain(self, seqs: Sequence[int], worker: str, request: int) -> None:
        """Waiting jobs that hold nothing become running, claimed now, `run` and `attempt` one up.

        Args:
            seqs: the jobs.
            worker: who.
            request: its claim.
        """
        ...

    def start_gated(self, starts: Sequence[GatedStart], worker: str, request: int) -> None:
        """As `start_plain`, with what each holds; the ticket is gone."""
        ...

    def finish_plain(self, worker: str, runs: Sequence[tuple[str, int]], purge_at: int) -> Finished:
        """Running jobs of this worker and run, with no need of care, become succeeded now.

        Their permits are still out; the caller gives them back.
        """
        ...

    def due(self, lane: str, limit: int) -> list[DueRow]:
        """Scheduled jobs of a lane whose time has come, by due time and arrival."""
        ...

    def promote(self, seqs: Sequence[int]) -> set[int]:
        """Scheduled jobs become waiting.

        Returns:
            Their flows.
        """
        ...

    def next_due(self, lane: str) -> int | None:
        """When the next scheduled job of a lane is due."""
        ...

    def lanes_due(self, limit: int) -> list[str]:
        """Lanes that have a scheduled job whose time has come."""
        ...

    def expired(self, limit: int) -> list[str]:
        """Queued jobs that never ran (`run` is 0) past their `expires_at`, earliest first."""
        ...

    def next_expiry(self) -> int | None:
        """When the next queued job that never ran expires."""
        ...

    def parked_flows(self, gate: str, after: int, limit: int) -> list[int]:
        """Flows with jobs parked at a gate (unfit ones left out), those above `after`."""
        ...

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        """The first jobs of a flow parked at a gate (unfit ones left out), in order."""
        ...

    def parked_order(self, gate: str, flow: int) -> Order | None:
        """The order of the first of them."""
        ...

    def parked_count(self, gate: str, limit: int) -> int:
        """How many jobs are parked at a gate, unfit ones among them; counted up to `limit`."""
        ...

    def unfit_at(self, gate: str, limit: int) -> list[str]:
        """Unfit jobs parked at a gate, in order of arrival."""
        ...

    def parked_gates(self, after: str, limit: int) -> list[str]:
        """Gates with parked jobs, unfit ones among them, by name, those above `after`."""
        ...

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        """Waiting jobs of a flow that carry the gate's ticket, and what each asks for, in order."""
        ...

    def feed(self, seqs: Sequence[int], gate: str, amounts: Sequence[int]) -> None:
        """Parked jobs become waiting with the gate's ticket; the time parked is added up."""
        ...

    def park(self, seqs: Sequence[int], gate: str, *, unfit: bool) -> None:
        """Waiting jobs become parked at a gate now; a ticket is gone."""
        ...

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        """Running and awaiting jobs whose run this worker holds, in order of start."""
        ...

    def taken_by(self, worker: str, request: int) -> list[JobRow]:
        """Running jobs that this claim of the worker took, in order of start (their order)."""
        ...

    def deadlines(self, limit: int) -> list[str]:
        """Awaiting jobs whose deadline has come, earliest first."""
        ...

    def next_deadline(self) -> int | None:
        """When the next deadline comes."""
        ...

    def purgeable(self, limit: int) -> list[str]:
        """Final jobs past their retention, oldest first."""
        ...

    def of_entry(self, entry: str) -> list[JobRow]:
        """Jobs of a timetable entry that are not final, by the moment fired."""
        ...

    def place(self, flow: int, order: Order, limit: int) -> int:
        """How many waiting jobs of the flow stand before this order; counted up to `limit`."""
        ...

    def page(self, query: JobsQuery) -> tuple[list[JobRow], str | None]:
        """A bounded page of a listing, and its cursor; `ids` and `key` are not its business."""
        ...

    def held(self, after: str, limit: int) -> list[JobRow]:
        """Running and awaiting jobs by id, those above `after`."""
        ...

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        """Jobs in any state by `seq`, those above `after`; a copy each."""
        ...

    def oldest_due(self, lane: str) -> int | None:
        """The due time of a waiting job that is among the oldest of its lane; a hint for people."""
        ...

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        """Keeps runs that ended."""
        ...

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        """The runs kept of each job, oldest first."""
        ...
