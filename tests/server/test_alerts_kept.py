"""Alerts outlive a server: they are not sent twice, and their recovery is still reported."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.contract.claims import BeatRequest, ClaimRequest
from headway.contract.outcomes import Died, SettleRequest
from headway.runtime.timing import Timing
from headway.server.alerts.engine import AlertSettings, engine_rule_set
from headway.server.alerts.rule_set import Alerts
from headway.server.alerts.rules import Severity
from headway.server.alerts.watch import AGAIN_MS, CALM_MS, AlertWatcher
from headway.stores import open_store
from headway.systems.directory.alert_storage import SCHEMA, AlertTable
from headway.systems.directory.database import Directory
from headway.testing.clock import FakeClock
from headway.testing.faulty import Fault, FaultyStore
from tests.server.test_alerts import RecordingSink

MINUTE = 60_000
TERM = 3 * MINUTE
"""The longest time after a leader stops until another server leads."""
WALL_AT = 1_800_000_000_000


class Clocks(Timing):
    """The clocks of one process: its monotonic clock starts at an arbitrary value."""

    def __init__(self, world: World, begins_s: float) -> None:
        self._world = world
        self._begins_s = begins_s

    def monotonic(self) -> float:
        return self._begins_s + self._world.passed_ms / 1000

    def wall_at(self) -> int:
        return WALL_AT + self._world.passed_ms


class Server:
    """A server that sends alerts."""

    def __init__(self, world: World, begins_s: float, **settings: Any) -> None:
        read = AlertSettings.model_construct(**settings)
        alerts = Alerts()
        alerts.off, alerts.storage = read.off, world.storage
        self.told = RecordingSink()
        self.world = world
        self.watch = AlertWatcher(
            world.store,
            Clocks(world, begins_s),
            rule_sets=[engine_rule_set(read)],
            alerts=alerts,
            sinks=[self.told],
            each_ms=read.each_ms,
        )

    async def check(self, after_ms: int = 0) -> list[tuple[str, str, bool]]:
        self.world.passed_ms += after_ms
        self.world.clock.advance(after_ms)
        await self.watch.check()
        return self.told.take()


class World:
    """A store, a directory, and a clock for both."""

    def __init__(self, directory: Directory) -> None:
        self.passed_ms = 0
        self.clock = FakeClock()
        self.store = FaultyStore(open_store("memory://", clock=self.clock))
        self.app = hw.App(store=self.store)
        self.storage = AlertTable(directory)
        self._begun = 0

    def server(self, **settings: Any) -> Server:
        """Start a server now."""
        self._begun += 1
        return Server(self, self._begun * 10_000.0, **settings)

    async def works(self) -> None:
        """Let a worker serve the lane from now on."""
        beat = BeatRequest(worker="w", lanes=("calls",), lease_ms=1_000 * MINUTE)
        await self.store.beat(beat)

    async def die(self, request: int) -> None:
        """Let a job of the lane die."""
        await self.app.send_async("noop", lane="calls")
        asked = ClaimRequest(worker="w", request=request, lanes=(("calls", 1),), lease_ms=MINUTE)
        (job,) = (await self.store.claim(asked)).jobs
        await self.store.settle(
            SettleRequest(worker="w", outcomes=(Died(job.id, job.run, reason="x"),))
        )


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Directory]:
    made = Directory(f"sqlite:///{tmp_path}/directory.db")
    made.needs(SCHEMA)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def world(directory: Directory) -> AsyncIterator[World]:
    made = World(directory)
    yield made
    await made.store.inner.close()


NO_WORKER = ("no_worker", "calls", False)
HEALED = ("no_worker", "calls", True)


async def a_server_that_alerted(world: World) -> Server:
    """Return a server that has just reported that no worker serves a lane."""
    await world.app.send_async("noop", lane="calls")
    server = world.server()
    assert await server.check() == []
    assert await server.check(MINUTE) == [NO_WORKER]
    return server


async def test_standing_alert_is_not_repeated_after_a_restart(world: World):
    await a_server_that_alerted(world)
    restarted = world.server()
    assert await restarted.check(TERM) == []
    # It is repeated when it would have been repeated without the restart.
    again_ms = AGAIN_MS[Severity.P1]
    # Nor is it reported as over because the rule would have to see the condition persist again.
    assert await restarted.check(CALM_MS) == []
    assert await restarted.check(again_ms - TERM - CALM_MS - 1) == []
    assert await restarted.check(1) == [NO_WORKER]


async def test_alert_that_healed_during_a_restart_is_healed_once(world: World):
    await a_server_that_alerted(world)
    await world.works()
    restarted = world.server()
    assert await restarted.check(TERM) == []
    assert await restarted.check(CALM_MS) == [HEALED]
    third = world.server()
    assert await third.check(TERM) == []
    assert await third.check(CALM_MS) == []


async def test_calm_before_a_restart_does_not_count(world: World):
    server = await a_server_that_alerted(world)
    await world.works()
    assert await server.check() == []
    restarted = world.server()
    assert await restarted.check(TERM) == []
    assert await restarted.check(CALM_MS - 1) == []
    assert await restarted.check(1) == [HEALED]


async def test_unsent_alert_must_last_again_after_a_restart(world: World):
    await world.app.send_async("noop", lane="calls")
    assert await world.server().check() == []
    restarted = world.server()
    assert await restarted.check(TERM) == []
    assert await restarted.check(MINUTE - 1) == []
    assert await restarted.check(1) == [NO_WORKER]


async def test_jobs_that_died_before_and_during_a_restart_count(world: World):
    server = world.server(dead_jobs_more_than=1)
    await world.works()
    assert await server.check() == []
    await world.die(1)
    assert await server.check() == []
    await world.die(2)
    restarted = world.server(dead_jobs_more_than=1)
    assert await restarted.check(TERM) == [("dead_jobs", "calls", False)]
    # The first dead job is no longer new: 15 minutes have passed since it was seen.
    third = world.server(dead_jobs_more_than=1)
    assert await third.check(15 * MINUTE - TERM) == []
    assert await third.check(1) == []
    assert await third.check(CALM_MS) == [("dead_jobs", "calls", True)]


async def test_new_leader_continues_with_the_alerts_of_the_previous_one(world: World):
    first = await a_server_that_alerted(world)
    other = world.server()
    assert await other.check() == []
    # The first server is suspended; when it is back, it does not lead.
    assert await other.check(TERM) == []
    assert await first.check() == []
    await world.works()
    assert await other.check() == []
    assert await other.check(CALM_MS) == [HEALED]
    assert await first.check(TERM) == []
    assert await first.check(CALM_MS) == []


async def test_leader_suspended_for_a_whole_term_of_another_continues_with_its_alerts(
    world: World,
):
    first = await a_server_that_alerted(world)
    other = world.server()
    assert await other.check(TERM) == []
    await world.works()
    assert await other.check() == []
    assert await other.check(CALM_MS) == [HEALED]
    # The other server is killed before the first one continues, so the first leads again.
    assert await first.check(TERM) == []
    assert await first.check(CALM_MS) == []
    # What it stores from now on counts again.
    await world.die(1)
    assert await first.check() == [("dead_jobs", "calls", False)]
    assert await world.server().check(TERM) == []


async def test_former_leader_writes_nothing(world: World):
    first = await a_server_that_alerted(world)
    other = world.server()
    await other.check(TERM)
    kept = await world.storage.read()
    keeper: Any = first.watch._keeper  # pyright: ignore[reportPrivateUsage]
    await world.storage.write(keeper._holder, b"{}")
    assert await world.storage.read() == kept


async def test_rule_disabled_meanwhile_is_not_healed(world: World):
    await a_server_that_alerted(world)
    await world.works()
    restarted = world.server(off=frozenset({"no_worker"}))
    assert await restarted.check(TERM) == []
    assert await restarted.check(CALM_MS) == []


AWAY = ("store_away", "store", False)


async def away(world: World, server: Server, after_ms: int) -> list[tuple[str, str, bool]]:
    """Run one look while the store refuses requests."""
    world.store.plan(Fault.REFUSE)
    return await server.check(after_ms)


async def test_server_restarted_during_an_outage_does_not_repeat_the_alert(world: World):
    server = world.server()
    assert await server.check() == []
    assert await away(world, server, 15_000) == [AWAY]
    restarted = world.server()
    assert await away(world, restarted, 1_000) == []
    assert await away(world, restarted, 45_000) == []
    assert await restarted.check(TERM) == []
    assert await restarted.check(CALM_MS) == [("store_away", "store", True)]


async def test_server_restarted_after_an_outage_reports_the_recovery(world: World):
    server = world.server()
    assert await server.check() == []
    assert await away(world, server, 15_000) == [AWAY]
    restarted = world.server()
    # As far as the store knows, the previous server still leads.
    assert await restarted.check(1_000) == []
    assert await restarted.check(TERM) == []
    assert await restarted.check(CALM_MS) == [("store_away", "store", True)]


async def test_only_the_server_that_alerted_reports_the_recovery(
    world: World,
):
    first, other = world.server(), world.server()
    assert (await first.check(), await other.check()) == ([], [])
    assert await away(world, first, 15_000) == [AWAY]
    assert await away(world, other, 0) == []
    assert await other.check(TERM) == []
    assert await first.check() == []
    assert await other.check(CALM_MS) == []
    assert await first.check() == [("store_away", "store", True)]


async def test_alerts_are_sent_though_their_state_is_unreachable(
    world: World, directory: Directory, caplog: pytest.LogCaptureFixture
):
    server = await a_server_that_alerted(world)
    await directory.close()
    with caplog.at_level(logging.WARNING):
        restarted = world.server()
        assert await restarted.check(TERM) == []
        assert await restarted.check(MINUTE) == [NO_WORKER]
    assert "stored alerts could not be read" in caplog.text
    await directory.open()
    # What it reported itself stays valid; the stored alerts are its own from now on.
    assert await restarted.check() == []
    third = world.server()
    assert await third.check(TERM) == []
    del server


async def test_unintelligible_alert_state_is_left_alone(
    world: World, caplog: pytest.LogCaptureFixture
):
    await world.app.send_async("noop", lane="calls")
    await world.storage.take_over("x")
    await world.storage.write("x", b'{"standing": 7}')
    with caplog.at_level(logging.WARNING):
        server = world.server()
        assert await server.check() == []
        assert await server.check(MINUTE) == [NO_WORKER]
    assert "could not be decoded" in caplog.text
    assert await world.server().check(TERM) == []


async def test_unchanged_alert_state_is_not_written(world: World, monkeypatch: pytest.MonkeyPatch):
    server = await a_server_that_alerted(world)
    written: list[bytes] = []

    async def write(holder: str, value: bytes) -> None:
        del holder
        written.append(value)

    monkeypatch.setattr(world.storage, "write", write)
    for _ in range(5):
        await server.check(1_000)
    assert written == []
