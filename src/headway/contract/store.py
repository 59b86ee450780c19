"""The Store: all state of the engine behind one protocol.

Each operation is one atomic step: all of its writes become visible, or none. Each can be repeated
after a lost reply, with the effect of one execution. Time is the store's own: now = max(the highest
time it ever used, its clock). An operation may be awaited from any event loop in any thread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

import msgspec

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.views import AuditView, Page, Query
from headway.core.job import TRAIL_KEPT_MS, NewJob

Clock = Callable[[], int]
"""Returns milliseconds since 1970 UTC. May jump; the store makes its time monotonic."""


class Sent(msgspec.Struct, frozen=True, gc=False):
    """The result for one job; a msgspec struct, because one is created for each job of a batch.

    Attributes:
        id: the job that exists now: the requested one, or the one that has its key.
        created: whether this call created it.
    """

    id: str
    created: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """A job whose work is already in progress in the outside world.

    Attributes:
        job: as for enqueue; its key shows whether the store already knows it.
        signal_key: key of the signal that will report its end.
        since_at: when its work started; a new job gets this time, if past, as its creation time.
        deadline_ms: time until the deadline, from now; then the provider is queried, or the
            deadline decides.
        members: the member it holds in each of its pools.
        newer: whether this information is known to be newer than the store, which was restored to
            an older state: then a job that is queued there, or held by an earlier run, is taken
            over too.
    """

    job: NewJob
    signal_key: str
    since_at: int
    deadline_ms: int
    members: dict[str, str] = field(default_factory=dict[str, str])
    newer: bool = False


Answer = TypeVar("Answer")
Listed = TypeVar("Listed", bound=Page[Any] | AuditView)


class Store(Protocol):
    """All state of the engine.

    Any operation may raise StoreUnavailable (refused, nothing written), OutcomeUnknown (repeat
    it), StoreFull, StoreCorrupt, SchemaMismatch or StoreChanged.
    """

    @property
    def runs_inline(self) -> bool:
        """Whether operations driven outside an event loop complete without suspending.

        They then run on the caller's thread, except for `wait`, so that callers that cannot await
        need no other thread.
        """
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        """Create jobs that do not exist yet; inserts only.

        Guard: neither the id nor, within the tenant, a live key exists.

        Args:
            jobs: up to 1000; all are stored, or none.

        Returns:
            For each job, in this order, the id of the existing job and whether this call created
            it. For an id that already exists with the same body, `created` is False.

        Raises:
            KeyConflict: a key belongs to a job with a different body; nothing was written.
            IdConflict: an id belongs to a job with a different body; nothing was written.
            UnknownGate: a gate is not declared; nothing was written.
            BacklogFull: a lane would exceed its `max_backlog`; nothing was written.
        """
        ...

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """Start up to n jobs in order, each with all its permits.

        Guard: each job is waiting and has not expired, its gates fit now, and the claim's number is
        new. Expired jobs are ended first (at most 1000; if there may be more, no job starts), and
        due jobs are promoted (at most 1000 per lane). Starts count at the store's time of the
        claim. A repeated number returns the jobs of the first claim that the worker still holds; a
        smaller number returns none.
        """
        ...

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        """Write the outcomes of live runs, with everything that follows from them.

        Guard, for each outcome: the job is running or awaiting, its run and worker match, and the
        worker's lease is live. An outcome that fails the guard returns LOST and changes nothing;
        the others are written. In the same step, permits are returned, keyed queues fed, `then` and
        `on_final` jobs inserted, and gates closed.

        Returns:
            A verdict for each outcome, in this order.

        Raises:
            CallerError: an outcome is not possible, such as a follow-up at an unknown gate or a
                snooze without a time; nothing was written. Sent one by one, the others are.
        """
        ...

    async def beat(self, request: BeatRequest) -> BeatReply:
        """Extend a worker's leases, and return which runs are lost or to be cancelled.

        Guard: an expired lease is not revived.
        """
        ...

    async def signal(self, signal: Signal) -> SignalReply:
        """Settle, extend or label the run that awaits a key.

        Guard: the event was not applied before; for final and progress, the run is awaiting. If a
        signal and the deadline race, the loser gets a definite LATE.
        """
        ...

    async def restore(self, jobs: Sequence[InFlight]) -> list[Sent]:
        """Create jobs that are already in progress: awaiting, in doubt, with their permits.

        A known job is left unchanged unless it is marked as `newer`. If the signal key is the
        reference of a run, its runs are counted on from there.

        Guard: as for enqueue, but no lane is full: the work is under way. Permits are taken even
        beyond the capacity, since they are in use.
        """
        ...

    async def act(self, request: ActRequest) -> list[ActReply]:
        """Perform an operator's action on each job, and record it in the trail.

        Guard: the action is possible in the job's state; a repeated request id changes nothing.
        """
        ...

    async def define(self, request: DefineRequest) -> int:
        """Declare, change, pause or reset gates, lanes, entries and tokens; all or none.

        Guard: `revision` is current, if given.

        Returns:
            The new revision of the definitions.

        Raises:
            RevisionConflict: they have been changed since; nothing was written.
            UnknownGate: a gate to set, close or open, or of an entry's job, is not declared;
                nothing was written.
            InvalidValue: a gate is already declared as another kind, the gates of an entry's job
                cannot be used like this, a token is not valid, or there would be more than 10,000
                tokens; nothing was written.
        """
        ...

    async def release_permit(
        self, gate: str, job: str, author: str, reason: str, *, request: str = ""
    ) -> bool:
        """Revoke a permit from its holder, and record it in the trail.

        Args:
            request: random id; if a request has revoked a permit, a repeat of it revokes nothing,
                and returns the same. Empty for a call that is not repeated.

        Returns:
            Whether the job held a permit of this gate.

        Raises:
            InvalidValue: the gate or the author has no valid name; nothing was written.
        """
        ...

    async def fire(self, request: FireRequest) -> FireReply:
        """Create fires of a timetable entry in advance, as scheduled jobs.

        Guard: the revision is current, and each time is later than the last fire. A time whose fire
        was cancelled by an operator, or has run, under an earlier revision is not created.
        """
        ...

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        """Do up to n of each change that is due to the passing of time alone.

        It covers jobs of workers with expired leases, deadlines, jobs that never started, due jobs,
        timers of keyed gates, horizons of hours, and retention. Any number of sweepers may run.

        Args:
            n: maximum number of each change.
            keep_trail_ms: trail lines older than this are removed, oldest first. The newest line
                always stays, so that numbers of lines are never reused.
        """
        ...

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        """Acquire or renew the leadership for maintenance with outside effects.

        Returns:
            The term, which increases with each new holder; None while another holder leads.
        """
        ...

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """Sleep until a job in these lanes may be claimable, or until a time.

        This is only a hint: it may return early, and a claim decides. Commits after the claim that
        returned `seen` are never missed.

        Args:
            lanes: the lanes claimed from.
            until_at: in the store's time; None for no limit.
            seen: from the claim's reply.
        """
        ...

    async def read(self, query: Query[Answer]) -> Answer:
        """Answer a query from one snapshot."""
        ...

    async def close(self) -> None:
        """Release all resources, after running operations have finished."""
        ...


async def read_pages(store: Store, query: Query[Listed]) -> AsyncGenerator[Listed]:
    """Yield the pages of a listing from the query's cursor on; each is a snapshot."""
    while True:
        page = await store.read(query)
        yield page
        if page.cursor is None:
            return
        # Each query with such an answer has a cursor.
        query = replace(cast("Any", query), cursor=page.cursor)
