"""Histories in which jobs ask for several permits of keyed gates.

The order of the jobs alone then does not determine which of them starts first: a job that does not
fit holds back those behind it at its gate, and only there. What must hold anyway is checked here.
"""

from __future__ import annotations

from tests.oracle.history import History
from tests.oracle.world import FOREVER, Job, Reserved


class WeightedHistory(History):
    async def claim(self) -> None:
        lane, n = self.lane(), self.random.choice((1, 2, 4, 9))
        worker = self.random.choice(self.workers)
        before, kept = await self.parked(), self.world.reserved
        # A started job must fit regardless of reservations; whether these were respected is checked
        # below.
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
        """Read the store's reservations; each must be for a job that waits for this amount."""
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
        """Check that no started job took permits that stayed reserved for a job before it."""
        for name, kept in before.items():
            if self.world.reserved.get(name) != kept:
                continue
            for started in got:
                job = self.world.jobs[started]
                uses = [use for use in job.uses if use.name == name]
                # In a pool, the other members may be taken.
                if uses and uses[0].gate.kind != "pool" and job.order > kept.order:
                    free = self.world.room(uses[0])
                    assert free >= kept.amount, f"{started} took {name} from {kept.job}"

    def waits_there(self, job: Job, gate: str) -> bool:
        """Return whether a job is held back at this gate by permits of others, and not forever."""
        uses = [use for use in job.uses if use.name == gate]
        return bool(uses) and self.world.most(uses[0]) >= uses[0].amount

    def keyed_gates(self, job: str) -> set[str]:
        return {use.name for use in self.world.jobs[job].uses if use.gate.keyed}

    def held_back(self, job: Job, parked: dict[str, str]) -> Job | None:
        """Return a job parked before the given one, at one of its keyed gates, in its flow."""
        gates = self.keyed_gates(job.id)
        for other, gate in parked.items():
            one = self.world.jobs[other]
            before = one.flow == job.flow and one.order < job.order
            if gate in gates and before and self.waits_there(one, gate):
                return one
        return None

    def judge_order(self, got: list[str], before: dict[str, str], after: dict[str, str]) -> None:
        """Check that no job started before one that stays parked at the same gate in the same flow.

        A job that was at another gate, or was only parked meanwhile, may have reached this gate
        too late to hold back any other.
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
        """Check that a claim that was not full left no job that could have started."""
        for job in self.world.due_jobs(lane):
            if self.world.fits(job):
                assert self.held_back(job, parked) is not None, f"{job.id} could have started"

    async def check_next(self, lane: str, again: bool, next_at: int | None) -> None:
        """Check nothing: a held-back job depends on the one before it, so no time is known."""
