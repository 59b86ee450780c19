"""The latency that each lane achieves, next to its target."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

import headway as hw
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DeclareLane,
    DefineRequest,
    Item,
    LaneSpec,
)
from headway.contract.outcomes import Failed, SettleRequest, Succeeded
from headway.contract.views import JobsQuery
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import NewJob
from headway.runtime.latency import NEWEST, RECENT_MS, LaneLatency, lane_latencies
from headway.stores.memory.store import MemoryStore
from headway.testing.clock import FakeClock
from tests.runtime.observed_store import ObservedStore, working

TARGET_MS = 5_000


class Rig:
    """A store whose clock stands still until a test advances it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self._made = self._claims = 0

    async def define(self, *items: Item) -> None:
        await self.store.define(DefineRequest(items=items, author="tester"))

    async def send(self, count: int = 1, lane: str = "mail", **fields: object) -> list[str]:
        jobs: list[NewJob] = []
        for _ in range(count):
            self._made += 1
            one = {"id": str(UUID(int=self._made)), "kind": "k", "lane": lane, **fields}
            jobs.append(NewJob(**one))  # type: ignore[arg-type]  (any field)
        return [reply.id for reply in await self.store.enqueue(jobs)]

    async def start(self, n: int = 1, lane: str = "mail", *, fail: bool = False) -> int:
        """Start and settle jobs; return how many."""
        self._claims += 1
        request = ClaimRequest(
            worker="w", request=self._claims, lanes=((lane, 1),), n=n, free=n, lease_ms=10**9
        )
        jobs = (await self.store.claim(request)).jobs
        ends = tuple(
            Failed(one.id, one.run, after_ms=0) if fail else Succeeded(one.id, one.run)
            for one in jobs
        )
        await self.store.settle(SettleRequest(worker="w", outcomes=ends))
        return len(jobs)

    async def latency(self) -> LaneLatency:
        (found,) = await lane_latencies(self.store, ["mail"])
        return found


@pytest.fixture
async def rig() -> Rig:
    rig = Rig()
    await rig.define(DeclareLane(spec=LaneSpec(name="mail", target_ms=TARGET_MS)))
    return rig


async def test_waits_of_first_starts_are_ranked(rig: Rig) -> None:
    for _ in range(20):
        await rig.send()
        rig.clock.advance(100)
    assert await rig.start(20) == 20
    found = await rig.latency()
    assert (found.starts, found.p50_ms, found.p95_ms, found.max_ms) == (20, 1_000, 1_900, 2_000)
    assert (found.head_ms, found.handlers_missing, found.breached) == (None, False, False)


async def test_lane_without_starts_has_no_figures(rig: Rig) -> None:
    found = await rig.latency()
    assert (found.starts, found.p50_ms, found.p95_ms, found.max_ms) == (0, None, None, None)
    assert not found.breached


async def test_p95_above_the_target_is_a_breach_and_at_it_is_none(rig: Rig) -> None:
    await rig.send()
    rig.clock.advance(TARGET_MS)
    await rig.start()
    assert not (await rig.latency()).breached
    await rig.send()
    rig.clock.advance(TARGET_MS + 1)
    await rig.start()
    assert (await rig.latency()).breached


async def test_only_the_newest_hundred_starts_of_the_last_hour_count(rig: Rig) -> None:
    await rig.send(5)
    rig.clock.advance(60_000)
    await rig.start(5)
    await rig.send(NEWEST)
    await rig.start(NEWEST)
    found = await rig.latency()
    assert (found.starts, found.max_ms) == (NEWEST, 0)
    rig.clock.advance(RECENT_MS + 1)
    assert (await rig.latency()).starts == 0


async def test_busy_lane_leaves_the_others_their_starts(rig: Rig) -> None:
    await rig.send(3, "quiet")
    rig.clock.advance(5)
    await rig.start(3, "quiet")
    for _ in range(6):
        await rig.send(100)
        await rig.start(100)
    mail, quiet = await lane_latencies(rig.store, ["mail", "quiet"])
    assert (mail.starts, mail.max_ms) == (100, 0)
    assert (quiet.starts, quiet.max_ms) == (3, 5)


