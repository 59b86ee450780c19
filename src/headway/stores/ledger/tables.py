"""The tables that a store provides, each a protocol; all rows are copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.contract.definitions import TokenSpec
from headway.contract.extensions import Suspicion
from headway.contract.views import JobsQuery
from headway.core.flow import Head, Order
from headway.core.job import JobPolicy
from headway.core.state import State
from headway.stores.ledger.gaterows import (
    GateRow,
    GateTemplates,
    Holders,
    PermitRow,
    ReturnedPermits,
    TemplateRow,
)
from headway.stores.ledger.rows import (
    DueFire,
    EntryRow,
    Finished,
    FlowKey,
    GatedStart,
    HeldRow,
    JobRow,
    KeyRow,
    LaneRow,
    RunRow,
    SignalRow,
    TrailRow,
    WorkerRow,
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
        """Return the ids that exist."""
        ...

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        """Return copies of the jobs that exist, by id."""
        ...

    def save(self, rows: Iterable[JobRow]) -> None:
        """Write changed jobs.

        `seq`, `id`, `lane`, `tenant`, `kind` and `created_at` never change.
        """
        ...

    def remove(self, ids: Sequence[str]) -> list[tuple[str, State]]:
        """Remove jobs with their runs, signal keys, events and dedupe keys.

        Returns:
            The lane and the state of each.
        """
        ...

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        """Return flows of a lane with waiting jobs, by number, starting after `after`."""
        ...

    def heads(self, flow: int, limit: int) -> list[Head]:
        """Return the first waiting jobs of a flow, in order."""
        ...

    def first_orders(self, flows: Sequence[int], limit: int) -> Mapping[int, Order]:
        """Return the order of the first waiting job of each flow that has any.

        Args:
            limit: how many heads of some of these flows will be read next.
        """
        ...

    def start_plain(self, seqs: Sequence[int], worker: str, request: int) -> None:
        """Start waiting jobs that take no permits; add 1 to their `run` and `attempt`."""
        ...

    def start_gated(self, starts: Sequence[GatedStart], worker: str, request: int) -> None:
        """Start jobs as `start_plain` does, with what each takes; remove their tickets."""
        ...

    def finish_plain(self, worker: str, runs: Sequence[tuple[str, int]], purge_at: int) -> Finished:
        """End jobs as succeeded if this worker has the given run and they need no care.

        The caller returns their permits.
        """
        ...

    def promote_due(self, lanes: Sequence[str], limit: int) -> tuple[dict[str, int], list[DueFire]]:
        """Make due scheduled jobs waiting, except fires that never ran.

        Args:
            limit: maximum number of due jobs of each lane.

        Returns:
            Their number by lane, and the due fires in the order of due time and arrival.
        """
        ...

    def promote(self, fires: Sequence[DueFire]) -> None:
        """Make scheduled fires waiting."""
        ...

    def next_due(self, lanes: Sequence[str]) -> int | None:
        """Return when the next scheduled job of these lanes is due."""
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
        """Return flows with fit jobs parked at a gate, by number, starting after `after`."""
        ...

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        """Return the first fit jobs of a flow parked at a gate, in order."""
        ...

    def parked_ids(self, gate: str, flows: Sequence[int], limit: int) -> dict[int, list[str]]:
        """Return the ids of the first parked jobs of each flow that has any; see `parked_heads`."""
        ...

    def parked_order(self, gate: str, flow: int) -> Order | None:
        """Return the order of the first of the `parked_heads`; None if there are none."""
        ...

    def parked_orders(self, gate: str, flows: Sequence[int]) -> Mapping[int, Order]:
        """Return the same by flow, for those that have any."""
        ...

    def parked_counts(self, gates: Sequence[str], limit: int) -> Mapping[str, int]:
        """Return how many jobs are parked at each gate, including unfit ones, up to `limit`."""
        ...

    def unfit_at(self, gate: str, most: int, limit: int) -> list[str]:
        """Return unfit jobs parked at a gate that need at most `most` there, least first."""
        ...

    def parked_gates(self, after: str, limit: int) -> list[str]:
        """Return gates with parked jobs, including unfit ones, by name, starting after `after`."""
        ...

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        """Return waiting jobs of a flow with the gate's ticket and their amounts, in order."""
        ...

    def feed(self, heads: Sequence[Head], gate: str, amounts: Sequence[int]) -> None:
        """Make parked jobs waiting with the gate's ticket, and add their time parked."""
        ...

    def park(self, seqs: Sequence[int], gate: str, *, unfit: int) -> None:
        """Park jobs that wait, or are parked elsewhere, at a gate now, and remove their tickets.

        Args:
            unfit: how many permits each needs there, if that is more than the gate's capacity;
                0 otherwise.
        """
        ...

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        """Return running and awaiting jobs whose run this worker holds, in order of start."""
        ...

    def held_counts(self, workers: Sequence[str]) -> Mapping[str, int]:
        """Return how many jobs each of these workers holds; workers with none may be omitted."""
        ...

    def taken_by(self, worker: str, request: int) -> list[JobRow]:
        """Return running jobs that this claim of the worker took, in order of start."""
        ...

    def deadlines(self, limit: int) -> list[str]:
        """Return awaiting jobs past their deadline, earliest first."""
        ...

    def next_deadline(self) -> int | None:
        """Return the next deadline."""
        ...

    def purgeable(self, limit: int) -> list[str]:
        """Return final jobs past their retention, oldest first."""
        ...

    def of_entry(self, entry: str) -> list[JobRow]:
        """Return jobs of a timetable entry that are not final, by fire time."""
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
        """Return running and awaiting jobs by id, starting after `after`."""
        ...

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        """Return copies of jobs in any state by `seq`, starting after `after`."""
        ...

    def oldest_due(self, lanes: Sequence[str]) -> Mapping[str, int]:
        """Return the due time of one of the oldest waiting jobs of each lane that has any."""
        ...

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        """Add runs that ended."""
        ...

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        """Return the ended runs of each job, oldest first."""
        ...


