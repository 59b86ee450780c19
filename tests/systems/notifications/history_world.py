"""Notifications that end, a history, and processes that can be killed between any two steps.

The clock stands still. A process is driven step by step: it performs the system's operations on the
store and on Cassandra, without the threads and pauses of a worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import uuid4

import headway as hw
from headway.bridges.cassandra.link import CassandraSettings, Cql, Link, RowPage, Rows, Values
from headway.contract.claims import ClaimRequest
from headway.contract.operate import ActRequest, Verb
from headway.contract.outcomes import (
    Died,
    HandedOver,
    Outcome,
    SettleRequest,
    Snoozed,
    Succeeded,
)
from headway.contract.signals import Signal
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobView
from headway.core.job import DAY_MS, NewJob
from headway.core.state import State
from headway.runtime.handler_results import Snooze
from headway.runtime.job import Job
from headway.runtime.timing import Timing
from headway.stores.memory.store import MemoryStore
from headway.systems.directory.database import Directory
from headway.systems.notifications import make
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.history import ENDED
from headway.systems.notifications.listings import NotificationsParams, Timeline, timeline
from headway.systems.notifications.notification import (
    HISTORY_LANE,
    NOTIFICATION,
    Channel,
    SendRecord,
    Status,
    body_of,
)
from headway.systems.parts import Parts
from headway.systems.telephony.providers import read_telephony
from headway.testing.clock import FakeClock
from headway.testing.faulty import StoreProxy
from tests.bridges.cassandra.fake_link import FakeLink
from tests.bridges.cassandra.world import SETTINGS
from tests.systems.notifications.notify_rig import Box

KEPT = SETTINGS.model_copy(update={"history": True})
KEEP_MS = 30 * DAY_MS
LEASE_MS = 30_000


class Killed(Exception):
    """The process was killed here; no caller mistakes this for a result."""


class ByClock(Timing):
    """The clock of a process: the test's clock."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def wall_at(self) -> int:
        return self.clock()


class Process(StoreProxy):
    """A process that can be made to die at the nth seam.

    There is a seam before and after each store operation and each statement.

    Attributes:
        context: context of the system in this process.
        dies_at: the seam at which it dies; None for never.
        seam: number of the next seam.
    """

    def __init__(self, inner: Store, link: Link, timing: Timing, dies_at: int | None) -> None:
        super().__init__(inner)
        self.link = link
        self.dies_at = dies_at
        self.seam = 0
        self.name = uuid4().hex
        self.claims = 0
        parts = Parts(
            directory=Directory("sqlite:///never-opened.db"),
            telephony=read_telephony({}),
            cassandra=cast("Link", self),
            timing=timing,
        )
        system = make({"keep": f"{KEEP_MS}ms"}, parts, {one: Box() for one in Channel})
        self.context: NotifyContext = system.context
        self.counted: list[tuple[str, ...]] = []
        self.context.tally.happened = lambda *what: self.counted.append(what)  # type: ignore[assignment, misc]
        system.declare(hw.App(store=self))

    @property
    def settings(self) -> CassandraSettings:
        return self.link.settings

    def _step(self) -> None:
        if self.dies_at is not None and self.seam >= self.dies_at:
            raise Killed
        self.seam += 1

    async def _call(self, name: str, operation: Callable[[], Awaitable[Any]]) -> Any:
        del name
        self._step()
        done = await operation()
        self._step()
        return done

    async def run(self, statement: Cql, values: Values = (), after: bytes | None = None) -> RowPage:
        return await self._call("run", lambda: self.link.run(statement, values, after))

    async def run_many(self, statement: Cql, each: Iterable[Values]) -> list[Rows]:
        return [(await self.run(statement, values)).rows for values in each]

    async def claim_one(self, lane: str) -> Any:
        """Claim the next job of a lane; return None if no job can start there."""
        self.claims += 1
        request = ClaimRequest(
            worker=self.name, request=self.claims, lanes=((lane, 1),), lease_ms=LEASE_MS
        )
        found = (await self.claim(request)).jobs
        return found[0] if found else None

    async def write(self) -> int:
        """Run the history's jobs until none can start; return how many ran."""
        await self.sweep(100)
        done = 0
        while (claimed := await self.claim_one(HISTORY_LANE)) is not None:
            assert claimed.kind == ENDED
            task = Job(claimed, cast("Any", None))
            handler = self.context.app.kind(ENDED).handlers[""]
            said = await cast("Awaitable[Snooze | None]", handler.call(task, claimed.args))
            _, close = task.take_follow()
            outcome: Outcome = Succeeded(claimed.id, claimed.run)
            if said is not None:
                outcome = Snoozed(claimed.id, claimed.run, until_at=said.until_at)
            outcome = replace(outcome, close=close)
            await self.settle(SettleRequest(worker=self.name, outcomes=(outcome,)))
            done += 1
        return done


