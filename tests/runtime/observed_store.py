"""A real store that notifies a test of each operation, so that tests wait for events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import headway as hw
from headway.contract.definitions import DefineRequest, OpenGate
from headway.contract.operate import ActRequest, Verb
from headway.contract.views import JobQuery
from headway.core.state import FINAL
from headway.runtime import chores
from tests.forwarding import forward_extensions

LIMIT = 120.0
OPERATIONS = frozenset(
    {
        "act",
        "beat",
        "claim",
        "define",
        "enqueue",
        "fire",
        "lead",
        "read",
        "release_permit",
        "restore",
        "settle",
        "signal",
        "sweep",
        "wait",
    }
)


class ObservedStore:
    """Forwards everything; records requests and replies in order."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[tuple[str, Any, Any]] = []
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        forward_extensions(self, inner)

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.inner, name)
        if name not in OPERATIONS:
            return operation

        async def passed_on(*args: Any, **named: Any) -> Any:
            try:
                reply = await operation(*args, **named)
            except BaseException as error:
                self._note(name, args, error)
                raise
            self._note(name, args, reply)
            return reply

        return passed_on

    def _note(self, name: str, args: tuple[Any, ...], reply: Any) -> None:
        if name != "read":
            self.calls.append((name, args[0] if args else None, reply))
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._asked.set)

    def asked(self, name: str) -> list[tuple[Any, Any]]:
        """Return the requests and replies of one operation so far."""
        return [(request, reply) for one, request, reply in list(self.calls) if one == name]

    async def until(self, holds: Callable[[], Awaitable[Any]]) -> Any:
        """Check again after each operation, until a condition holds."""
        async with asyncio.timeout(LIMIT):
            while True:
                self._asked.clear()
                found = await holds()
                if found:
                    return found
                await self._asked.wait()

    async def job(self, job_id: str) -> Any:
        return await self.inner.read(JobQuery(id=job_id))

    async def ends(self, job_id: str) -> Any:
        """Return the job once it is final."""

        async def final() -> Any:
            view = await self.job(job_id)
            return view if view is not None and view.state in FINAL else None

        return await self.until(final)

    async def becomes(self, job_id: str, state: str) -> Any:
        """Return the job once it is in this state."""

        async def there() -> Any:
            view = await self.job(job_id)
            return view if view is not None and view.state == state else None

        return await self.until(there)

    async def open_gate(self, name: str) -> None:
        await self.inner.define(DefineRequest(items=(OpenGate(name=name),), author="tester"))

    async def move(self, verb: Verb, *ids: str) -> list[str]:
        request = ActRequest(
            request=f"{verb}:{ids}", ids=ids, verb=verb, author="tester", reason="a test"
        )
        return [reply.answer for reply in await self.inner.act(request)]


@asynccontextmanager
async def working(app: hw.App, **options: Any) -> AsyncIterator[hw.Worker]:
    """Run a worker meanwhile; an error in the worker itself fails the test."""
    worker = app.worker(**options)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        async with asyncio.timeout(LIMIT):
            await task


def sweep_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers and servers of this process rest for at most 50 ms between two sweeps."""
    rest = 0.05
    monkeypatch.setattr(chores, "LONGEST_REST", rest)
    monkeypatch.setattr(chores, "_longest_rest", lambda sweepers: rest)


def beat_soon(worker: hw.Worker) -> None:
    """Trigger a beat now, as progress does, instead of after the next third of the lease."""
    current: Any = worker._current
    current._context.on_progress()


async def soon(event: asyncio.Event) -> None:
    """Wait for an event, with a limit."""
    async with asyncio.timeout(LIMIT):
        await event.wait()
