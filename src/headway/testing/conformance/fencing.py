"""Fencing: every write of a run that is no longer live is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from headway.contract.claims import Claimed
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
from headway.contract.store import InFlight
from headway.core.gates.pool import Pool
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.rig import SHORT, ConformanceGroup, Rig
from headway.testing.conformance.worker import LEASE_MS, PlayedWorker
from headway.testing.jobs import JobFields, use_of

LINE = Slots("line", 3)
PHONE = Slots("phone:{phone}", 1)
NUMBERS = Pool("numbers", {"+1": 1, "+2": 1})

SHAPES: dict[str, JobFields] = {
    "plain": {**SHORT},
    "shared": {**SHORT, "gates": (LINE,)},
    "keyed": {**SHORT, "gates": (use_of(PHONE, phone="1"),)},
    "pool": {**SHORT, "gates": (NUMBERS,)},
    "long way": {"key": None, "expires_at": None, "gates": (LINE, use_of(PHONE, phone="1"))},
}


class Scene(NamedTuple):
    """A worker that is about to lose its run."""

    rig: Rig
    worker: PlayedWorker
    run: Claimed


Ousting = Callable[[Scene], Awaitable[None]]


async def lose_the_lease(scene: Scene) -> None:
    """Let the lease end, and sweep."""
    await scene.rig.pass_time(LEASE_MS + 1)


async def outlive_the_lease(scene: Scene) -> None:
    """Let the lease end, without a sweep."""
    scene.rig.clock.advance(LEASE_MS + 1)


async def snooze(scene: Scene) -> None:
    """Snooze the run, and start the job again elsewhere."""
    await scene.worker.settle(Snoozed(scene.run.id, scene.run.run, after_ms=0))
    assert (await scene.rig.new_worker().take_one()).id == scene.run.id


async def hand_back(scene: Scene) -> None:
    """Hand the run back, and start the job again elsewhere."""
    await scene.worker.settle(Released(scene.run.id, scene.run.run))
    assert (await scene.rig.new_worker().take_one()).id == scene.run.id


async def start_elsewhere(scene: Scene) -> None:
    """Let the lease end, and start the job again elsewhere."""
    await scene.rig.pass_time(LEASE_MS + 1)
    scene.rig.clock.advance(100_000)
    assert (await scene.rig.new_worker().take_one()).id == scene.run.id


async def leave(scene: Scene) -> None:
    """Let the worker report that it leaves."""
    await scene.worker.beat(leaving=True)


async def kill(scene: Scene) -> None:
    """End the job as an operator."""
    await scene.rig.act(Verb.KILL, scene.run.id)


async def revive(scene: Scene) -> None:
    """End and retry the job as an operator, and start its new life elsewhere."""
    await scene.rig.act(Verb.KILL, scene.run.id)
    await scene.rig.act(Verb.RETRY, scene.run.id)
    assert (await scene.rig.new_worker().take_one()).id == scene.run.id


OUSTINGS: list[Ousting] = [
    lose_the_lease, outlive_the_lease, snooze, hand_back, start_elsewhere, leave, kill, revive,
]  # fmt: skip


def all_writes(run: Claimed) -> list[Outcome]:
    """Return outcomes of every kind for a run."""
    fence = (run.id, run.run)
    return [
        HandedOver(*fence, key="call-9", timeout_ms=1_000),
        KnownAs(*fence, key="sid-9"),
        Returned(*fence, error="late"),
        GaveBack(*fence, gate="line"),
        GaveBack(*fence, gate="phone:1"),
        FoundUnfit(*fence, reason="late"),
        Succeeded(*fence),
        Succeeded(*fence, result=b"9"),
        Succeeded(*fence, result=b'"' + b"9" * 1_000 + b'"'),
        Failed(*fence, error="late", after_ms=1),
        Died(*fence, reason="late"),
        Snoozed(*fence, after_ms=1),
        NextStage(*fence, stage="late"),
        Released(*fence),
    ]


Batch = Callable[[Outcome, Claimed], list[Outcome]]
"""Returns a batch that contains the outcome; the run is a different one, which the sender holds."""

BATCHES: dict[str, Batch] = {
    "alone": lambda outcome, _: [outcome],
    "behind a success": lambda outcome, own: [Succeeded(own.id, own.run), outcome],
    "before a success": lambda outcome, own: [outcome, Succeeded(own.id, own.run)],
    "behind a failure": lambda outcome, own: [Failed(own.id, own.run), outcome],
    "twice": lambda outcome, _: [outcome, outcome],
}


class Forgery(NamedTuple):
    """A fence with one wrong component."""

    sender: PlayedWorker
    fence: Claimed


async def earlier_run(_rig: Rig, owner: PlayedWorker, run: Claimed) -> Forgery:
    """Use the run before the live one, and the worker of both."""
    return Forgery(owner, run._replace(run=run.run - 1))


async def later_run(_rig: Rig, owner: PlayedWorker, run: Claimed) -> Forgery:
    """Use a run that has not started."""
    return Forgery(owner, run._replace(run=run.run + 1))


async def other_worker(rig: Rig, _owner: PlayedWorker, run: Claimed) -> Forgery:
    """Use the live run, and another worker."""
    return Forgery(rig.new_worker(), run)


async def other_job(rig: Rig, owner: PlayedWorker, run: Claimed) -> Forgery:
    """Use the live run's number, and a job that another worker holds."""
    job = await rig.add(lane="elsewhere", **SHORT)
    other = rig.new_worker()
    for _ in range(run.run):
        held = await other.take_one("elsewhere")
        if held.run < run.run:
            await other.settle(Released(held.id, held.run))
    return Forgery(owner, run._replace(id=job.id))


