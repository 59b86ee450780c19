"""Random histories: the same moves on a store and on the brute-force world."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from headway.contract.definitions import CloseGate, OpenGate, SetGate
from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import Failed, GaveBack, HandedOver, Released, Snoozed, Succeeded
from headway.contract.signals import Decided, Signal
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.retry import RetryPolicy
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.dump import every_job
from headway.testing.jobs import POLICY
from tests.oracle.world import FOREVER, Gate, Job, Use, World

LANES = ("x", "y")
TENANTS = ("acme", "beta")
KINDS = ("dial", "text")
TIRELESS = replace(POLICY, retry=RetryPolicy(attempts=1_000_000, jitter="none"))
LEASE_MS = 10**12

GATES = [
    Gate("slots-a", "slots", capacity=3),
    Gate("slots-b", "slots", capacity=5),
    Gate("rate-r", "rate", capacity=4, per=10),
    Gate("pool-l", "pool", members={"m": 5, "n": 2}),
    Gate("pool-r", "pool", members={"m": 2, "n": 2, "o": 1}, strategy="round_robin"),
    Gate("k:{key}", "slots", keyed=True, capacity=1),
    Gate("l:{key}", "slots", keyed=True, capacity=1),
    Gate("t:{key}", "rate", keyed=True, capacity=1, per=15),
    Gate("q:{key}", "pool", keyed=True, members={"m": 1, "n": 1}, strategy="first_free"),
]


def spec_of(gate: Gate) -> GateSpec:
    if gate.kind == "slots":
        return Slots(gate.template, gate.capacity)
    if gate.kind == "rate":
        return Rate(gate.template, gate.capacity, f"{gate.per}ms")
    return Pool(gate.template, gate.members, strategy=gate.strategy)  # type: ignore[arg-type]


class History:
    """One random history.

    Args:
        rig: the store.
        seed: seed of everything random. For odd seeds, the jobs belong to one flow or few, and
            compete for few keyed gates; for even seeds, to many, and need all kinds of gates.
        weighted: whether jobs may also ask for several permits of keyed gates.
    """

    def __init__(self, rig: Rig, seed: int, *, weighted: bool = False) -> None:
        self.rig = rig
        self.random = Random(seed)
        self.weighted = weighted
        self.crowded = seed % 2 == 1
        self.world = World(rig.clock())
        self.gates = [replace_gate(gate, self.random, weighted=weighted) for gate in GATES]
        self.workers: list[PlayedWorker] = []
        self.made = 0
        self.idle: dict[str, tuple[int, int | None]] = {}

    async def begin(self) -> None:
        await self.rig.declare(*(spec_of(gate) for gate in self.gates))
        self.workers = [self.rig.new_worker() for _ in range(3)]

    # Moves

    async def move(self) -> None:
        names = ["enqueue", "claim", "end", "signal", "operate", "time", "close", "capacity"]
        often = [6, 7, 7, 1, 3, 3, 1, 1] if self.crowded else [7, 6, 5, 1, 1, 4, 1, 1]
        name = self.random.choices(names, often)[0]
        await getattr(self, name)()

    async def enqueue(self) -> None:
        random = self.random
        jobs = []
        for _ in range(random.choice((1, 1, 2, 5))):
            uses = [self.use(gate) for gate in self.gates if random.random() < self.asked(gate)]
            late = random.random() < 0.2
            due = self.world.now + (random.choice((1, 3, 8, 20)) if late else -random.randrange(3))
            job = self.rig.jobs.make(
                lane=LANES[0] if self.crowded else random.choice(LANES),
                tenant=TENANTS[0] if self.crowded else random.choice(TENANTS),
                kind=KINDS[0] if self.crowded else random.choice(KINDS),
                priority=random.randrange(3),
                due_at=due,
                expires_at=None,
                gates=tuple(gate_use(use) for use in uses),
                policy=TIRELESS,
            )
            jobs.append(job)
            self.made += 1
            self.world.jobs[job.id] = Job(
                job.id, job.lane, job.tenant, job.kind, job.priority, due, self.made, uses
            )
        await self.rig.enqueue(*jobs)

    def asked(self, gate: Gate) -> float:
        """Return the probability that a job needs the gate."""
        if self.crowded:
            locks = {"k:{key}": 0.7, "l:{key}": 0.4}
            return locks.get(gate.template, 0.1 if gate.keyed else 0.04)
        return 0.2

    def use(self, gate: Gate) -> Use:
        most = 3 if not gate.keyed or self.weighted else 1
        amount = self.random.choice((1, 1, 1, 2, 3)[: 2 + most])
        if gate.kind == "pool":
            amount = min(amount, 2)
        hold = "settled" if self.random.random() < 0.7 else "run"
        keys = 2 if self.crowded else 3
        name = gate.template.replace("{key}", str(self.random.randrange(keys)))
        return Use(gate, name, amount, hold)

    def lane(self) -> str:
        return LANES[0] if self.crowded else self.random.choice(LANES)

    async def claim(self) -> None:
        lane, n = self.lane(), self.random.choice((1, 2, 4, 9))
        worker = self.random.choice(self.workers)
        before = await self.parked()
        reply = await worker.ask(n, lane, lease_ms=LEASE_MS)
        after = await self.parked()
        stayed = frozenset(job for job, gate in before.items() if after.get(job) == gate)
        got = [(job.id, dict(job.members)) for job in reply.jobs]
        expected = self.world.expected(lane, n, stayed)
        assert got == expected
        for job, _ in got:
            self.world.jobs[job].worker = worker.id
        if len(got) < n:
            await self.check_next(lane, reply.again, reply.next_at)
            self.idle[lane] = (reply.seen, reply.next_at)
        else:
            self.idle.pop(lane, None)

    async def parked(self) -> dict[str, str]:
        """Return where jobs are parked."""
        return {
            job.id: job.parked_at
            async for job in every_job(self.rig.store)
            if job.parked_at is not None
        }

    async def check_next(self, lane: str, again: bool, next_at: int | None) -> None:
        """Check that a worker that sleeps until the reported time misses no start."""
        if again:
            return
        opens_at = self.world.opens_next(lane)
        if opens_at is not None:
            assert next_at is not None
            assert next_at <= opens_at

    async def end(self) -> None:
        running = [job for job in self.world.jobs.values() if job.state == "running"]
        if not running:
            return
        job = self.random.choice(running)
        worker = next(one for one in self.workers if one.id == job.worker)
        now, fence = self.world.now, (job.id, job.run)
        ends = ["succeed", "fail", "snooze", "release", "hand_over", "give_back"]
        end = self.random.choices(ends, [5, 1, 1, 1, 2, 1])[0]
        delay = self.random.choice((0, 2, 9))
        if end == "succeed":
            await worker.report(Succeeded(*fence))
            self.world.finish(job)
        elif end == "fail":
            await worker.report(Failed(*fence, after_ms=delay))
            self.world.requeue(job, now + delay)
        elif end == "snooze":
            await worker.report(Snoozed(*fence, after_ms=delay))
            self.world.requeue(job, now + delay)
        elif end == "release":
            await worker.report(Released(*fence))
            self.world.requeue(job, job.due)
        elif end == "hand_over":
            key = f"{job.id}:{job.run}"
            await worker.report(HandedOver(*fence, key=key, timeout_ms=LEASE_MS))
            self.world.give_back(job, hold="run")
            job.state = "awaiting"
        elif job.permits:
            gate = self.random.choice(job.permits).gate
            await worker.report(GaveBack(*fence, gate=gate))
            self.world.give_back(job, gate=gate)

    async def signal(self) -> None:
        awaiting = [job for job in self.world.jobs.values() if job.state == "awaiting"]
        if not awaiting:
            return
        job = self.random.choice(awaiting)
        retry = self.random.random() < 0.4
        decided = Decided.RETRY if retry else Decided.SUCCEEDED
        signal = Signal(key=f"{job.id}:{job.run}", event="end", decided=decided, after_ms=3)
        await self.rig.store.signal(replace(signal, event=f"end-{job.run}"))
        if retry:
            self.world.requeue(job, self.world.now + 3)
        else:
            self.world.finish(job)

    async def operate(self) -> None:
        queued = [job for job in self.world.jobs.values() if job.state == "queued"]
        if not queued:
            return
        job = self.random.choice(queued)
        what = self.random.choice(("cancel", "priority", "due", "now"))
        if what != "now" or job.due > self.world.now:
            # The job leaves its place in the queue.
            self.world.unreserve(job)
        if what == "cancel":
            answers = await self.rig.cancel(job.id)
            self.world.finish(job)
        elif what == "priority":
            job.priority = self.random.randrange(3)
            answers = await self.rig.act(Verb.EDIT, job.id, edit=Edit(priority=job.priority))
        elif what == "due":
            job.due = self.world.now + self.random.choice((-2, 0, 4))
            answers = await self.rig.act(Verb.EDIT, job.id, edit=Edit(due_at=job.due))
        else:
            answers = await self.rig.act(Verb.RUN_NOW, job.id)
            job.due = min(job.due, self.world.now)
        assert answers == [Acted.DONE]

    async def time(self) -> None:
        # Occasionally longer than any window, so that all windows end at once.
        ms = 35_000 if self.random.random() < 0.04 else self.random.choice((1, 2, 5, 11))
        self.world.now = self.rig.clock.advance(ms)
        if self.random.random() < 0.3:
            await self.rig.sweep()

    def any_gate(self) -> str:
        gate = self.random.choice(self.gates)
        name = gate.template.replace("{key}", str(self.random.randrange(3)))
        if gate.kind == "pool" and self.random.random() < 0.5:
            return f"{name}/{self.random.choice(list(gate.members))}"
        return name

    def any_implicit(self) -> str:
        lanes = [f"lane:{lane}" for lane in LANES]
        tenants = [f"tenant:{tenant}" for tenant in TENANTS]
        return self.random.choice(["all", *lanes, *tenants, *(f"kind:{kind}" for kind in KINDS)])

    async def close(self) -> None:
        closed = [name for name, until in self.world.closed.items() if until > self.world.now]
        if closed and self.random.random() < 0.6:
            name = self.random.choice(closed)
            await self.rig.define(OpenGate(name=name))
            del self.world.closed[name]
            return
        name = self.any_gate() if self.random.random() < 0.7 else self.any_implicit()
        until = self.random.choice((None, self.world.now + 4, self.world.now + 15))
        await self.rig.define(CloseGate(name=name, until_at=until, reason=str(self.made)))
        self.world.closed[name] = FOREVER if until is None else until

    async def capacity(self) -> None:
        if self.random.random() < 0.3:
            name = self.any_implicit()
            if name in self.world.caps:
                await self.rig.reset(name)
                del self.world.caps[name]
            else:
                self.world.caps[name] = self.random.randrange(4)
                await self.rig.cap(name, self.world.caps[name])
            return
        gate = self.random.choice(self.gates)
        if gate.kind == "pool":
            member = self.random.choice(list(gate.members))
            pool = gate.template.replace("{key}", str(self.random.randrange(3)))
            name, most = f"{pool}/{member}", 4
        elif self.random.random() < 0.5:
            name, most = gate.template, 6
        else:
            name, most = gate.template.replace("{key}", str(self.random.randrange(3))), 4
        value = self.random.randrange(most)
        if gate.kind == "rate":
            await self.rig.define(SetGate(name=name, limit=value))
        else:
            await self.rig.define(SetGate(name=name, capacity=value))
        if name == gate.template:
            gate.capacity = value
        else:
            self.world.caps[name] = value


def replace_gate(gate: Gate, random: Random, *, weighted: bool) -> Gate:
    capacity = gate.capacity and max(1, gate.capacity + random.randrange(-1, 2))
    if gate.keyed:
        capacity = random.choice((2, 4, 4) if weighted else (1, 2))
    members = dict(gate.members)
    return Gate(gate.template, gate.kind, gate.keyed, capacity, gate.per, members, gate.strategy)


def gate_use(use: Use) -> GateUse:
    return GateUse(
        name=use.name,
        template=use.gate.template,
        amount=use.amount,
        hold=use.hold,  # type: ignore[arg-type]
        shared=not use.gate.keyed,
    )
