"""A caller's service that is queried before a lead is called, on a free port of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headway.runtime.timing import REAL
from headway.server.listener import ListenAddress, Listener


@dataclass(kw_only=True)
class CheckService:
    """The requests made to the service, and its answers.

    Attributes:
        url: URL of the service.
        asked: the request bodies, in order.
        links: the connections on which they arrived.
        answers: a JSON value; a status; bytes; None to hang; or `...` for an answer that arrives
            byte by byte and never ends. The last one repeats.
        held: set once a request hangs.
        silent: called when a request has arrived that will not be answered in time.
    """

    url: str = ""
    asked: list[Any] = field(default_factory=list)
    links: set[Any] = field(default_factory=set)
    answers: list[Any] = field(default_factory=lambda: [{"allowed": True}])
    held: asyncio.Event = field(default_factory=asyncio.Event)
    free: asyncio.Event = field(default_factory=asyncio.Event)
    silent: Callable[[], None] = lambda: None

    async def answer(self, request: Request) -> Response:
        said = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.links.add(request.client)
        self.asked.append(await request.json())
        if said is None:
            self.held.set()
            self.silent()
            await self.free.wait()
            said = {"allowed": True}
        if said is ...:
            self.silent()
            return StreamingResponse(self._drips())
        if isinstance(said, bytes):
            return Response(said)
        return Response(status_code=said) if isinstance(said, int) else JSONResponse(said)

    async def _drips(self) -> AsyncIterator[bytes]:
        while not self.free.is_set():
            yield b" "
            await REAL.wait(self.free, 0.01)


@asynccontextmanager
async def check_service() -> AsyncIterator[CheckService]:
    """Run the service until the block exits."""
    far = CheckService()
    app = Starlette(routes=[Route("/check", far.answer, methods=["POST"])])
    listener = Listener(app, ListenAddress(port=0))
    running = asyncio.create_task(listener.run())
    await listener.answers()
    far.url = f"{listener.url}/check"
    try:
        yield far
    finally:
        far.free.set()
        listener.stop(now=True)
        await running
