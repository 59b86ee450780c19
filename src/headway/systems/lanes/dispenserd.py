"""A drop-in replacement for the job queue dispenserd, with its API on a durable store.

Source: the readme and the behaviour of dispenserd 0.0.3 (realtux/dispenserd).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from glob import escape
from hashlib import sha1
from importlib import metadata
from itertools import count
from typing import cast

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send
from uuid_utils import uuid7

from headway.contract.claims import Claimed
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.store import Store, read_pages
from headway.contract.views import JobsQuery, JobView, LanesQuery
from headway.core.errors import HeadwayError, InvalidValue, StoreError
from headway.core.instant import format_instant
from headway.core.job import DEFAULT_PRIORITY, MAX_PRIORITY, JobPolicy, NewJob
from headway.core.naming import check_name
from headway.core.retry import RetryPolicy
from headway.core.state import QUEUED
from headway.runtime.timing import Timing, persist
from headway.server.long_polling.claiming import LaneSelection, LongPoll, PollReply
from headway.server.long_polling.registry import LongPollRegistry
from headway.server.middleware import BodyLimit, CrossSiteCheck, RequestEnvelope
from headway.server.problems import status_of
from headway.server.replies import disconnected
from headway.server.routes.claims import ClientGone, ClientWatch, TrackedReply
from headway.server.service import Service
from headway.server.strict_json import decode_bounded
from headway.systems.jobs import count_queued

DEFAULT_LANE = "main"
PREFIX = "dispenserd/"
"""Prefix of its lanes' names in the store, so that they collide with no other lane."""

