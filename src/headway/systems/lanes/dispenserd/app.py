"""The ASGI app: five routes, any method, and the status for all other paths."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from importlib import metadata

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from headway.core.errors import HeadwayError, StoreError
from headway.core.instant import format_instant
from headway.server.long_polling.delivery import ClientGone, ClientWatch, TrackedReply
from headway.server.middleware.body_limit import BodyLimit
from headway.server.middleware.checks import CrossSiteCheck, SecurityHeaders
from headway.server.middleware.requests import AccessLog, RequestId
from headway.server.replies.problem import status_of
from headway.server.replies.reply import disconnected
from headway.server.service import Service
from headway.systems.lanes.dispenserd.queue import Queue, Received
from headway.systems.lanes.dispenserd.requests import read_lane, read_scheduling

NAME = "dispenserd"
DONE, WRONG, EMPTY = 0, 1, 2
"""The codes of replies."""

_log = structlog.stdlib.get_logger("headway.dispenserd")


def dispenserd(service: Service) -> Starlette:
    """The app.

    Args:
        service: whose store keeps the jobs, and in whose registry receivers wait.

    Returns:
        An ASGI app without a lifespan; the service is the caller's to start and close.
    """
    options = service.options
    guards = [
        Middleware(RequestId),
        Middleware(SecurityHeaders),
        Middleware(AccessLog, timing=service.timing),
        Middleware(CrossSiteCheck, hosts=options.hosts),
        Middleware(
            BodyLimit, most=options.max_body, seconds=options.body_timeout_s, timing=service.timing
        ),
    ]
    return Starlette(routes=[Mount("/", _Dispenserd(service))], middleware=guards)


class _Dispenserd:
    """Answers requests."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._queue = Queue(service.store, service.long_polls, service.timing)
        self._routes: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/jobs": self._jobs,
            "/schedule": self._schedule,
            "/receive_block": self._receive_block,
            "/receive_noblock": self._receive_noblock,
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

    async def _receive_block(self, request: Request) -> Response:
        return await self._receive(request, block=True)

    async def _receive_noblock(self, request: Request) -> Response:
        return await self._receive(request, block=False)

    async def _receive(self, request: Request, *, block: bool) -> Response:
        lane = read_lane(await request.body())
        presence = ClientWatch(request.receive)
        work = self._queue.receive(lane, block=block)
        received = await presence.during(work, self._queue.put_back)
        if received is not None:
            return self._handed(received, presence)
        presence.close()
        if block:
            # Only the server's stop ends a blocking wait without a job.
            return _reply({"status": "error", "code": WRONG, "message": "stopping"}, 503)
        return _reply({"status": "ok", "code": EMPTY, "message": "empty queue"})

    def _handed(self, received: Received, presence: ClientWatch) -> Response:
        said = {"status": "ok", "code": DONE, "message": received.message}

        async def read() -> None:
            try:
                await self._queue.done(received)
            except StoreError as error:
                _log.warning("received, and may be handed out again", error=str(error))

        return TrackedReply(
            _json(said),
            presence=presence,
            timing=self._service.timing,
            unread=lambda: self._queue.put_back(received),
            read=read,
        )


def _refusal(error: HeadwayError) -> Response:
    status = status_of(error)
    if status == 500:
        _log.error("a request failed", exc_info=error)
    text = error.message if status != 500 else "the server met something it did not expect"
    # Wrong values are all the same to its clients, who know no other status.
    return _reply(
        {"status": "error", "code": WRONG, "message": text}, 400 if status == 422 else status
    )


def _reply(said: object, status: int = 200) -> Response:
    return Response(_json(said), status_code=status, media_type="application/json")


def _json(said: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(said), indent=2)
