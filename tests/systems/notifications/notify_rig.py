"""The complete system: a server, a worker, a directory, and senders controlled by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headway as hw
from headway.bridges.cassandra.link import Link
from headway.contract.definitions import Role
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobView
from headway.runtime.timing import REAL
from headway.runtime.worker.worker import Worker
from headway.systems.directory.database import Directory
from headway.systems.notifications import Notifications, make
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.notification import Channel
from headway.systems.notifications.sender import Accepted, Message, SendResult
from headway.systems.parts import Parts
from headway.systems.pre_send_check import check_before_send
from headway.systems.telephony.providers import read_telephony
from tests.server.rig import Rig, serving

LIMIT_S = 120
"""How long a test waits for an event before it fails."""

Answer = SendResult | Callable[[Message], Awaitable[SendResult]]


@dataclass
class Box:
    """A sender that records messages, and returns the first of `answers`.

    Attributes:
        queue: what it waits for before the final check, such as a connection.
    """

    answers: list[Answer] = field(default_factory=list)
    got: list[Message] = field(default_factory=list)
    ids: bool = True
    queue: Callable[[], Awaitable[None]] | None = None

    async def send(self, message: Message) -> SendResult:
        if self.queue is not None:
            await self.queue()
        await check_before_send()
        self.got.append(message)
        if not self.answers:
            return Accepted(f"p-{message.id}-{len(self.got)}" if self.ids else None)
        answer = self.answers.pop(0)
        return await answer(message) if callable(answer) else answer

    async def close(self) -> None:
        pass


@dataclass(kw_only=True)
class NotifyRig:
    """The complete system.

    Attributes:
        rig: the server.
        system: the system under test.
        app: the App whose store holds the jobs.
        boxes: the senders.
        who: the role in which the server is called.
        workers: the running workers.
    """

    rig: Rig
    system: Notifications
    app: hw.App
    boxes: dict[Channel, Box]
    who: Role | None = None
    workers: dict[Worker, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def context(self) -> NotifyContext:
        return self.system.context

    @property
    def email(self) -> Box:
        return self.boxes[Channel.EMAIL]

    @property
    def sms(self) -> Box:
        return self.boxes[Channel.SMS]

    @property
    def push(self) -> Box:
        return self.boxes[Channel.PUSH]

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return await self.rig.call(self.who, method, path, body, **more)

    async def ok(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        reply = await self.call(method, path, body)
        assert reply.status_code == status, reply.text
        return reply.json() if reply.content else None

    async def ada(self, **more: Any) -> None:
        """Add a recipient with every kind of address."""
        body = {
            "id": "ada",
            "email": "ada@example.org",
            "phone": "+14155550100",
            "devices": ["d1"],
            **more,
        }
        await self.ok("POST", "/recipients", body, 201)

    async def send(self, **more: Any) -> str:
        """Send one notification; return its id."""
        body = {"recipient": "ada", "text": "hello", **more}
        if "channels" not in body:
            body.setdefault("channel", "email")
        reply = await self.call("POST", "/notifications", body)
        assert reply.status_code in {200, 201}, reply.text
        return reply.json()["id"]

    async def get(self, id_: str) -> dict[str, Any]:
        return await self.ok("GET", f"/notifications/{id_}")

    async def job(self, id_: str) -> JobView:
        found = await self.store.read(JobQuery(id=id_))
        assert found is not None
        return found

    async def until(self, fits: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat a query until its result is true; return the result."""
        async with asyncio.timeout(LIMIT_S):
            while not (found := await fits()):
                await REAL.pause(0.01)
            return found

    async def becomes(self, id_: str, status: str) -> dict[str, Any]:
        """Return the notification, once it has this status."""
        told: dict[str, Any] = {}

        async def fits() -> bool:
            nonlocal told
            told = await self.get(id_)
            return told["status"] == status

        try:
            await self.until(fits)
        except TimeoutError:
            message = f"it never came to {status}: {told}"
            raise AssertionError(message) from None
        return told

    def work(self, **options: Any) -> Worker:
        """Run another worker, until it is stopped."""
        worker = self.app.worker(**{"concurrency": 20, "lease": "2s", **options})
        self.workers[worker] = asyncio.create_task(worker.run())
        return worker

    async def stop(self, worker: Worker, *, now: bool = False) -> None:
        worker.stop(now=now)
        await self.workers.pop(worker)


@asynccontextmanager
async def notifying(  # noqa: PLR0913  (what a test may want otherwise)
    tmp_path: Path,
    url: str = "memory://",
    *,
    work: bool = True,
    directory: str = "",
    tokens: bool = False,
    telephony: dict[str, Any] | None = None,
    hooks: dict[str, Any] | None = None,
    cassandra: Link | None = None,
    **settings: Any,
) -> AsyncGenerator[NotifyRig]:
    """Run the complete system until the block exits.

    Args:
        tmp_path: folder for the directory.
        url: URL of the store.
        work: whether a worker runs.
        directory: URL of the directory (default: an SQLite file).
        tokens: whether the server requires tokens.
        telephony: the table [telephony].
        hooks: the table [hooks].
        cassandra: where notifications due far ahead are stored.
        settings: the table [notifications].
    """
    parts = Parts(
        directory=Directory(directory or f"sqlite:///{tmp_path}/directory.db"),
        telephony=read_telephony(telephony or {}),
        cassandra=cassandra,
    )
    boxes = {channel: Box() for channel in Channel}
    system = make(settings, parts, boxes)
    app = hw.App(url)
    system.declare(app)
    async with app, AsyncExitStack() as stack:
        stack.push_async_callback(parts.close)
        rig = await stack.enter_async_context(
            serving(app=app, systems=[system], tokens=tokens, hooks=hooks or {})
        )
        await parts.open(rig.url)
        who = Role.ADMIN if tokens else None
        notify = NotifyRig(rig=rig, system=system, app=app, boxes=boxes, who=who)
        if work:
            notify.work()
        try:
            yield notify
        finally:
            for worker in list(notify.workers):
                await notify.stop(worker)
