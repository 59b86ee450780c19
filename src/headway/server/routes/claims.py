"""POST /v1/claims: jobs for a worker, at once or as soon as there are any.

If the client disconnects before it has the whole reply, its jobs are released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from headway.contract.claims import Claimed
from headway.core.job import JobPolicy
from headway.runtime.records import Record, embedded_json, record
from headway.runtime.timing import Timing
from headway.runtime.worker.worker_options import check_lease
from headway.server.access import needs
from headway.server.bodies.work import ClaimBody
from headway.server.caller import Caller, Permission
from headway.server.long_polling.claiming import (
    LaneSelection,
    LongPoll,
    PollReply,
    check_lanes,
    is_pattern,
)
from headway.server.replies import attribute_docs, disconnected, reply, reply_model
from headway.server.routes.signals import signal_urls
from headway.server.routing import TheService, router
from headway.server.service import Service

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client disconnected before the reply."""


class ClientWatch:
    """Detects that a client disconnects; close it with the request, unless `during` raised.

    Args:
        receive: of a request whose body has been read.
    """

    def __init__(self, receive: Receive) -> None:
        self._watch = asyncio.ensure_future(_until_gone(receive))

    @property
    def is_gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._watch.done()

    async def during(
        self, work: Coroutine[Any, Any, Result], undo: Callable[[Result], None]
    ) -> Result:
        """Run `work` and return its result, unless the client disconnects first.

        Args:
            work: cancelled when the client disconnects.
            undo: called with the result if it cannot be delivered.

        Raises:
            ClientGone: the client disconnected first.
        """
        task = asyncio.ensure_future(work)
        is_answered = False
        try:
            await asyncio.wait((task, self._watch), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                result = task.result()
                is_answered = True
                return result
        finally:
            if not is_answered:
                self.close()
                await _end(task, undo)
        raise ClientGone

    def close(self) -> None:
        """Stop watching."""
        self._watch.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _end(task: asyncio.Future[Result], undo: Callable[[Result], None]) -> None:
    """Cancel work, and undo it if it was completed nevertheless."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and task.exception() is None:
        undo(task.result())


LOOP_TURNS = 3
"""Rounds of the event loop between reading the end of a connection and `ClientWatch.is_gone`."""
WRITE_WITHIN_S = 20.0
"""Seconds in which a reply must be written; shorter than the lease of its jobs."""


class TrackedReply(Response):
    """A reply whose last byte is only sent when the rest is written and the client is connected.

    Without the last byte a client cannot use the reply, so its jobs can be released. Once that
    byte is written, the jobs count as handed out: a later loss in the network is not detected.
    """

    def __init__(
        self,
        content: bytes,
        *,
        watch: ClientWatch,
        timing: Timing,
        on_unread: Callable[[], None],
        on_read: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare the reply.

        Args:
            content: JSON.
            watch: closed when the reply has been written.
            on_unread: called if the reply was not completely written.
            on_read: called if the reply was completely written.
        """
        super().__init__(content, media_type="application/json")
        self._watch = watch
        self._timing = timing
        self._on_unread = on_unread
        self._on_read = on_read
        self.is_whole = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the reply."""
        del scope, receive
        try:
            async with self._timing.limit(WRITE_WITHIN_S):
                await self._write(send)
        except (OSError, TimeoutError):
            # The connection is closed or the client does not read; the last byte is missing.
            return
        finally:
            self._watch.close()
            if not self.is_whole:
                self._on_unread()
        if self.is_whole and self._on_read is not None:
            await self._on_read()

    async def _write(self, send: Send) -> None:
        body = bytes(self.body)
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await send({"type": "http.response.body", "body": body[:-1], "more_body": True})
        # The server waits here until the rest is written or the connection is closed, and does not
        # report which; nor whether it has just read the end of the connection.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        for _ in range(LOOP_TURNS):
            await self._timing.pause(0)
        if self._watch.is_gone:
            return
        await send({"type": "http.response.body", "body": body[-1:], "more_body": False})
        self.is_whole = True


_NOTES = attribute_docs(Claimed)
_AS_JSON: dict[str, Any] = {"args": Any, "policy": reply_model(JobPolicy)}

ClaimedModel = reply(
    "ClaimedJob",
    "A job that starts now.",
    **{
        name: (_AS_JSON.get(name, hint), _NOTES[name])
        for name, hint in get_type_hints(Claimed).items()
    },
    ref=(str, "Reference of the run, `id:run`: a key under which signals find it."),
    signal_url=(str, "URL at which outside systems signal this run; pass it to the provider."),
)
"""A job in the reply to a claim."""


def claimed_record(claimed: Claimed, ref: str, signal_url: str) -> Record:
    """Return the record of a job in the reply to a claim."""
    fields: Record = claimed._asdict()
    fields["args"] = embedded_json(claimed.args)
    fields["policy"] = _policy_record(claimed.policy)
    return {**fields, "ref": ref, "signal_url": signal_url}


@lru_cache(maxsize=256)
def _policy_record(policy: JobPolicy) -> Record:
    return record(policy)


_encode = msgspec.json.Encoder().encode


async def answer_pull(
    service: Service,
    caller: Caller,
    body: ClaimBody,
    request: Request,
    encode: Callable[[PollReply], object],
) -> Response:
    """Claim jobs for a caller, wait if there are none, and return the reply.

    If the client disconnects or does not read the whole reply, its jobs are released.

    Raises:
        Unauthenticated: the token was revoked or expired during the wait.
        Forbidden: a lane is outside the caller's scope, the caller is scoped to tenants, or the
            token was changed during the wait.
        InvalidValue: a value is invalid.
    """
    registry = service.long_polls
    watch = ClientWatch(request.receive)
    try:
        pulled = await watch.during(_pull(service, caller, body, request), registry.give_back)
    except ClientGone:
        return disconnected()
    return TrackedReply(
        _encode(encode(pulled)),
        watch=watch,
        timing=service.timing,
        on_unread=lambda: registry.give_back(pulled),
    )


async def _pull(service: Service, caller: Caller, body: ClaimBody, request: Request) -> PollReply:
    # A claim cannot be limited to tenants: it hands out jobs of all of them.
    caller.every_tenant()
    lanes = check_lanes(body.weighted_lanes)
    for name, _ in lanes:
        if not is_pattern(name):
            caller.check_lane(name)
    pull = LongPoll(
        worker=caller.worker(body.worker),
        wanted=LaneSelection(lanes=lanes, order=body.order, reach=caller.lanes),
        n=body.max,
        free=body.max if body.free is None else body.free,
        lease_ms=check_lease("the lease", body.lease),
        request=body.request,
        after=body.after,
    )
    pulled = await service.long_polls.pull(
        pull, min(body.wait / 1000, service.options.longest_wait_s)
    )
    if pulled.jobs and body.wait:
        try:
            authorization = request.headers.get("authorization")
            await service.tokens.check_again(authorization, caller)
        except BaseException:
            service.long_polls.give_back(pulled)
            raise
    return pulled


ROUTES = router("work")

_REPLY = reply(
    "Claim",
    "The result of a claim.",
    request=(int, "Number of the claim; 0 if none was made in your name."),
    jobs=(list[ClaimedModel], "Jobs, in the order in which to start them."),
    now=(int, "Current time of the store."),
    lease_until=(
        int | None,
        "When your worker's runs expire without a heartbeat, in the store's time; null if no claim "
        "was made.",
    ),
    next_at=(int | None, "When it is worth claiming again; null for not before something happens."),
    again=(bool, "Whether to claim again at once."),
    after=(dict[str, int], "Pass this to your worker's next claim, if you keep it."),
)


@ROUTES.post(
    "/v1/claims",
    summary="Claim jobs",
    response_model=_REPLY,
    openapi_extra={
        "requestBody": {
            "content": {
                "application/json": {
                    "example": {"worker": "worker-1", "lanes": "calls,mail:2", "wait": "25s"}
                }
            }
        }
    },
)
async def claim(
    request: Request,
    service: TheService,
    caller: Annotated[Caller, needs(Permission.WORK)],
    body: ClaimBody,
) -> Response:
    """Start up to `max` jobs, each with all its permits; with `wait`, this is a long poll.

    The jobs are yours until `lease_until`: keep the lease with POST /v1/leases, and report how they
    ended with POST /v1/settlements. Among clients that wait for the same lanes, the one that has
    waited longest is served first. A repeated `request` number returns those jobs of the first
    request that the worker still holds. If the client disconnects before the reply is written, its
    jobs are handed back at once.
    """
    base = str(request.base_url)
    return await answer_pull(
        service, caller, body, request, lambda pulled: _claim_body(service, pulled, base)
    )


def _claim_body(service: Service, pulled: PollReply, base: str) -> dict[str, object]:
    urls, now = signal_urls(service, base), service.timing.wall_at()
    jobs: list[object] = []
    for one in pulled.jobs:
        ref = f"{one.id}:{one.run}"
        jobs.append(claimed_record(one, ref, urls.url(ref, now)))
    return {
        "request": pulled.request,
        "jobs": jobs,
        "now": pulled.now,
        "lease_until": pulled.lease_until,
        "next_at": pulled.next_at,
        "again": pulled.again,
        "after": dict(pulled.after),
    }
