"""The keys that a run was known as, as its record lists them."""

from __future__ import annotations

from headway.contract.outcomes import Failed, HandedOver, KnownAs, Returned
from headway.contract.signals import Decided
from headway.contract.views import JobsQuery
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import PlayedWorker

MINUTE_MS = 60_000


async def call(worker: PlayedWorker, *keys: str) -> str:
    """A run hands over under the first key, or its own, and is known as the others; its job."""
    run = await worker.take_one()
    first = keys[0] if keys else f"{run.id}:{run.run}"
    await worker.say(HandedOver(run.id, run.run, key=first, timeout_ms=MINUTE_MS))
    for key in keys[1:]:
        await worker.say(KnownAs(run.id, run.run, key=key))
    await worker.say(Returned(run.id, run.run))
    return run.id


class KnownKeysGroup(ConformanceGroup):
    """What a provider called each run."""

    async def test_each_run_tells_its_keys_by_name_and_not_its_reference(self, rig: Rig) -> None:
        job = await rig.add()
        await call(rig.worker, "sid-b", "sid-ä", "sid-a")
        await rig.tell("sid-a", Decided.RETRY)
        await rig.pass_time(MINUTE_MS)
        await call(rig.worker)
        await rig.tell(f"{job.id}:2", Decided.RETRY)
        await rig.pass_time(MINUTE_MS)
        await call(rig.worker, f"{job.id}:3", "sid-c")
        expected = [("sid-a", "sid-b", "sid-ä"), (), ("sid-c",)]
        assert [run.keys for run in (await rig.view(job.id)).runs] == expected
        await rig.tell("sid-c")
        assert [run.keys for run in (await rig.view(job.id)).runs] == expected

    async def test_listing_with_runs_tells_the_keys_of_each_job(self, rig: Rig) -> None:
        jobs = await rig.add_many(3)
        await call(rig.worker, "one")
        await call(rig.worker, "two", "three")
        page = await rig.store.read(JobsQuery(runs=True))
        found = {view.id: [run.keys for run in view.runs] for view in page.rows}
        assert [found[job.id] for job in jobs] == [[("one",)], [("three", "two")], []]
        bare = await rig.store.read(JobsQuery())
        assert [view.runs for view in bare.rows] == [(), (), ()]

    async def test_key_that_a_later_run_took_over_is_told_of_that_run_alone(self, rig: Rig) -> None:
        job = await rig.add()
        await call(rig.worker, "line-7")
        await rig.tell("line-7", Decided.RETRY)
        await rig.pass_time(MINUTE_MS)
        await call(rig.worker, "line-7")
        assert [run.keys for run in (await rig.view(job.id)).runs] == [(), ("line-7",)]
        other = await rig.add()
        await call(rig.worker, "line-7")
        assert [run.keys for run in (await rig.view(job.id)).runs] == [(), ()]
        assert [run.keys for run in (await rig.view(other.id)).runs] == [("line-7",)]

    async def test_run_that_never_handed_over_has_no_keys(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_say(Failed, after_ms=0)
        await rig.worker.take_one()
        assert [run.keys for run in (await rig.view(job.id)).runs] == [(), ()]
