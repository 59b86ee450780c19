"""Histories in which jobs ask for several permits of keyed gates.

Which of them starts first is then not told by the order of jobs alone: one that does not fit holds
back those behind it at its gate, and only there. What must hold all the same is judged here.
"""

from __future__ import annotations

from headway.testing.dump import every_job
from tests.oracle.history import History
from tests.oracle.world import Job


class WeightedHistory(History):
    async def claim(self) -> None:
        lane, n = self.lane(), self.random.choice((1, 2, 4, 9))
        worker = self.random.choice(self.workers)
        before = await self.parked()
        reply = await worker.ask(n, lane, lease_ms=10**12)
        got = [job.id for job in reply.jobs]
        for job, claimed in zip(got, reply.jobs, strict=True):
            one = self.world.jobs[job]
            assert (one.lane, one.state) == (lane, "queued")
            assert one.due <= self.world.now
            assert self.world.fits(one), f"{job} started, and does not fit"
            assert self.world.start(one) == dict(claimed.members)
            one.worker = worker.id
        after = await self.parked()
        self.judge_order(got, before, after)
        if len(got) < n and not reply.again:
            self.judge_work(lane, after)
            await self.check_next(lane, reply.again, reply.next_at)

    async def parked(self) -> dict[str, str]:
        """Where jobs are parked."""
        return {
            job.id: job.parked_at
            async for job in every_job(self.rig.store)
            if job.parked_at is not None
        }

    def waits_there(self, job: Job, gate: str) -> bool:
        """Whether it is held at this gate by what others took, and not for ever."""
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
