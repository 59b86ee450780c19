"""The screen of `headway top` over real stores, driven by its keys; time does not pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from textual.pilot import Pilot
from textual.strip import Strip

from headway.cli.terminal import LocalClock
from headway.cli.top.screen import Top
from headway.cli.top.snapshot import ServerQueries, SnapshotReader, StoreQueries
from headway.client.address import read_address
from headway.client.remote_store import RemoteStore
from headway.contract.claims import Claimed, ClaimRequest
from headway.contract.definitions import DeclareGate, DeclareLane, DefineRequest, LaneSpec, Role
from headway.contract.outcomes import Died, SettleRequest
from headway.contract.store import Store
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import NewJob
from headway.runtime.timing import REAL, Timing
from headway.stores import open_store
from headway.testing.clock import FakeClock
from tests.server.rig import serving

WORKER = "w" * 32
LINE = GateUse(name="line", template="line", shared=True)
PLACES = ("memory", "sqlite", "server")


class StandingStill(Timing):
    """The screen refreshes once; each further refresh is started by the test."""

    async def pause(self, seconds: float) -> None:
        await asyncio.Event().wait()

    def monotonic(self) -> float:
        return 0.0


@dataclass
class Driven:
    """An open screen.

    Attributes:
        store: the store behind the screen, accessed directly.
        clock: clock of the store, if the store is in this process.
    """

    app: Top
    pilot: Pilot[None]
    store: Store
    clock: FakeClock

    async def press(self, *keys: str) -> None:
        """Press keys, and wait until the actions that they started are done and drawn."""
        for key in keys:
            await self.pilot.press(key)
            await self.rest()

    async def reload(self) -> None:
        await self.app.reload()
        await self.pilot.pause()

    async def rest(self) -> None:
        while begun := [one for one in self.app.workers if one.group == "act"]:
            await asyncio.gather(*(one.wait() for one in begun))
        await self.pilot.pause()

    @property
    def strips(self) -> list[Strip]:
        """The screen, as it is drawn."""
        return self.app.screen._compositor.render_strips()

    @property
    def lines(self) -> list[str]:
        """The screen, as a text for each line."""
        return ["".join(segment.text for segment in strip) for strip in self.strips]

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


@asynccontextmanager
async def place(kind: str, clock: FakeClock, path: object) -> AsyncIterator[tuple[Store, Store]]:
    """Yield a store as the screen accesses it, and the same store accessed directly."""
    async with AsyncExitStack() as stack:
        if kind == "server":
            rig = await stack.enter_async_context(serving())
            address = read_address(rig.url, rig.tokens[Role.OPERATOR])
            remote = RemoteStore(address, patience_s=0.0)
            stack.push_async_callback(remote.close)
            yield remote, rig.store  # type: ignore[misc]  (enough for the screen)
            return
        store = open_store(
            "memory://" if kind == "memory" else f"sqlite:///{path}/t.db", clock=clock
        )
        stack.push_async_callback(store.close)
        yield store, store


def reader_of(store: Store, *, timing: Timing = REAL) -> SnapshotReader:
    """Return a reader as the command creates it: on a server, the server does the searches."""
    queries = ServerQueries(store.ask) if isinstance(store, RemoteStore) else StoreQueries(store)
    return SnapshotReader(store, queries, timing=timing)


@asynccontextmanager
async def driven(
    screen_store: Store,
    store: Store | None = None,
    *,
    clock: FakeClock | None = None,
    size: tuple[int, int] = (80, 24),
    name: str = "memory://",
) -> AsyncIterator[Driven]:
    """Open the screen over a store; yield it after its first refresh."""
    app = Top(
        screen_store,
        reader_of(screen_store, timing=StandingStill()),
        name=name,
        author="ann",
        clock=LocalClock("Europe/Berlin"),
        timing=StandingStill(),
    )
    async with app.run_test(size=size) as pilot:
        one = Driven(app, pilot, store or screen_store, clock or FakeClock())
        await one.reload()
        yield one


async def declare(store: Store) -> None:
    """Declare gates of each kind, and a lane with a target."""
    gates = (Slots("line", 2), Rate("sms", 7, "1h"), Pool("numbers", {"+1555": 2, "+1666": 1}))
    lane = DeclareLane(spec=LaneSpec(name="calls", target_ms=5_000))
    items = (*(DeclareGate(spec=one) for one in gates), lane)
    await store.define(DefineRequest(items=items, author="code"))


async def enqueue(store: Store, n: int = 1, **fields: object) -> list[str]:
    jobs = [NewJob(**{"id": str(uuid4()), "kind": "ring", **fields}) for _ in range(n)]  # type: ignore[arg-type]
    return [one.id for one in await store.enqueue(jobs)]


async def claim(
    store: Store, lane: str, n: int = 1, *, request: int = 1, worker: str = WORKER
) -> list[Claimed]:
    lanes = ((lane, 1),)
    asked = ClaimRequest(worker=worker, request=request, lanes=lanes, n=n, free=n, lease_ms=600_000)
    return (await store.claim(asked)).jobs


async def die(store: Store, job: Claimed, error: str) -> None:
    outcome = Died(job=job.id, run=job.run, reason="failed", error=error)
    await store.settle(SettleRequest(worker=WORKER, outcomes=(outcome,)))
