"""Histories in which jobs ask for several permits of keyed gates.

Which of them starts first is then not told by the order of jobs alone: one that does not fit holds
back those behind it at its gate, and only there. What must hold all the same is judged here.
"""

from __future__ import annotations

from tests.oracle.history import History
from tests.oracle.world import FOREVER, Job, Reserved


class WeightedHistory(History):
    async def claim(self) -> None:
        lane, n = self.lane(), self.random.choice((1, 2, 4, 9))
        worker = self.random.choice(self.workers)
        before, kept = await self.parked(), self.world.reserved
        # Who starts must fit whatever is reserved; whether that was heeded is judged below.
        self.world.reserved = {}
        reply = await worker.ask(n, lane, lease_ms=10**12)
        got = [job.id for job in reply.jobs]
        for job, claimed in zip(got, reply.jobs, strict=True):
            one = self.world.jobs[job]
            assert (one.lane, one.state) == (lane, "queued")
            assert one.due <= self.world.now
            assert self.world.fits(one), f"{job} started, and does not fit"
            for use in one.uses:
                if use.gate.kind == "pool":
                    free = {name: free for name, _, _, free in self.world.all_members(use)}
                    assert free[claimed.members[use.name]] >= use.amount
            self.world.start(one, claimed.members)
            one.worker = worker.id
        after = await self.parked()
        await self.read_reserved()
        self.judge_order(got, before, after)
        self.judge_reserved(got, kept)
        if len(got) < n and not reply.again:
            self.judge_work(lane, after)
            await self.check_next(lane, reply.again, reply.next_at)

    async def move(self) -> None:
        await super().move()
        await self.read_reserved()

    async def read_reserved(self) -> None:
        """What the store says is reserved; each must be for a job that waits for so much."""
        self.world.reserved = {}
        for gate in await self.rig.gates():
            if gate.reserved_for is None:
                continue
            job = self.world.jobs[gate.reserved_for]
            uses = [use for use in job.uses if use.name == gate.name]
            assert job.state == "queued", f"{gate.name} is reserved for {job.id}, {job.state}"
            assert [use.amount for use in uses] == [gate.reserved]
            assert 1 < gate.reserved <= self.world.most(uses[0])
            self.world.reserved[gate.name] = Reserved(job.id, job.order, gate.reserved, FOREVER)

    def judge_reserved(self, got: list[str], before: dict[str, Reserved]) -> None:
        """Nobody took what is reserved all the time for a job that comes before."""
        for name, kept in before.items():
            if self.world.reserved.get(name) != kept:
                continue
            for started in got:
                job = self.world.jobs[started]
                uses = [use for use in job.uses if use.name == name]
                # Of a pool the other members are free to be taken.
                if uses and uses[0].gate.kind != "pool" and job.order > kept.order:
                    free = self.world.room(uses[0])
                    assert free >= kept.amount, f"{started} took {name} from {kept.job}"

    def waits_there(self, job: Job, gate: str) -> bool:
        """Whether it is held at this gate by what others took, and not forever."""
        uses = [use for use in job.uses if use.name == gate]
        return bool(uses) and self.world.most(uses[0]) >= uses[0].amount

    def keyed_gates(self, job: str) -> set[str]:
        return {use.name for use in self.world.jobs[job].uses if use.gate.keyed}

    def held_back(self, job: Job, parked: dict[str, str]) -> Job | None:
        """Who stands parked before a job at one of its keyed gates in its flow."""
        gates = self.keyed_gates(job.id)
        for other, gate in parked.items():
            one = self.world.jobs[other]
            before = one.flow == job.flow and one.order < job.order
            if gate in gates and before and self.waits_there(one, gate):
                return one
        return None

    def judge_order(self, got: list[str], before: dict[str, str], after: dict[str, str]) -> None:
        """Nobody started before one that stands parked at the same gate in the same flow.

        One that stood, or was parked meanwhile, at another gate may have come to this one too
        late to hold anybody back.
        """
        stayed = {
            job: gate
            for job, gate in after.items()
            if before.get(job) == gate or (job not in before and self.keyed_gates(job) == {gate})
        }
        for job in got:
            passed = self.held_back(self.world.jobs[job], stayed)
            assert passed is None, f"{job} passed {passed and passed.id}"

    def judge_work(self, lane: str, parked: dict[str, str]) -> None:
        """After a claim that was not full, no job is left that could have started."""
        for job in self.world.due_jobs(lane):
            if self.world.fits(job):
                assert self.held_back(job, parked) is not None, f"{job.id} could have started"

    async def check_next(self, lane: str, again: bool, next_at: int | None) -> None:
        """What is held back starts no sooner than its forerunner, so an exact moment is unknown."""
