"""Requests and replies of claims, heartbeats and sweeps."""

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
        worker: random id, new for each start of a worker; fences its runs.
        request: number of the claim, one higher for each new claim of this worker; a repeat has the
            same number.
        lanes: lanes and their weights; their order matters if `order` is "strict".
        order: "weighted" shares by weight, "strict" empties an earlier lane first.
        n: maximum number of jobs to start, 1 to 1000.
        free: number of idle handlers, which limits the gated jobs to start.
        lease_ms: how long the worker's runs stay valid without a heartbeat.
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
    """The reply to a claim.

    Attributes:
        jobs: started jobs, in the order in which handlers should start.
        now: the store's time of the claim.
        lease_until: the store's time at which the worker's runs lapse without a heartbeat.
        next_at: the store's time at which to claim again; None for not before a wake.
        again: whether to claim again at once: more may be claimable, or not all flows were
            examined.
        after: to pass to the next claim.
        seen: to pass to `wait`.
        dead: ids of jobs that died in this claim, because they expired or the worker's lease had.
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
    """A worker's heartbeat, with the runs that it has.

    Attributes:
        running: runs that it has, as (job, run).
        request: number of the last claim whose reply it received; 0 for none. A run of this or an
            earlier claim that is not listed in `running` never reached it, and is released unused.
        lease_ms: how long its runs stay valid from now.
        lanes: lanes that it serves, to explain why jobs do not run.
        name: label, such as host and process; not an identity.
        progress: new progress of its runs, as (job, run, JSON).
        leaving: whether it has stopped and has no more runs.
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
    """The reply to a heartbeat.

    Attributes:
        now: the store's time.
        lease_until: until when the worker's runs are valid.
        lost: runs that are no longer live; their handlers must stop and write nothing.
        cancel: runs for which a cancel was requested.
    """

    now: int
    lease_until: int
    lost: tuple[tuple[str, int], ...] = ()
    cancel: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepReply:
    """The reply to a sweep: what it did.

    Attributes:
        lost: number of runs whose lease had expired.
        deadlines: number of hand-overs whose deadline had passed.
        expired: number of jobs that never started in time.
        promoted: number of scheduled jobs that became waiting.
        fed: number of parked jobs that were moved into their flow.
        dead: ids of jobs that died from any of these causes.
        removed: number of jobs and trail lines that were past their retention.
        next_at: when there is something to sweep again, if that is known.
        again: whether more is due now.
        workers: number of workers with a live lease.
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
