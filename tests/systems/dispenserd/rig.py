"""Headway's dispenserd in this process, on a free port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from headway.runtime.timing import REAL
from headway.server.build import alive
from headway.server.listener import ListenAddress, Listener
from headway.server.service import ServerOptions, Service
from headway.stores import open_store
from headway.systems.lanes.dispenserd import dispenserd


class Rig:
    def __init__(self, url: str, service: Service, http: httpx.AsyncClient) -> None:
        self.url = url
        self.service = service
        self.http = http

    async def post(self, path: str, said: Any = None) -> Any:
        """Return the reply to a POST; it must be 200."""
        content = None if said is None else json.dumps(said)
        reply = await self.http.post(path, content=content)
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"] == "application/json"
        return reply.json()

    async def get(self, path: str) -> Any:
        reply = await self.http.get(path)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def schedule(self, message: str, **more: Any) -> None:
        said = await self.post("/schedule", {"message": message, **more})
        assert said == {"status": "ok", "code": 0}

    async def messages(self, lane: str = "main") -> list[str]:
        return [job["message"] for job in (await self.get("/jobs"))[lane]]

    async def connect(self, path: str, said: Any = None) -> asyncio.StreamWriter:
        """Open a request on a connection of its own, which can be cut."""
        at = urlsplit(self.url)
        _, writer = await asyncio.open_connection(at.hostname, at.port)
        body = b"" if said is None else json.dumps(said).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        return writer

    async def receivers(self, count: int) -> None:
        """Return when this many receivers wait."""
        async with asyncio.timeout(120):
            while len(self.service.long_polls) != count:
                await REAL.pause(0.001)


@asynccontextmanager
async def serving(store_url: str) -> AsyncIterator[Rig]:
    store = open_store(store_url)
    service = Service(store, ServerOptions(open_here=True))
    listener = Listener(dispenserd(service), ListenAddress(port=0), on_stop=service.begin_stop)
    async with alive(service), httpx.AsyncClient(base_url=listener.url, timeout=30) as http:
        running = asyncio.create_task(listener.run())
        await listener.answers()
        yield Rig(listener.url, service, http)
        await http.aclose()
        listener.stop()
        await running
    await store.close()
