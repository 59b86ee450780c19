"""A store with leads and lines, a watch over it, and one clock for everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import headway as hw
from headway.contract.claims import BeatRequest, Claimed, ClaimRequest
from headway.contract.definitions import CloseGate, DefineRequest, Item, OpenGate
from headway.contract.outcomes import HandedOver, NextStage, SettleRequest, Verdict
from headway.contract.signals import Signal, SignalKind
from headway.runtime.settings_table import read_table
from headway.runtime.timing import Timing
from headway.server.alerts.rule_set import Alerts, Facts, RuleSet
from headway.server.alerts.watch import Alert, AlertWatcher
from headway.stores import open_store
from headway.systems.calls.alert_rules import Thresholds, call_rules
from headway.systems.calls.migrations import SCHEMAS
from headway.systems.calls.overview import CallsOverview, read_calls
from headway.systems.directory.database import Directory
from headway.systems.directory.tally import Tally
from headway.testing.clock import FakeClock

SECOND = 1_000
MINUTE = 60 * SECOND
LINES = hw.Pool("calls.numbers", {"+15550001": 2, "+15550002": 3}, shared=True)
SentAlert = tuple[str, str, bool]


class Hand(Timing):
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Sink:
    """A sink that records alerts."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []

    def send(self, alert: Alert) -> None:
        self.alerts.append(alert)

    def close(self) -> None: ...


class World:
    """Leads wait for lines; workers come and go; the watch looks when the test says so."""

    def __init__(self, directory: Directory, **thresholds: Any) -> None:
        self.clock = FakeClock()
        self.store = open_store("memory://", clock=self.clock)
        self.app = hw.App(store=self.store)
        self.timing = Hand()
        self.directory = directory
        directory.needs(*SCHEMAS)
        self.tally = Tally(directory, self.timing, "calls_tally")
        self.thresholds: Thresholds = read_table("calls.alerts", Thresholds, thresholds)
        self.sink = Sink()
        self.request = 0

        @self.app.job(name="lead", lane="calls", stages={"check": [], "dial": [LINES]})
        async def lead(job: hw.Job, phone: str) -> None: ...

        @lead.stage("dial")
        async def dial(job: hw.Job, phone: str) -> None: ...

        catalogue = RuleSet(
            rules=lambda: call_rules(self.thresholds),
            read=self.see,
            runbooks=self.thresholds.runbooks,
        )
        self.watch = AlertWatcher(
            self.store,
            self.timing,
            rule_sets=[catalogue],
            alerts=Alerts(),
            sinks=[self.sink],
            each_ms=10_000,
        )

    async def see(self, facts: Facts) -> CallsOverview | None:
        return await read_calls(self.store, self.tally, facts)

    def pass_by(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timing.now += ms / 1000

    async def alerts(self, after_ms: int = 0) -> list[SentAlert]:
        """Return the alerts of all rules after this time."""
        self.pass_by(after_ms)
        await self.watch.check()
        told, self.sink.alerts = self.sink.alerts, []
        return [(one.rule, one.subject, one.healed) for one in told]

    async def alerts_within(self, for_ms: int, each_ms: int = 10_000) -> list[SentAlert]:
        """Return the alerts within this time, checking as often as a server does."""
        told: list[SentAlert] = []
        for _ in range(for_ms // each_ms):
            told += await self.alerts(each_ms)
        return told

    async def leads(self, n: int, tenant: str = "acme") -> None:
        """Send leads that are due now."""
        kind = self.app.kind("lead")
        jobs = [kind.make(phone=f"+1555{number:07}", tenant=tenant) for number in range(n)]
        await self.app.send_many_async(jobs)

    async def claim(self, n: int = 1, *, worker: str = "w") -> Sequence[Claimed]:
        self.request += 1
        asked = ClaimRequest(
            worker=worker, request=self.request, lanes=(("calls", n),), n=n, free=n, lease_ms=10**9
        )
        return (await self.store.claim(asked)).jobs

    async def check(self, n: int) -> None:
        """Let leads pass their checks, and wait for a line."""
        for job in await self.claim(n):
            uses = self.app.kind("lead").uses("dial", "calls", job.tenant, job.args)
            await self.settle(NextStage(job.id, job.run, stage="dial", gates=uses))

    async def dial(self, n: int = 1) -> Sequence[Claimed]:
        """Call leads that have a line."""
        jobs = await self.claim(n)
        for job in jobs:
            assert job.stage == "dial"
            await self.settle(
                HandedOver(job.id, job.run, key=f"{job.id}:{job.run}", timeout_ms=30 * MINUTE)
            )
        return jobs

    async def hang_up(self, jobs: Sequence[Claimed]) -> None:
        for job in jobs:
            key = f"{job.id}:{job.run}"
            await self.store.signal(Signal(key=key, event=f"end:{key}", kind=SignalKind.FINAL))

    async def settle(self, *outcomes: Any) -> None:
        reply = await self.store.settle(SettleRequest(worker="w", outcomes=outcomes))
        assert set(reply) == {Verdict.DONE}, reply

    async def live(self, *workers: str, lease_ms: int = 10**9, leaving: bool = False) -> None:
        """Keep these workers of calls alive for the lease, or let them leave."""
        for worker in workers:
            await self.store.beat(
                BeatRequest(
                    worker=worker,
                    lanes=("calls",),
                    lease_ms=lease_ms,
                    leaving=leaving,
                )
            )

    async def close(self, gate: str, until_at: int | None = None) -> None:
        await self.define(CloseGate(name=gate, until_at=until_at, reason="by hand"))

    async def open(self, gate: str) -> None:
        await self.define(OpenGate(name=gate))

    async def define(self, *items: Item) -> None:
        await self.store.define(DefineRequest(items=items, author="ada"))


@asynccontextmanager
async def world_in(folder: Path, **thresholds: Any) -> AsyncIterator[World]:
    """Create a world whose directory is in a folder."""
    directory = Directory(f"sqlite:///{folder}/directory.db")
    made = World(directory, **thresholds)
    await directory.open()
    try:
        yield made
    finally:
        await made.tally.close()
        await directory.close()
        await made.store.close()


def only(told: Sequence[SentAlert], rule: str) -> list[SentAlert]:
    """Return the alerts of one rule."""
    return [one for one in told if one[0] == rule]
