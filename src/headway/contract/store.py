"""The Store: all state of the engine behind one protocol.

Each operation is one atomic step: all of its writes are seen, or none. Each can be repeated after
a lost reply with the effect of one execution. Time is the store's own: now = max(the highest time
it ever used, its clock). An operation may be awaited from any event loop in any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.views import Query
from headway.core.job import TRAIL_KEPT_MS, NewJob


class Clock(Protocol):
    """Returns the time."""

    def __call__(self) -> int:
        """Milliseconds since 1970, UTC. May jump; the store makes it monotonic."""
        ...


class Sent(NamedTuple):
    """The reply for one job.

    Attributes:
        id: the job that exists now: the one asked for, or the one that has its key.
        created: whether this call made it.
    """

    id: str
    created: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """A job whose work is already under way in the outside world.

    Attributes:
        job: as for enqueue; its key says whether it is known already.
        signal_key: of the signal that will report its end.
        since_at: when its work began; a job that is made was created then, if that is past.
        deadline_ms: from now; at its end the provider is asked or the deadline decides.
        members: the member it holds in each of its pools.
        newer: whether this is known to be newer than the store, which is an older state of
            itself: then a job that is queued there, or held by an earlier run, is taken up too.
    """

    job: NewJob
    signal_key: str
    since_at: int
    deadline_ms: int
    members: dict[str, str] = field(default_factory=dict[str, str])
    newer: bool = False


Answer = TypeVar("Answer")


class Store(Protocol):
    """All state of the engine.

    Any operation may raise StoreUnavailable (refused, nothing written), OutcomeUnknown (repeat
    it), StoreFull, StoreCorrupt, SchemaMismatch or StoreChanged.
    """

    @property
    def runs_inline(self) -> bool:
        """Whether an operation that is driven outside any event loop ends without suspending.

        It does its work on the caller's thread then; all but `wait`. A caller that cannot await
        so saves itself the way through another thread.
        """
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        """Make jobs that do not exist yet; inserts only.

        Guard: neither the id nor, within the tenant, a live key exists.

        Args:
            jobs: up to 1000, all or none.

        Returns:
            For each job, in this order, which job exists and whether this call made it. An id
            that exists with the same body answers `created=False`.

        Raises:
            KeyConflict: a key names a job with another body; nothing was written.
            IdConflict: an id names a job with another body; nothing was written.
            UnknownGate: a gate is not declared; nothing was written.
            BacklogFull: a lane would hold more than its `max_backlog`; nothing was written.
        """
        ...

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """Start up to n jobs in order, each with all its permits.

        Guard: each job is waiting, its gates fit now, and the claim's number is new. Promotes
        what is due first (at most 1000 jobs a lane). Starts count at the store's time of the
        claim. A repeated number answers the jobs of the first that the worker still holds; a
        smaller one answers none.

        Returns:
            The jobs, and when to ask again.
        """
        ...

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        """Write what live runs say, with all that must follow.

        Guard, for each outcome: the job is running or awaiting, its run and worker are these, and
        the worker's lease lives. What fails it answers LOST and changes nothing; the others are
        written. Permits are given back, keyed queues fed, `then` and `on_final` jobs inserted,
        gates closed, in the same step.

        Returns:
            A verdict for each outcome, in this order.

        Raises:
            CallerError: an outcome asks for what cannot be, such as a follow-up at an unknown
                gate or a snooze without a moment; nothing was written. Sent one by one, the
                others are.
        """
        ...

    async def beat(self, request: BeatRequest) -> BeatReply:
        """Extend the worker's leases, and return which runs are lost or to be cancelled.

        Guard: a lease that has ended is not revived.
        """
        ...

    async def signal(self, signal: Signal) -> SignalReply:
        """Settle, extend or label the run that awaits under a key.

        Guard: the event was not applied before; for final and progress, the run awaits. Signal
        and deadline race here; the loser gets a definite LATE.
        """
        ...

    async def restore(self, jobs: Sequence[InFlight]) -> list[Sent]:
        """Make jobs that are already under way: awaiting, in doubt, with their permits.

        A job that is known stays as it is, unless it is said to be `newer`. One whose signal key
        is the reference of a run goes on counting its runs from there.

        Guard: as for enqueue. Permits are taken even above the capacity: they are facts.
        """
        ...

    async def act(self, request: ActRequest) -> list[ActReply]:
        """Do an operator's move on each job, and put it on the trail.

        Guard: the verb applies to the job's state; a repeated request id changes nothing more.
        """
        ...

    async def define(self, request: DefineRequest) -> int:
        """Declare, change, pause or reset gates, lanes, entries and tokens, all or none.

        Guard: `revision` is current, if given.

        Returns:
            The revision of the definitions now.

        Raises:
            RevisionConflict: they were changed meanwhile; nothing was written.
            UnknownGate: a gate to be set, closed or opened is not declared; nothing was written.
            InvalidValue: a gate of that name is declared as another kind, a token can be none, or
                there would be more than 10,000 tokens; nothing was written.
        """
        ...

    async def release_permit(self, gate: str, job: str, author: str, reason: str) -> bool:
        """Take a permit from its holder by force; on the trail.

        Returns:
            Whether the job held one there.
        """
        ...

    async def fire(self, request: FireRequest) -> FireReply:
        """Lay fires of a timetable entry ahead, as scheduled jobs.

        Guard: the revision is current, and each moment later than the last fired.
        """
        ...

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        """Do up to n of each thing that time alone brings about.

        Jobs of workers whose lease has ended, deadlines, jobs that never started, due jobs, timers
        of keyed gates, horizons of hours, retention. Safe for any number of sweepers at once.

        Args:
            n: the most of each thing.
            keep_trail_ms: lines of the trail that are older are removed, oldest first. The newest
                line always stays, so that no line gets the number of an earlier one.
        """
        ...

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        """Make or keep the holder the one who does chores with outside effects.

        Returns:
            The term, which grows with each new holder; None while another holder leads.
        """
        ...

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """Sleep until something in these lanes may be claimable, or the moment has come.

        A hint only: it may return early, and a claim decides. What was committed after the claim
        whose reply gave `seen` is never slept through.

        Args:
            lanes: those that were claimed from.
            until_at: by the store's time; None for as long as nothing happens.
            seen: from the claim's reply.
        """
        ...

    async def read(self, query: Query[Answer]) -> Answer:
        """Answer a question from one snapshot."""
        ...

    async def close(self) -> None:
        """Release everything; running operations end first."""
        ...
