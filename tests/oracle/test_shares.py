"""Fair lanes over random histories: how far a tenant falls behind, counted outside the engine."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from headway.contract.definitions import DeclareLane, LaneSpec
from headway.contract.outcomes import Released, Succeeded
from headway.core.job import NewJob
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.conformance.rig import Rig
from tests.oracle.history import LEASE_MS, TIRELESS, gate_use, spec_of
from tests.oracle.world import FOREVER, Gate, Job, Use, World

LANE = "x"
TENANTS = ("acme", "beta", "core", "dora")
KINDS = ("dial", "text")
GATES = [
    Gate("a", "slots", capacity=1),
    Gate("b", "slots", capacity=2),
    Gate("r", "rate", capacity=3, per=10),
    Gate("l", "pool", members={"m": 1, "n": 1}),
]


class Shares:
    """One random history of a fair lane.

    For each pair of tenants, it counts how far one was passed by the other: the virtual starts that
    the other had while the first could have started instead, minus those of the first. The count of
    a tenant starts again when it has no waiting jobs or is paused.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        clock = FakeClock()
        self.rig = Rig(MemoryStore(clock=clock), clock)
        self.world = World(clock())
        self.weights = {tenant: self.random.choice((1, 1, 2, 5)) for tenant in TENANTS}
        self.workers = [self.rig.new_worker() for _ in range(2)]
        self.passed = {(one, other): 0.0 for one in TENANTS for other in TENANTS if one != other}
        # Unit: one start of each of the two tenants.
        self.worst = 0.0
        self.made = 0

    async def play(self, moves: int) -> None:
        spec = LaneSpec(name=LANE, fair="tenant", weights=tuple(self.weights.items()))
        await self.rig.define(DeclareLane(spec=spec))
        await self.rig.declare(*(spec_of(gate) for gate in GATES))
        for _ in range(moves):
            moves_and_odds = {self.enqueue: 4, self.claim: 6, self.end: 7, self.time: 1}
            moves_and_odds |= {self.pause: 1, self.resize: 1, self.cancel: 1}
            (move,) = self.random.choices([*moves_and_odds], [*moves_and_odds.values()])
            await move()
            self.forgive()

    async def enqueue(self) -> None:
        random = self.random
        tenant, kind = random.choice(TENANTS), random.choice(KINDS)
        jobs: list[NewJob] = []
        uses = [Use(gate, gate.template) for gate in GATES if random.random() < 0.35]
        for _ in range(random.choice((1, 1, 3, 12))):
            job = self.rig.jobs.make(
                lane=LANE,
                tenant=tenant,
                kind=kind,
                expires_at=None,
                gates=tuple(gate_use(use) for use in uses),
                policy=TIRELESS,
            )
            jobs.append(job)
            self.made += 1
            self.world.jobs[job.id] = Job(
                job.id, LANE, tenant, kind, job.priority, self.world.now, self.made, uses
            )
        await self.rig.enqueue(*jobs)

    def able(self) -> set[str]:
        """Return the tenants that could start a job."""
        flows = {job.flow: job for job in self.world.due_jobs(LANE)}
        return {job.tenant for job in flows.values() if self.world.fits(job)}

    async def claim(self) -> None:
        worker, n = self.random.choice(self.workers), self.random.choice((1, 2, 3, 8))
        for claimed in (await worker.ask(n, LANE, lease_ms=LEASE_MS)).jobs:
            job = self.world.jobs[claimed.id]
            assert self.world.fits(job)
            self.count(job.tenant)
            self.world.start(job)
            job.worker = worker.id
            self.forgive()

    def count(self, tenant: str) -> None:
        step, able = 1 / self.weights[tenant], self.able()
        for other in TENANTS:
            if other == tenant:
                continue
            own = self.passed[tenant, other] - step
            self.passed[tenant, other] = max(own, 0.0)
            if other in able:
                self.passed[other, tenant] += step
                bound = step + 1 / self.weights[other]
                self.worst = max(self.worst, self.passed[other, tenant] / bound)

    def forgive(self) -> None:
        backlogged = {job.tenant for job in self.world.due_jobs(LANE)}
        for tenant in TENANTS:
            if self.world.is_closed(f"tenant:{tenant}") or tenant not in backlogged:
                for other in TENANTS:
                    if other != tenant:
                        self.passed[tenant, other] = 0.0

    async def end(self) -> None:
        running = [job for job in self.world.jobs.values() if job.state == "running"]
        if not running:
            return
        job = self.random.choice(running)
        worker = next(one for one in self.workers if one.id == job.worker)
        if self.random.random() < 0.9:
            await worker.report(Succeeded(job.id, job.run))
            self.world.finish(job)
            del self.world.jobs[job.id]
        else:
            await worker.report(Released(job.id, job.run))
            self.world.requeue(job, job.due)

    async def time(self) -> None:
        self.world.now = self.rig.clock.advance(self.random.choice((1, 2, 5, 11)))

    async def pause(self) -> None:
        name = f"tenant:{self.random.choice(TENANTS)}"
        if self.world.is_closed(name):
            await self.rig.open_gate(name)
            del self.world.closed[name]
        elif self.random.random() < 0.4:
            await self.rig.close_gate(name)
            self.world.closed[name] = FOREVER

    async def resize(self) -> None:
        gate = self.random.choice(GATES[:2])
        self.world.caps[gate.template] = self.random.choice((0, 1, 2, 4))
        await self.rig.cap(gate.template, self.world.caps[gate.template])

    async def cancel(self) -> None:
        waiting = [job for job in self.world.jobs.values() if job.state == "queued"]
        if waiting:
            job = self.random.choice(waiting)
            await self.rig.cancel(job.id)
            del self.world.jobs[job.id]


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(4))
def test_no_tenant_is_passed_by_more_than_two_starts_of_each(block: int) -> None:
    for seed in range(block * 6, block * 6 + 6):
        shares = Shares(seed)
        asyncio.run(shares.play(250))
        assert shares.worst <= 2, f"seed {seed}, weights {shares.weights}"