@dataclass
class HistoryWorld:
    """A store, a Cassandra, and a clock for both."""

    clock: FakeClock = field(default_factory=FakeClock)
    link: Any = field(default_factory=lambda: FakeLink(KEPT))

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)

    def process(self, dies_at: int | None = None) -> Process:
        return Process(self.store, self.link, ByClock(self.clock), dies_at)

    def notification(self, process: Process, **more: Any) -> NewJob:
        kind = process.context.app.kind(NOTIFICATION)
        made = kind.make(
            lane=Channel.EMAIL.lane,
            subject="ada",
            channels=["email"],
            category="news",
            level="normal",
            text="hello",
        )
        given: dict[str, Any] = {"stage": "email", "gates": (), "due_at": self.clock(), **more}
        return made.changed(**given)

    async def view(self, id_: str) -> JobView | None:
        return await self.store.read(JobQuery(id=id_))

    def rows(self) -> list[tuple[str, str]]:
        """Return the ids and statuses in the history."""
        parts = self.link.history.values()
        return [(id_, row[0]) for part in parts for (_, id_), row in part.items()]

    async def forget(self) -> None:
        """Let the store forget ended jobs once their retention is over."""
        self.clock.advance(KEEP_MS + 1)
        await self.store.sweep(1_000)

    async def page(self, cursor: str | None = None, limit: int = 100, **more: Any) -> Timeline:
        process = self.process()
        asked = NotificationsParams(newest=True, cursor=cursor, limit=limit, **more)
        return await timeline(self.store, process.context.history, "ada", asked, self.clock())


End = Callable[[Process, str], Awaitable[None]]


async def is_sent(process: Process, id_: str) -> None:
    """Let the provider accept it and report nothing more; repeated after a crash on the way."""
    claimed = await process.claim_one(Channel.EMAIL.lane)
    if claimed is not None and claimed.id == id_:
        handed = HandedOver(id_, claimed.run, key=f"{id_}:{claimed.run}", timeout_ms=DAY_MS)
        await process.settle(SettleRequest(worker=process.name, outcomes=(handed,)))
    job = await process.read(JobQuery(id=id_))
    if job is not None and job.state is State.AWAITING:
        said = body_of(SendRecord(status=Status.SENT, channel="email"))
        await process.signal(Signal(key=f"{id_}:{job.run}", event="sent", body=said))


async def is_refused(process: Process, id_: str) -> None:
    """Let its worker report that it cannot be sent."""
    claimed = await process.claim_one(Channel.EMAIL.lane)
    if claimed is not None:
        died = Died(id_, claimed.run, reason="550")
        await process.settle(SettleRequest(worker=process.name, outcomes=(died,)))


async def is_cancelled(process: Process, id_: str, verb: Verb = Verb.CANCEL) -> None:
    """Let an operator cancel it."""
    request = ActRequest(request=uuid4().hex, ids=(id_,), verb=verb, author="ada")
    await process.act(request)


async def is_expired(process: Process, id_: str) -> None:
    """Let it expire; a sweep ends it."""
    del id_
    process.context.timing.clock.advance(3_600_000)  # type: ignore[attr-defined]
    await process.sweep(100)