class GateTable(Protocol):
    """Declared gates, and the instances that have state."""

    def templates(self) -> GateTemplates:
        """Return all declared gates by name; they must not be changed in place."""
        ...

    def save_template(self, row: TemplateRow) -> None:
        """Write a declared gate."""
        ...

    def load(self, names: Iterable[str]) -> dict[str, GateRow]:
        """Return copies of the gates that have a row, by name."""
        ...

    def save(self, rows: Iterable[GateRow]) -> None:
        """Write gates, and remove idle ones."""
        ...

    def page(self, after: str, limit: int) -> list[GateRow]:
        """Return gates that have a row, by name, starting after `after`."""
        ...

    def due_timers(self, limit: int) -> list[str]:
        """Return gates whose timer is due, earliest first."""
        ...

    def next_timer(self) -> int | None:
        """Return when the next timer is due."""
        ...

    def short_horizons(self, before_at: int, limit: int) -> list[GateRow]:
        """Return hours whose intervals end before a given time."""
        ...


class PermitTable(Protocol):
    """Permits, with their holders; a job has at most one permit of a gate."""

    def add(self, rows: Sequence[PermitRow]) -> None:
        """Add permits."""
        ...

    def of_jobs(self, jobs: Iterable[str]) -> list[PermitRow]:
        """Return the permits that jobs hold."""
        ...

    def remove(self, rows: Sequence[PermitRow]) -> None:
        """Remove permits."""
        ...

    def remove_all(self, jobs: Iterable[str]) -> list[ReturnedPermits]:
        """Remove all permits of jobs, and return their total amounts, by gate and pool."""
        ...

    def at(self, gates: Sequence[str], limit: int) -> Mapping[str, Holders]:
        """Return the permits out of each of these gates, with the first holders, oldest first."""
        ...

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Return gates with permits out, and their total amounts, by name, after `after`."""
        ...

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        """Return permits by (gate, job), starting after `after`."""
        ...


class StartTable(Protocol):
    """The starts counted by rates: one number for each gate and millisecond."""

    def add(self, counts: Mapping[str, int]) -> None:
        """Count starts now, by gate."""
        ...

    def put(self, gate: str, moments: Mapping[int, int]) -> None:
        """Set the numbers of starts at these times, replacing earlier numbers."""
        ...

    def trim(self, gate: str, until_at: int) -> int:
        """Remove the starts up to and including a time, and return how many were removed."""
        ...

    def total(self, gate: str, after_at: int, stored: int) -> int:
        """Return how many starts are later than a given time.

        Args:
            stored: how many starts of the gate are stored, if a store would rather count those that
                are not later.
        """
        ...

    def oldest(self, gate: str, after_at: int, limit: int) -> list[tuple[int, int]]:
        """Return the first (time, number) pairs later than a given time, oldest first."""
        ...


class LaneTable(Protocol):
    """Lanes; each is created with its first job."""

    def load(self, names: Iterable[str]) -> dict[str, LaneRow]:
        """Return copies of the lanes that have a row, by name."""
        ...

    def ensure(self, names: Iterable[str]) -> None:
        """Create the lanes that do not exist."""
        ...

    def save(self, row: LaneRow) -> None:
        """Write a lane."""
        ...

    def names(self) -> list[str]:
        """Return all lanes, by name."""
        ...

    def tenant_starts(self, lane: str, tenants: Iterable[str]) -> dict[str, int]:
        """Return the virtual starts of the tenants that have any."""
        ...

    def all_tenant_starts(self, lane: str) -> dict[str, int]:
        """Return the virtual starts of all tenants of a lane."""
        ...

    def save_tenant_starts(self, lane: str, starts: Mapping[str, int]) -> None:
        """Write virtual starts."""
        ...


class CountTable(Protocol):
    """Counts that are kept up to date, so that nothing has to be scanned."""

    def move(self, lane: str, old: State | None, new: State | None, n: int = 1) -> None:
        """Count jobs of a lane that moved from one state to another; None is outside the store."""
        ...

    def happened(self, what: str, n: int = 1) -> None:
        """Add to a total since the store was created."""
        ...

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, dict[State, int]]:
        """Return the numbers of jobs by lane and state."""
        ...

    def of_states(self) -> dict[State, int]:
        """Return the numbers of jobs of the whole store by state."""
        ...

    def totals(self) -> dict[str, int]:
        """Return the totals."""
        ...


class KeyTable(Protocol):
    """Keys that make enqueues idempotent."""

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        """Return the keys that have a row, by (tenant, key)."""
        ...

    def save(self, rows: Iterable[KeyRow]) -> None:
        """Write keys."""
        ...


class SignalTable(Protocol):
    """Signal keys of runs, and events that were received."""

    def known(self, key: str) -> tuple[str, int] | None:
        """Return the (job, run) of a signal key."""
        ...

    def make_known(self, key: str, job: str, run: int) -> None:
        """Assign a signal key to a run; a later run takes it over."""
        ...

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        """Return the (key, job, run) of these jobs' runs, in any order."""
        ...

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        """Return all (key, job, run), by key, starting after `after`."""
        ...

    def all_received(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        """Return events by (scope, event), starting after `after`."""
        ...

    def received(self, scope: str, event: str) -> SignalRow | None:
        """Return the event, if it was received in the scope."""
        ...

    def save(self, row: SignalRow) -> None:
        """Write an event; writing it again, as a repeated import does, changes nothing."""
        ...

    def kept(self, key: str) -> list[SignalRow]:
        """Return events kept for a key, oldest first."""
        ...

    def kept_count(self) -> int:
        """Return how many events are kept."""
        ...

    def drop(self, rows: Iterable[SignalRow]) -> None:
        """Remove events."""
        ...

    def stale(self, limit: int) -> list[SignalRow]:
        """Return kept events past their time limit."""
        ...


class WorkerTable(Protocol):
    """Workers and their leases."""

    def load(self, worker: str) -> WorkerRow | None:
        """Return a copy of a worker's row."""
        ...

    def save(self, row: WorkerRow) -> None:
        """Write a worker."""
        ...

    def remove(self, workers: Sequence[str]) -> None:
        """Remove workers."""
        ...

    def lapsed(self, limit: int) -> list[WorkerRow]:
        """Return workers whose lease has ended and that are not marked as lapsed."""
        ...

    def all(self) -> list[WorkerRow]:
        """Return all workers, by id."""
        ...


class EntryTable(Protocol):
    """The timetable."""

    def load(self, name: str) -> EntryRow | None:
        """Return a copy of an entry."""
        ...

    def all(self) -> list[EntryRow]:
        """Return all entries, including removed ones, by name."""
        ...

    def save(self, row: EntryRow) -> None:
        """Write an entry."""
        ...


class TrailTable(Protocol):
    """Who did what, when and why; and the replies to requests, in case one is repeated."""

    def add(self, rows: Sequence[TrailRow]) -> None:
        """Add lines, and assign their `seq`."""
        ...

    def remove(self, rows: Sequence[TrailRow]) -> None:
        """Remove the oldest lines, given in order; never the newest of all."""
        ...

    def page(self, target: str | None, before: int | None, limit: int) -> list[TrailRow]:
        """Return lines of one target or all, newest first, with a smaller seq than `before`."""
        ...

    def of_targets(self, targets: Sequence[str], limit: int) -> Mapping[str, list[TrailRow]]:
        """Return up to `limit` lines of each target that has some, newest first."""
        ...

    def since(self, after: int, limit: int) -> list[TrailRow]:
        """Return lines with a larger seq than `after`, oldest first."""
        ...

    def answer(self, request: str) -> bytes | None:
        """Return the stored reply to a request."""
        ...

    def keep_answer(self, request: str, answer: bytes) -> None:
        """Store the reply to a request, for at least an hour."""
        ...


class FactTable(Protocol):
    """The store's own facts."""

    def identity(self) -> str:
        """Return the random identity, which was written once."""
        ...

    def epoch(self) -> int:
        """Return the epoch, which an operator raises after a restore; it fences older runs."""
        ...

    def revision(self) -> int:
        """Return the revision of the definitions."""
        ...

    def bump_revision(self) -> int:
        """Increase the revision, and return it."""
        ...

    def clock_ahead_ms(self) -> int:
        """Return how far the store's time is ahead of its clock."""
        ...

    def suspicion(self) -> Suspicion | None:
        """Return why claims are refused in the whole store; None if they are not."""
        ...

    def leader(self, role: str) -> tuple[str, int, int] | None:
        """Return the (holder, term, until) of a role."""
        ...

    def set_leader(self, role: str, holder: str, term: int, until_at: int) -> None:
        """Write a role's leader."""
        ...


@dataclass(slots=True)
class TokenRow:
    """A token, when and by whom it was created, and when it was last used."""

    spec: TokenSpec
    created_at: int
    created_by: str
    used_at: int | None = None


class TokenTable(Protocol):
    """Tokens by id, a few thousand at most."""

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        """Return copies of the tokens that exist, by id."""
        ...

    def all(self) -> list[TokenRow]:
        """Return all tokens, in any order."""
        ...

    def count(self) -> int:
        """Return how many there are."""
        ...

    def save(self, rows: Iterable[TokenRow]) -> None:
        """Write tokens."""
        ...

    def remove(self, token: str) -> None:
        """Remove a token."""
        ...