FORGERIES = [earlier_run, later_run, other_worker, other_job]


class FencingGroup(ConformanceGroup):
    """The fence is the job, its run and the worker's random id."""

    @pytest.mark.parametrize("awaits", [False, True], ids=["running", "awaiting"])
    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
    async def test_every_write_is_fenced_by_job_run_and_worker_in_every_batch(
        self,
        rig: Rig,
        forge: Callable[[Rig, PlayedWorker, Claimed], Awaitable[Forgery]],
        shape: str,
        awaits: bool,
    ) -> None:
        await rig.declare(LINE, PHONE, NUMBERS)
        job = await rig.add(**SHAPES[shape])
        owner = rig.new_worker()
        await owner.take_and_report(Released)
        run = await owner.take_one()
        if awaits:
            await owner.settle(HandedOver(run.id, run.run, key="call-1", timeout_ms=60_000))
        sender, fence = await forge(rig, owner, run)
        await rig.add_many(20, lane="own", **SHORT)
        # With the forged run's number: a store may write jobs of equal runs in one statement.
        for _ in range(1, fence.run):
            held = await sender.take(20, "own")
            await sender.settle(*(Released(one.id, one.run) for one in held))
        own = iter(await sender.take(20, "own"))
        child = rig.jobs.make()
        before = await rig.view(job.id), await rig.view(fence.id), await rig.gates()
        writes = all_writes(fence)
        closing = Closing(gate="line", for_ms=1)
        with_parts = [replace(one, then=(child,), close=(closing,)) for one in writes]
        last = next(own)
        batches = [writes, [Failed(last.id, last.run), *with_parts]]
        for outcome in writes:
            # Only a success may take a short path, and only if its whole batch does.
            if isinstance(outcome, Succeeded):
                batches += [batch(outcome, next(own)) for batch in BATCHES.values()]
        for sent in batches:
            verdicts = await sender.settle(*sent)
            for one, verdict in zip(sent, verdicts, strict=True):
                if one.job == fence.id:
                    assert verdict in {Verdict.LOST, Verdict.ALREADY}, one
                else:
                    assert verdict is Verdict.DONE, one
        reply = await sender.beat(
            (fence.id, fence.run), progress=[(fence.id, fence.run, b'{"done":9}')]
        )
        assert reply.lost == ((fence.id, fence.run),)
        after = await rig.view(job.id), await rig.view(fence.id), await rig.gates()
        assert after == before
        assert await rig.missing(child.id)
        if not awaits:
            assert await owner.finish(run) == [Verdict.DONE]

    @pytest.mark.parametrize("result", [None, b"9"], ids=["no result", "a result"])
    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("batch", BATCHES)
    async def test_success_releases_all_its_permits_in_every_batch(
        self, rig: Rig, batch: str, shape: str, result: bytes | None
    ) -> None:
        await rig.declare(LINE, PHONE, NUMBERS)
        await rig.cap("line", 1)
        jobs = await rig.add_many(6, **SHAPES[shape])
        await rig.add_many(6, lane="own", **SHORT)
        started: list[str] = []
        while runs := await rig.worker.take(6):
            for run in runs:
                (own,) = await rig.worker.take(1, "own")
                outcome = Succeeded(run.id, run.run, result=result)
                verdicts = await rig.worker.settle(*BATCHES[batch](outcome, own))
                assert Verdict.LOST not in verdicts
                started.append(run.id)
        assert started == [job.id for job in jobs]
        for state in await rig.gates():
            assert (state.used, state.holders) == (0, ()), state.name

    @pytest.mark.parametrize("lost_first", [False, True], ids=["behind", "before"])
    async def test_success_beside_a_stale_one_releases_only_its_own_permits(
        self, rig: Rig, lost_first: bool
    ) -> None:
        await rig.add_many(2, **SHAPES["shared"])
        own, stale = await rig.worker.take(2)
        await rig.worker.report(Released(stale.id, stale.run))
        live = await rig.new_worker().take_one()
        assert live.id == stale.id
        sent = [Succeeded(own.id, own.run), Succeeded(stale.id, stale.run)]
        await rig.worker.settle(*(reversed(sent) if lost_first else sent))
        assert await rig.state(own.id) is State.SUCCEEDED
        assert await rig.holders("line") == [live.id]

    @pytest.mark.parametrize("shape", ["plain", "shared", "long way"])
    @pytest.mark.parametrize("oust", OUSTINGS, ids=lambda oust: oust.__name__)
    async def test_every_write_of_a_stale_run_is_refused_and_changes_nothing(
        self, rig: Rig, oust: Ousting, shape: str
    ) -> None:
        await rig.declare(LINE, PHONE)
        run = await rig.start(**SHAPES[shape])
        await oust(Scene(rig, rig.worker, run))
        child = rig.jobs.make()
        closing = Closing(gate="line", for_ms=1)
        async with rig.unchanged("jobs", "gates", "stats"):
            for outcome in all_writes(run):
                verdict = await rig.worker.report(outcome)
                assert verdict in {Verdict.LOST, Verdict.ALREADY}, outcome
            for kind in (Succeeded, Released):
                await rig.worker.settle(kind(run.id, run.run, then=(child,), close=(closing,)))
        assert await rig.missing(child.id)

    @pytest.mark.parametrize("oust", OUSTINGS, ids=lambda oust: oust.__name__)
    async def test_beat_of_a_stale_run_returns_lost_and_leaves_the_job_unchanged(
        self, rig: Rig, oust: Ousting
    ) -> None:
        run = await rig.start(gates=(LINE,), expires_at=None)
        await oust(Scene(rig, rig.worker, run))
        reply = await rig.worker.beat(run, progress=[(run.id, run.run, b'{"done":9}')])
        assert reply.lost == ((run.id, run.run),)
        view = await rig.view(run.id)
        assert view.progress is None
        assert (view.state, view.worker) != (
            State.RUNNING,
            rig.worker.id,
        ) or oust is outlive_the_lease

    async def test_run_of_another_worker_is_not_settled(self, rig: Rig) -> None:
        await rig.add()
        worker, stranger = rig.new_worker(), rig.new_worker()
        run = await worker.take_one()
        await stranger.beat()
        for outcome in all_writes(run):
            assert await stranger.report(outcome) is Verdict.LOST, outcome
        assert await worker.finish(run) == [Verdict.DONE]

    async def test_restored_job_is_not_settled_by_its_former_worker(self, rig: Rig) -> None:
        job = rig.jobs.make()
        flight = InFlight(
            job=job, signal_key="call-1", since_at=rig.clock() - 9_000, deadline_ms=60_000
        )
        await rig.store.restore([flight])
        await rig.worker.beat()
        view = await rig.view(job.id)
        async with rig.unchanged():
            for run in {0, 1, view.run}:
                for kind in (Succeeded, Failed, Died, Snoozed, Released, HandedOver, GaveBack):
                    assert await rig.worker.report(kind(job.id, run)) is Verdict.LOST
        await rig.signal("call-1")
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_lease_is_valid_until_the_instant_it_ends(self, rig: Rig) -> None:
        run = await rig.start()
        rig.clock.advance(LEASE_MS - 1)
        await rig.sweep()
        assert await rig.worker.finish(run) == [Verdict.DONE]
