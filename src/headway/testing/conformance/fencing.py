"""Fencing: every write of a run that is not live any more is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from headway.contract.claims import Claimed
from headway.contract.enqueue import InFlight
from headway.contract.operate import Verb
from headway.contract.outcomes import (
    Closing,
    Died,
    Failed,
    FoundUnfit,
    GaveBack,
    HandedOver,
    KnownAs,
    NextStage,
    Outcome,
    Released,
    Returned,
    Snoozed,
    Succeeded,
    Verdict,
)
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LEASE_MS, PlayedWorker
from headway.testing.jobs import use_of

LINE = Slots("line", 3)
PHONE = Slots("phone:{phone}", 1)


class Scene(NamedTuple):
    """A worker with a run that is about to lose it."""

    rig: Rig
    worker: PlayedWorker
    run: Claimed


Ousting = Callable[[Scene], Awaitable[None]]


async def lose_the_lease(scene: Scene) -> None:
    """The lease ends, and a sweep sees it."""
    await scene.rig.pass_time(LEASE_MS + 1)


async def outlive_the_lease(scene: Scene) -> None:
    """The lease ends, and nobody has looked yet."""
    scene.rig.clock.advance(LEASE_MS + 1)


async def snooze(scene: Scene) -> None:
    """The run was snoozed, and the job has started again elsewhere."""
    await scene.worker.settle(Snoozed(scene.run.id, scene.run.run, after_ms=0))
    assert (await scene.rig.worker().take_one()).id == scene.run.id


async def hand_back(scene: Scene) -> None:
    """The run was handed back, and the job has started again elsewhere."""
    await scene.worker.settle(Released(scene.run.id, scene.run.run))
    assert (await scene.rig.worker().take_one()).id == scene.run.id


async def start_elsewhere(scene: Scene) -> None:
    """The lease ended, and the job has started again elsewhere."""
    await scene.rig.pass_time(LEASE_MS + 1)
    scene.rig.clock.advance(100_000)
    assert (await scene.rig.worker().take_one()).id == scene.run.id


async def leave(scene: Scene) -> None:
    """The worker has said that it holds nothing."""
    await scene.worker.beat(leaving=True)


async def kill(scene: Scene) -> None:
    """An operator ended the job."""
    await scene.rig.act(Verb.KILL, scene.run.id)


async def revive(scene: Scene) -> None:
    """An operator ended the job and began a new life, which has started elsewhere."""
    await scene.rig.act(Verb.KILL, scene.run.id)
    await scene.rig.act(Verb.RETRY, scene.run.id)
    assert (await scene.rig.worker().take_one()).id == scene.run.id


OUSTINGS: list[Ousting] = [
    lose_the_lease, outlive_the_lease, snooze, hand_back, start_elsewhere, leave, kill, revive,
]  # fmt: skip


def all_writes(run: Claimed) -> list[Outcome]:
    """One outcome of each sort."""
    fence = (run.id, run.run)
    return [
        HandedOver(*fence, key="call-9", timeout_ms=1_000),
        KnownAs(*fence, key="sid-9"),
        Returned(*fence, error="late"),
        GaveBack(*fence, gate="line"),
        GaveBack(*fence, gate="phone:1"),
        FoundUnfit(*fence, reason="late"),
        Succeeded(*fence, result=b"9"),
        Failed(*fence, error="late", after_ms=1),
        Died(*fence, reason="late"),
        Snoozed(*fence, after_ms=1),
        NextStage(*fence, stage="late"),
        Released(*fence),
    ]


class FencingGroup(ConformanceGroup):
    """The fence is the job, its run and the worker's random id."""

    @pytest.mark.parametrize("oust", OUSTINGS, ids=lambda oust: oust.__name__)
    async def test_every_write_of_a_stale_run_is_refused_and_changes_nothing(
        self, rig: Rig, oust: Ousting
    ) -> None:
        await rig.declare(LINE, PHONE)
        await rig.add(gates=(use_of(LINE), use_of(PHONE, phone="1")), expires_at=None)
        worker = rig.worker()
        run = await worker.take_one()
        await oust(Scene(rig, worker, run))
        before = await rig.dump()
        child = rig.jobs.make()
        closing = Closing(gate="line", for_ms=1)
        for outcome in all_writes(run):
            verdict = await worker.say(outcome)
            assert verdict in {Verdict.LOST, Verdict.ALREADY}, outcome
        for kind in (Succeeded, Released):
            await worker.settle(kind(run.id, run.run, then=(child,), close=(closing,)))
        after = await rig.dump()
        assert after.jobs == before.jobs
        assert after.gates == before.gates
        assert after.stats == before.stats
        assert await rig.missing(child.id)

    @pytest.mark.parametrize("oust", OUSTINGS, ids=lambda oust: oust.__name__)
    async def test_beat_of_a_stale_run_says_lost_and_changes_nothing_of_the_job(
        self, rig: Rig, oust: Ousting
    ) -> None:
        await rig.declare(LINE)
        job = await rig.add(gates=(use_of(LINE),), expires_at=None)
        worker = rig.worker()
        run = await worker.take_one()
        await oust(Scene(rig, worker, run))
        reply = await worker.beat(run, progress=[(run.id, run.run, b'{"done":9}')])
        assert reply.lost == ((run.id, run.run),)
        view = await rig.view(job.id)
        assert view.progress is None
        assert (view.state, view.worker) != (State.RUNNING, worker.id) or oust is outlive_the_lease

    async def test_run_of_another_worker_is_not_settled(self, rig: Rig) -> None:
        await rig.add()
        worker, stranger = rig.worker(), rig.worker()
        run = await worker.take_one()
        await stranger.beat()
        for outcome in all_writes(run):
            assert await stranger.say(outcome) is Verdict.LOST, outcome
        assert await worker.say(Succeeded(run.id, run.run)) is Verdict.DONE

    async def test_restored_job_is_not_settled_by_the_worker_that_had_it(self, rig: Rig) -> None:
        job = rig.jobs.make()
        flight = InFlight(
            job=job, signal_key="call-1", since_at=rig.clock() - 9_000, deadline_ms=60_000
        )
        await rig.store.restore([flight])
        worker = rig.worker()
        await worker.beat()
        view = await rig.view(job.id)
        before = await rig.dump()
        for run in {0, 1, view.run}:
            for kind in (Succeeded, Failed, Died, Snoozed, Released, HandedOver, GaveBack):
                assert await worker.say(kind(job.id, run)) is Verdict.LOST
        assert (await rig.dump()).jobs == before.jobs
        await rig.tell("call-1")
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_lease_that_has_ended_is_not_revived_by_a_beat(self, rig: Rig) -> None:
        job = await rig.add()
        worker = rig.worker()
        run = await worker.take_one()
        rig.clock.advance(LEASE_MS)
        assert (await worker.beat(run)).lost == ((run.id, run.run),)
        await rig.sweep()
        assert await rig.state(job.id) is State.SCHEDULED

    async def test_lease_lives_until_the_moment_it_ends(self, rig: Rig) -> None:
        await rig.add()
        worker = rig.worker()
        run = await worker.take_one()
        rig.clock.advance(LEASE_MS - 1)
        await rig.sweep()
        assert await worker.say(Succeeded(run.id, run.run)) is Verdict.DONE
