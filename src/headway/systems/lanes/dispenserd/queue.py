"""The queue: what dispenserd keeps in memory, kept in a store."""

from __future__ import annotations

import secrets
from hashlib import sha1
from itertools import count

import msgspec
from uuid_utils import uuid7

from headway.contract.claims import Claimed
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView, LanesQuery
from headway.core.errors import StoreError
from headway.core.instant import format_instant
from headway.core.job import JobPolicy, NewJob
from headway.core.retry import RetryPolicy
from headway.core.state import QUEUED
from headway.runtime.timing import Timing, persist
from headway.server.long_polling.claiming import LongPoll, PollReply
from headway.server.long_polling.lanes import LaneSelection
from headway.server.long_polling.registry import LongPollRegistry
from headway.systems.lanes.dispenserd.requests import DEFAULT_LANE, PREFIX, Scheduling

KIND = "dispenserd"
LEASE_MS = 30_000
"""How long a job may be on its way to a client before it comes back."""
SETTLE_WITHIN = 20.0
"""Seconds for which it is tried to note that a job was received."""
A_WEEK = 604_800.0
DESKS = 32
"""Names under which it claims: several, so that receives need not wait for each other."""
MOST_NAMED = 10_000
"""The most lanes without jobs that are listed because a client has named them."""

POLICY = JobPolicy(
    # What is lost on its way to a client comes back at once, as often as it takes.
    retry=RetryPolicy(attempts=2**31 - 1, base_ms=0, cap_ms=0, jitter="none"),
    keep_ms=3_600_000,
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


class Received:
    """A job on its way to a client.

    Attributes:
        pulled: the claim that brought it.
    """

    def __init__(self, pulled: PollReply, claimed: Claimed) -> None:
        self.pulled = pulled
        self.claimed = claimed
        self.message = _message(claimed.args)


class Queue:
    """Jobs by lane, as dispenserd has them.

    Args:
        registry: of the store; where receivers wait.
    """

    def __init__(self, store: Store, registry: LongPollRegistry, timing: Timing) -> None:
        self._store = store
        self._registry = registry
        self._timing = timing
        self._desks = count()
        self._session = secrets.token_hex(6)
        self._named: set[str] = {DEFAULT_LANE}

    async def schedule(self, said: Scheduling) -> None:
        """Add a job; it is kept when this returns.

        Raises:
            CallerError: it cannot be a job.
            StoreError: it could not be kept.
        """
        job = NewJob(
            id=str(uuid7()),
            kind=KIND,
            lane=PREFIX + said.lane,
            args=_encode({"message": said.message}),
            priority=said.priority,
            policy=POLICY,
        )
        await self._store.enqueue([job])

    async def receive(self, lane: str, *, block: bool) -> Received | None:
        """Take the first job of a lane.

        The client that has waited longest is served first. If it is cancelled, no job is taken.

        Args:
            block: wait until there is one.

        Returns:
            The job, to be given to `done` or `put_back`; None if there is none.

        Raises:
            StoreError: the store could not answer.
        """
        if len(self._named) < MOST_NAMED:
            self._named.add(lane)
        desk = next(self._desks) % DESKS
        pull = LongPoll(
            worker=f"{KIND}.{self._session}.{desk}",
            wanted=LaneSelection(lanes=((PREFIX + lane, 1),)),
            lease_ms=LEASE_MS,
        )
        pulled = await self._registry.pull(pull, A_WEEK if block else 0.0)
        return Received(pulled, pulled.jobs[0]) if pulled.jobs else None

    async def done(self, received: Received) -> None:
        """Notes that a job has reached its client.

        Raises:
            StoreError: it could not be noted: the job comes back at the end of its lease.
        """
        job = received.claimed
        outcome = Succeeded(job.id, job.run)
        request = SettleRequest(worker=received.pulled.worker, outcomes=(outcome,))
        end = self._timing.monotonic() + SETTLE_WITHIN
        (verdict,) = await persist(
            self._timing,
            "received",
            lambda: self._store.settle(request),
            until=lambda: self._timing.monotonic() >= end,
        )
        if verdict is Verdict.LOST:
            message = f"job {job.id} was received, but too late: it is handed out again"
            raise StoreError(message)

    def put_back(self, received: Received | None) -> None:
        """Put back a job that did not reach its client; it stands where it stood."""
        if received is not None:
            self._registry.give_back(received.pulled)

    async def waiting(self) -> dict[str, int]:
        """How many jobs wait in each lane that was ever named, by name."""
        counts = dict.fromkeys(self._named, 0)
        for lane in await self._store.read(LanesQuery()):
            if lane.name.startswith(PREFIX):
                counts[lane.name.removeprefix(PREFIX)] = sum(lane.counts.get(s, 0) for s in QUEUED)
        return dict(sorted(counts.items()))

    def receivers(self, lane: str) -> int:
        """How many wait for a job of a lane."""
        return self._registry.waiting_for(PREFIX + lane)

    async def jobs(self, lane: str) -> list[dict[str, object]]:
        """The jobs that wait in a lane, in the order in which they will be received."""
        found: list[JobView] = []
        cursor: str | None = None
        while True:
            query = JobsQuery(lane=PREFIX + lane, states=tuple(QUEUED), cursor=cursor, limit=1_000)
            page = await self._store.read(query)
            found += page.rows
            cursor = page.cursor
            if cursor is None:
                break
        found.sort(key=lambda job: (job.priority, job.due_at, job.seq))
        return [_listed(lane, job) for job in found]


def _listed(lane: str, job: JobView) -> dict[str, object]:
    return {
        "job_num": job.seq,
        "hash": sha1(job.id.encode(), usedforsecurity=False).hexdigest(),
        "timestamp": format_instant(job.created_at // 1000 * 1000),
        "lane": lane,
        "priority": job.priority,
        "message": _message(job.args),
    }


def _message(args: bytes) -> str:
    try:
        return _decode(args).get("message", "")
    except msgspec.DecodeError:
        # Another program sent it to this lane: its content is passed on as it is.
        return args.decode(errors="replace")