def observe_listings(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[JobsQuery]:
    """Return a list that the store's listings of jobs are added to."""
    listings: list[JobsQuery] = []
    read = rig.store.read

    async def observed(query: Any) -> Any:
        if isinstance(query, JobsQuery):
            listings.append(query)
        return await read(query)

    monkeypatch.setattr(rig.store, "read", observed)
    return listings


async def test_many_lanes_are_listed_together(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing of one lane examines as many jobs as a listing of all."""
    lanes = [f"lane {number}" for number in range(40)]
    for lane in lanes:
        await rig.send(40, lane)
        await rig.start(40, lane)
    for _ in range(12):
        await rig.send(100)
        await rig.start(100)
    listings = observe_listings(rig, monkeypatch)
    found = await lane_latencies(rig.store, [*lanes, "mail"])
    assert [one.starts for one in found] == [40] * 40 + [NEWEST]
    assert len(listings) == 6


async def test_backlog_is_examined_once_for_all_lanes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = [f"lane {number}" for number in range(12)]
    for lane in lanes:
        await rig.send(1, lane)
        await rig.start(1, lane)
    for _ in range(6):
        await rig.send(1_000)
    listings = observe_listings(rig, monkeypatch)
    await lane_latencies(rig.store, lanes)
    assert len(listings) == 1


async def test_second_attempt_is_no_first_start(rig: Rig) -> None:
    await rig.send()
    await rig.start(fail=True)
    rig.clock.advance(60_000)
    await rig.start()
    found = await rig.latency()
    assert (found.starts, found.max_ms) == (1, 0)


async def test_job_due_before_its_arrival_has_waited_since_its_arrival(rig: Rig) -> None:
    await rig.send(due_at=rig.clock.at - 60_000)
    assert (await rig.latency()).breached is False
    rig.clock.advance(7)
    await rig.start()
    assert (await rig.latency()).max_ms == 7


async def test_head_that_waits_longer_than_the_target_for_a_handler_is_a_breach(
    rig: Rig,
) -> None:
    await rig.send()
    rig.clock.advance(TARGET_MS)
    assert not (await rig.latency()).breached
    rig.clock.advance(1)
    found = await rig.latency()
    assert (found.head_ms, found.handlers_missing, found.breached) == (TARGET_MS + 1, True, True)


async def test_head_behind_a_closed_gate_does_not_wait_for_a_handler(rig: Rig) -> None:
    await rig.define(DeclareGate(spec=Slots("line", 0)))
    await rig.send(gates=(GateUse(name="line", template="line", shared=True),))
    rig.clock.advance(TARGET_MS + 1)
    found = await rig.latency()
    assert (found.head_ms, found.handlers_missing, found.breached) == (TARGET_MS + 1, False, False)


async def test_head_among_any_number_of_other_jobs_is_found(rig: Rig) -> None:
    await rig.define(DeclareGate(spec=Slots("line", 0)))
    for _ in range(6):
        await rig.send(1_000, "other")
    await rig.send(gates=(GateUse(name="line", template="line", shared=True),))
    for _ in range(6):
        await rig.send(1_000, "other")
    rig.clock.advance(TARGET_MS + 1)
    found = await rig.latency()
    assert (found.head_ms, found.handlers_missing, found.breached) == (TARGET_MS + 1, False, False)


async def test_head_in_a_paused_lane_does_not_wait_for_a_handler(rig: Rig) -> None:
    await rig.define(CloseGate(name="lane:mail"))
    await rig.send()
    rig.clock.advance(TARGET_MS + 1)
    assert not (await rig.latency()).breached


async def test_head_behind_the_lanes_own_concurrency_waits_for_a_handler(rig: Rig) -> None:
    spec = LaneSpec(name="mail", target_ms=TARGET_MS, concurrency=1)
    await rig.define(DeclareLane(spec=spec))
    await rig.send(2)
    request = ClaimRequest(worker="v", request=1, lanes=(("mail", 1),), n=2, lease_ms=10**9)
    assert len((await rig.store.claim(request)).jobs) == 1
    rig.clock.advance(TARGET_MS + 1)
    assert (await rig.latency()).handlers_missing


async def test_lane_without_a_target_is_never_in_breach(rig: Rig) -> None:
    await rig.send(lane="other")
    rig.clock.advance(10**9)
    other, mail = sorted(await lane_latencies(rig.store), key=lambda one: one.lane != "other")
    assert (other.lane, other.target_ms, other.head_ms, other.breached) == (
        "other",
        None,
        10**9,
        False,
    )
    assert mail.lane == "mail"


async def test_every_store_reports_the_latency_of_a_lane(app: hw.App, store: ObservedStore) -> None:
    app.lane("mail", target="1h")

    @app.job(lane="mail")
    async def send(job: hw.Job) -> None: ...

    sent = await app.send_many_async(send.make() for _ in range(3))
    async with working(app):
        for one in sent:
            await store.ends(one.id)
    await app.send_async(send)
    (found,) = await lane_latencies(store.inner)
    assert (found.lane, found.target_ms, found.starts) == ("mail", 3_600_000, 3)
    assert found.p95_ms is not None
    assert found.head_ms is not None
    assert not found.breached
