"""Claims, heartbeats and sweeps: who asks for work, what is handed out, and what time causes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headway.core.job import JobPolicy

LaneOrder = Literal["weighted", "strict"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimRequest:
    """One claim.

    Attributes:
        worker: random for each start of a worker; the fence of its runs.
        request: grows by one with each new claim of this worker; a repeat has the same number.
        lanes: each lane and its weight, in strict order if `order` says so.
        order: "weighted" shares by weight, "strict" empties an earlier lane first.
        n: the most jobs to start, 1 to 1000.
        free: idle handlers: the most gated jobs to start.
        lease_ms: how long the worker's runs live without a beat.
        after: where the last claim stopped, by lane; from its reply.
    """

    worker: str
    request: int
    lanes: tuple[tuple[str, int], ...]
    order: LaneOrder = "weighted"
    n: int = 1
    free: int = 1
    lease_ms: int = 30_000
    after: Mapping[str, int] = field(default_factory=dict[str, int])


class Claimed(NamedTuple):
    """A job that starts now.

    Attributes:
        id: id of the job.
        run: run number; with the worker, it fences writes.
        attempt: 1 for the first.
        kind: names the handler.
        stage: stage, for a kind with stages; otherwise empty.
        lane: lane that it waited in.
        tenant: tenant that it runs for.
        subject: what it is about.
        args: arguments, a JSON object.
        priority: priority; smaller numbers start first.
        due_at: when it was due.
        policy: policy of its kind when it was enqueued.
        gated: whether it holds permits; then it must be started within `start_within_ms`.
        members: chosen member of each pool.
        candidate: candidate whose turn it is, for a cascade; otherwise empty.
    """

    id: str
    run: int
    attempt: int
    kind: str
    stage: str
    lane: str
    tenant: str
    subject: str | None
    args: bytes
    priority: int
    due_at: int
    policy: JobPolicy
    gated: bool
    members: Mapping[str, str]
    candidate: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimReply:
    """What a claim hands out.

    Attributes:
        jobs: in the order to be started.
        now: the store's time of the claim.
        lease_until: the store's time at which the worker's runs lapse without a beat.
        next_at: when it is worth asking again, by the store's time; None for not before a wake.
        again: ask again at once: more may be claimable, or flows were left unexamined.
        after: to be given to the next claim.
        seen: to be given to `wait`.
        dead: ids of the jobs that the claim found out of time, and ended.
    """

    jobs: list[Claimed]
    now: int
    lease_until: int
    next_at: int | None
    again: bool = False
    after: Mapping[str, int] = field(default_factory=dict[str, int])
    seen: int = 0
    dead: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BeatRequest:
    """A worker says that it lives, and what it holds.

    Attributes:
        worker: its random id.
        running: each run that it holds, as (job, run).
        request: its last claim request whose reply it holds; 0 for none. A run of that or an
            earlier request that is not listed never reached it, and is released unused.
        lease_ms: how long its runs live from now.
        lanes: what it serves, for those who ask why nothing runs.
        name: a label: host, process, what it is; not an identity.
        progress: new progress of its runs, as (job, run, JSON).
        leaving: it has stopped and holds nothing more.
    """

    worker: str
    running: tuple[tuple[str, int], ...] = ()
    request: int = 0
    lease_ms: int = 30_000
    lanes: tuple[str, ...] = ()
    name: str = ""
    progress: tuple[tuple[str, int, bytes], ...] = ()
    leaving: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BeatReply:
    """What the worker must know.

    Attributes:
        now: the store's time.
        lease_until: until when its runs live.
        lost: runs that are not live any more; their handlers must stop and write nothing.
        cancel: runs with a requested cancel.
    """

    now: int
    lease_until: int
    lost: tuple[tuple[str, int], ...] = ()
    cancel: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepReply:
    """What one bounded sweep did.

    Attributes:
        lost: runs whose lease had ended.
        deadlines: hand-overs whose deadline had come.
        expired: jobs that never started in time.
        promoted: scheduled jobs that became waiting.
        fed: parked jobs that were moved into their flow.
        dead: ids of the jobs that are dead now, whatever of the above ended them.
        removed: jobs and lines of the trail past their retention.
        next_at: when there is something to sweep again, if that is known.
        again: more is due now.
        workers: how many have a lease that has not ended.
    """

    lost: int = 0
    deadlines: int = 0
    expired: int = 0
    promoted: int = 0
    fed: int = 0
    dead: tuple[str, ...] = ()
    removed: int = 0
    next_at: int | None = None
    again: bool = False
    workers: int = 0
