"""An HTTP client of the system, as in any language."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx

from headway.systems.lanes import make
from tests.server.rig import LIMIT_S, Rig, serving


class Queue:
    """Calls the routes of the system.

    Args:
        http: a client with the server's address.
        token: sent with each call; None for no token.
    """

    def __init__(self, http: httpx.AsyncClient, token: str | None = None) -> None:
        self.http = http
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.http.post(path, json=body, headers=self._headers)

    async def get(self, path: str, **params: Any) -> Any:
        reply = await self.http.get(path, params=params, headers=self._headers)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def enqueue(self, lane: str = "mail", **job: Any) -> str:
        """Create a job; return its id."""
        reply = await self.post("/enqueue", **{"lane": lane, "type": "t", **job})
        assert reply.status_code == 201, reply.text
        return reply.json()["job_id"]

    async def pull(self, lanes: Any = "mail", **body: Any) -> list[dict[str, Any]]:
        """Pull jobs as the worker w."""
        reply = await self.post("/pull", **{"worker": "w", "lanes": lanes, "max": 100, **body})
        assert reply.status_code == 200, reply.text
        return reply.json()["jobs"]

    async def say(self, path: str, job: Mapping[str, Any], **more: Any) -> httpx.Response:
        """Report the outcome of a pulled job."""
        which = {"job_id": job["job_id"], "run": job["run"]}
        return await self.post(path, **{"worker": "w", **which, **more})

    async def said(self, path: str, job: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Report the outcome of a pulled job; it must be accepted."""
        reply = await self.say(path, job, **more)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def status(self, job_id: str) -> str:
        return (await self.get(f"/jobs/{quote(job_id, safe='')}"))["status"]

    async def lane(self, name: str = "mail") -> dict[str, Any]:
        (found,) = (await self.get("/lanes", lane=name))["lanes"]
        return found


@asynccontextmanager
async def queueing(
    settings: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[Rig, Queue]]:
    """Run an open server with the system, and yield a client."""
    async with serving(systems=[make(settings or {})], tokens=False, **options) as rig:
        yield rig, Queue(rig.http)


@asynccontextmanager
async def calling(url: str) -> AsyncIterator[Queue]:
    """Yield a client of a server that runs elsewhere."""
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as http:
        yield Queue(http)