_Fields = dict[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduling:
    """A job to schedule.

    Attributes:
        priority: smaller numbers first.
    """

    message: str
    lane: str
    priority: int


def read_scheduling(body: bytes) -> Scheduling:
    """Read the body of a schedule request.

    Raises:
        InvalidValue: the message is missing, or a field is not valid.
    """
    fields = _read_fields(body)
    message = fields.get("message")
    if message is None:
        text = "missing message"
        raise InvalidValue(text)
    if not isinstance(message, str):
        text = "message must be text"
        raise InvalidValue(text)
    priority = fields.get("priority")
    if priority is None:
        priority = DEFAULT_PRIORITY
    is_whole = isinstance(priority, int) and not isinstance(priority, bool)
    if not is_whole or not 0 <= cast("int", priority) <= MAX_PRIORITY:
        text = f"priority must be a whole number from 0 to {MAX_PRIORITY}"
        raise InvalidValue(text)
    return Scheduling(message=message, lane=_lane_of(fields), priority=cast("int", priority))


def read_lane(body: bytes) -> str:
    """Read the lane from the body of a receive request (default: `main`).

    Raises:
        InvalidValue: the lane is not a valid name.
    """
    return _lane_of(_read_fields(body))


def _lane_of(fields: _Fields) -> str:
    lane = fields.get("lane")
    if lane is None or lane == "":
        return DEFAULT_LANE
    if not isinstance(lane, str):
        text = "lane must be text"
        raise InvalidValue(text)
    check_name("lane", PREFIX + lane)
    return lane


def _read_fields(body: bytes) -> _Fields:
    """Return the fields of a body with names in lower case; none if it is not a JSON object.

    Clients may send `[]` or nothing.

    Raises:
        PayloadTooLarge: the body has too many values.
    """
    try:
        fields = decode_bounded(body)
    except InvalidValue:
        return {}
    if not isinstance(fields, dict):
        return {}
    return {name.lower(): value for name, value in cast("_Fields", fields).items()}


KIND = "dispenserd"
LEASE_MS = 30_000
"""How long the delivery of a job to a client may take before the job is handed out again."""
SETTLE_WITHIN_S = 20.0
"""How long to keep trying to settle a received job."""
BLOCKING_WAIT_S = 604_800.0
"""How long a blocking receive waits, long enough to seem endless."""
WORKER_NAMES = 32
"""Number of worker names used to claim, so that receives need not wait for each other."""
MOST_NAMED = 10_000
"""Maximum number of lanes that are listed without jobs, because a client has named them."""

POLICY = JobPolicy(
    # A job whose delivery failed is available again at once, any number of times.
    retry=RetryPolicy(attempts=2**31 - 1, base_ms=0, cap_ms=0, jitter="none"),
    keep_ms=3_600_000,
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


class Received:
    """A job that is being delivered to a client.

    Attributes:
        pulled: reply of the claim that returned it.
    """

    def __init__(self, pulled: PollReply, claimed: Claimed) -> None:
        self.pulled = pulled
        self.claimed = claimed
        self.message = _message(claimed.args)


class Queue:
    """The job queue of dispenserd, by lane."""

    def __init__(self, store: Store, registry: LongPollRegistry, timing: Timing) -> None:
        self._store = store
        self._registry = registry
        self._timing = timing
        self._claims = count()
        self._session = secrets.token_hex(6)
        self._named: set[str] = {DEFAULT_LANE}

    async def schedule(self, scheduling: Scheduling) -> None:
        """Add a job; when this returns, it is stored.

        Raises:
            CallerError: it is not a valid job.
            StoreError: it could not be stored.
        """
        job = NewJob(
            id=str(uuid7()),
            kind=KIND,
            lane=PREFIX + scheduling.lane,
            args=_encode({"message": scheduling.message}),
            priority=scheduling.priority,
            policy=POLICY,
        )
        await self._store.enqueue([job])
        self._registry.note_lanes((job.lane,))

    async def receive(self, lane: str, *, block: bool) -> Received | None:
        """Claim the first job of a lane.

        The client that has waited longest is served first. A cancelled receive claims no job.

        Args:
            block: whether to wait for a job if there is none.

        Returns:
            The job, which must be passed to `done` or `put_back`; None if there is none.
        """
        if len(self._named) < MOST_NAMED:
            self._named.add(lane)
        number = next(self._claims) % WORKER_NAMES
        pull = LongPoll(
            worker=f"{KIND}.{self._session}.{number}",
            wanted=LaneSelection(lanes=((_selected(lane), 1),)),
            lease_ms=LEASE_MS,
        )
        pulled = await self._registry.pull(pull, BLOCKING_WAIT_S if block else 0.0)
        return Received(pulled, pulled.jobs[0]) if pulled.jobs else None

    async def done(self, received: Received) -> None:
        """Settle a job that has reached its client.

        Raises:
            StoreError: it could not be settled; the job is handed out again after its lease.
        """
        job = received.claimed
        outcome = Succeeded(job.id, job.run)
        request = SettleRequest(worker=received.pulled.worker, outcomes=(outcome,))
        end = self._timing.monotonic() + SETTLE_WITHIN_S
        (verdict,) = await persist(
            self._timing,
            "settling a received job",
            lambda: self._store.settle(request),
            until=lambda _: self._timing.monotonic() >= end,
        )
        if verdict is Verdict.LOST:
            message = f"job {job.id} was received after its lease had ended: it is handed out again"
            raise StoreError(message)

    def put_back(self, received: Received | None) -> None:
        """Return a job that did not reach its client to its place in the queue."""
        if received is not None:
            self._registry.give_back(received.pulled)

    async def waiting(self) -> dict[str, int]:
        """Return the number of waiting jobs by lane, for all lanes ever used or named."""
        counts = dict.fromkeys(self._named, 0)
        for lane in await self._store.read(LanesQuery()):
            if lane.name.startswith(PREFIX):
                counts[lane.name.removeprefix(PREFIX)] = count_queued(lane)
        return dict(sorted(counts.items()))

    def receivers(self, lane: str) -> int:
        """Return the number of receives that wait for a job of a lane."""
        return self._registry.waiting_for(_selected(lane))

    async def jobs(self, lane: str) -> list[dict[str, object]]:
        """Return the waiting jobs of a lane, in the order in which they will be received."""
        query = JobsQuery(lane=PREFIX + lane, states=tuple(QUEUED), limit=1_000)
        found = [job async for page in read_pages(self._store, query) for job in page.rows]
        found.sort(key=lambda job: (job.priority, job.due_at, job.seq))
        return [_listed(lane, job) for job in found]


def _selected(lane: str) -> str:
    """Return what selects this lane alone: dispenserd has no patterns, so `*` is only a character.

    A name with such a character becomes a pattern that matches nothing else.
    """
    return escape(PREFIX + lane)


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
        # Sent to this lane by another program: pass its content on unchanged.
        return args.decode(errors="replace")


NAME = "dispenserd"
DONE, WRONG, EMPTY = 0, 1, 2
"""Codes of replies."""

_log = structlog.stdlib.get_logger("headway.dispenserd")


def dispenserd(service: Service) -> Starlette:
    """Return an ASGI app without a lifespan; the caller starts and closes the service."""
    options = service.options
    guards = [
        Middleware(RequestEnvelope, timing=service.timing),
        Middleware(CrossSiteCheck, hosts=options.hosts),
        Middleware(
            BodyLimit, most=options.max_body, seconds=options.body_timeout_s, timing=service.timing
        ),
    ]
    return Starlette(routes=[Mount("/", _Dispenserd(service))], middleware=guards)


class _Dispenserd:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._queue = Queue(service.store, service.long_polls, service.timing)
        self._routes: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/jobs": self._jobs,
            "/schedule": self._schedule,
            "/receive_block": partial(self._receive, block=True),
            "/receive_noblock": partial(self._receive, block=False),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = self._routes.get(scope["path"], self._status)
        try:
            response = await answer(request)
        except ClientGone:
            response = disconnected()
        except HeadwayError as error:
            response = _refusal(error)
        await response(scope, receive, send)

    async def _status(self, request: Request) -> Response:
        del request
        waiting = await self._queue.waiting()
        return _reply(
            {
                "name": NAME,
                "version": metadata.version("headway"),
                "timestamp": format_instant(self._service.timing.wall_at() // 1000 * 1000),
                "status": "ok",
                "payload": {
                    "system": {"pid": os.getpid(), "cpu_count": os.cpu_count() or 1},
                    "queued_jobs": waiting,
                    "idle_workers": {lane: self._queue.receivers(lane) for lane in waiting},
                },
            }
        )

    async def _jobs(self, request: Request) -> Response:
        del request
        lanes = await self._queue.waiting()
        return _reply(
            {lane: await self._queue.jobs(lane) if held else [] for lane, held in lanes.items()}
        )

    async def _schedule(self, request: Request) -> Response:
        await self._queue.schedule(read_scheduling(await request.body()))
        return _reply({"status": "ok", "code": DONE})

    async def _receive(self, request: Request, *, block: bool) -> Response:
        lane = read_lane(await request.body())
        watch = ClientWatch(request.receive)
        work = self._queue.receive(lane, block=block)
        received = await watch.during(work, self._queue.put_back)
        if received is not None:
            return self._deliver(received, watch)
        watch.close()
        if block:
            # A blocking receive ends without a job only when the server stops.
            return _reply({"status": "error", "code": WRONG, "message": "stopping"}, 503)
        return _reply({"status": "ok", "code": EMPTY, "message": "empty queue"})

    def _deliver(self, received: Received, watch: ClientWatch) -> Response:
        fields = {"status": "ok", "code": DONE, "message": received.message}

        async def settle() -> None:
            try:
                await self._queue.done(received)
            except StoreError as error:
                _log.warning("received job not settled", error=str(error))

        return TrackedReply(
            _json(fields),
            watch=watch,
            timing=self._service.timing,
            on_unread=lambda: self._queue.put_back(received),
            on_read=settle,
        )


def _refusal(error: HeadwayError) -> Response:
    status = status_of(error)
    if status == 500:
        _log.error("request failed", exc_info=error)
    text = error.message if status != 500 else "internal error; see the server's log"
    # Clients of dispenserd know only 400 for invalid values.
    return _reply(
        {"status": "error", "code": WRONG, "message": text}, 400 if status == 422 else status
    )


def _reply(fields: object, status: int = 200) -> Response:
    return Response(_json(fields), status_code=status, media_type="application/json")


def _json(fields: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(fields), indent=2)
