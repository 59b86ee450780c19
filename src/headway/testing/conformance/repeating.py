"""Repeated and simultaneous calls have the same effect as one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from headway.contract.definitions import (
    CloseGate,
    DeclareEntry,
    DeclareLane,
    EntrySpec,
    FireRequest,
    LaneSpec,
    SetGate,
)
from headway.contract.operate import Verb
from headway.contract.outcomes import (
    Died,
    Failed,
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
from headway.contract.signals import Decided, Signal, SignalKind
from headway.contract.store import InFlight
from headway.contract.views import AuditQuery
from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.job import FollowUp, NewJob
from headway.core.state import State
from headway.core.timetable.schedule import Every
from headway.testing.clock import START_AT, FakeClock
from headway.testing.conformance.rig import ConformanceGroup, MakeStore, Rig, policy_with
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.dump import compare, differences, dump
from headway.testing.faulty import Fault, FaultyStore
from headway.testing.jobs import use_of

LINE = Slots("line", 2)
PHONE = Slots("phone:{phone}", 1)
NUMBERS = Pool("numbers", {"a": 1, "b": 1}, strategy="round_robin")
TWILIO = Rate("rate:twilio", 3, "10s")
FOLLOWED = policy_with(on_final=FollowUp(kind="alert", states=(State.SUCCEEDED, State.DEAD)))


@dataclass(slots=True)
class Story:
    """A busy store, with jobs queued, parked, running and handed over."""

    rig: Rig
    worker: PlayedWorker
    jobs: list[NewJob]

    @classmethod
    async def begin(cls, rig: Rig) -> Story:
        """Create the jobs, and a worker that runs some of them."""
        await rig.declare(LINE, PHONE, NUMBERS, TWILIO)
        uses = (use_of(LINE), use_of(NUMBERS), use_of(TWILIO), use_of(PHONE, phone="1"))
        jobs = [
            await rig.add(gates=uses, policy=FOLLOWED),
            await rig.add(gates=uses[3:], policy=FOLLOWED),
            await rig.add(policy=FOLLOWED),
            await rig.add(gates=uses[:3], policy=FOLLOWED),
            await rig.add(due_at=rig.clock() + 5_000),
            await rig.add(gates=uses[:3]),
        ]
        worker = rig.new_worker()
        runs = await worker.take(9)
        held = {run.id for run in runs}
        assert {jobs[0].id, jobs[2].id, jobs[3].id} == held
        await worker.report(HandedOver(jobs[3].id, 1, key="call-1", timeout_ms=60_000))
        rig.clock.advance(40)
        return cls(rig=rig, worker=worker, jobs=jobs)


Act = Callable[[Story], Awaitable[object]]


def _settle(outcome: Callable[[str], Outcome]) -> Act:
    """Return the settlement of the running gated job with an outcome."""
    return lambda story: story.worker.report(outcome(story.jobs[0].id))


_PLAIN = NewJob(id="00000000-0000-4000-8000-0000000000bb", kind="tidy")
_CHILD = NewJob(id="00000000-0000-4000-8000-0000000000aa", kind="alert", due_at=START_AT)
_ENTRY = EntrySpec(name="nightly", schedule=Every(60_000), job=_PLAIN)
_ENDED = Signal(key="call-1", event="event-1")
_EXTRA = NewJob(
    id="00000000-0000-4000-8000-0000000000cc", kind="dial", key="extra", due_at=START_AT
)


async def _fire(story: Story) -> object:
    moments = (START_AT + 60_000, START_AT + 120_000)
    return await story.rig.store.fire(
        FireRequest(entry="nightly", revision=1, moments=moments, ahead_until=moments[-1])
    )


def _signal(signal: Signal) -> Act:
    return lambda story: story.rig.store.signal(signal)


ACTS: dict[str, Act] = {
    "enqueue": lambda story: story.rig.enqueue(_EXTRA, _EXTRA.changed(id=_PLAIN.id)),
    "claim": lambda story: story.worker.repeat(5, request=7),
    "settle succeeded": _settle(lambda job: Succeeded(job, 1, result=b"1", then=(_CHILD,))),
    "settle failed": _settle(lambda job: Failed(job, 1, error="boom", then=(_CHILD,))),
    "settle died": _settle(lambda job: Died(job, 1, reason="bad")),
    "settle snoozed": _settle(lambda job: Snoozed(job, 1, after_ms=70)),
    "settle next": _settle(lambda job: NextStage(job, 1, stage="two", gates=(use_of(LINE),))),
    "settle released": _settle(lambda job: Released(job, 1)),
    "settle handed over": _settle(lambda job: HandedOver(job, 1, key="k", timeout_ms=9_000)),
    "settle known as": _settle(lambda job: KnownAs(job, 1, key="CA77")),
    "settle gave back": _settle(lambda job: GaveBack(job, 1, gate="phone:1")),
    "settle returned": lambda story: story.worker.report(Returned(story.jobs[3].id, 1, error="x")),
    "beat": lambda story: story.worker.beat(
        (story.jobs[0].id, 1),
        request=1,
        progress=[(story.jobs[0].id, 1, b"5")],
    ),
    "beat leaving": lambda story: story.worker.beat(leaving=True),
    "signal succeeded": _signal(replace(_ENDED, body=b"1")),
    "signal retry": _signal(replace(_ENDED, decided=Decided.RETRY, after_ms=500)),
    "signal dead": _signal(replace(_ENDED, decided=Decided.DEAD, reason="gone")),
    "signal progress": _signal(
        replace(_ENDED, kind=SignalKind.PROGRESS, extend_ms=99_000, body=b"2")
    ),
    "signal note": _signal(replace(_ENDED, kind=SignalKind.NOTE, label="RINGING")),
    "signal early": _signal(replace(_ENDED, key="not yet")),
    "restore": lambda story: story.rig.store.restore(
        [InFlight(job=_EXTRA, signal_key="call-9", since_at=START_AT, deadline_ms=9_000)]
    ),
    "act cancel": lambda story: story.rig.act(
        Verb.CANCEL, *(job.id for job in story.jobs), request="once"
    ),
    "act kill": lambda story: story.rig.act(
        Verb.KILL, *(job.id for job in story.jobs), request="once"
    ),
    "act run now": lambda story: story.rig.act(Verb.RUN_NOW, story.jobs[4].id, request="once"),
    "define close": lambda story: story.rig.define(CloseGate(name="all", until_at=START_AT * 2)),
    "define set": lambda story: story.rig.define(SetGate(name="line", capacity=9)),
    "define cap": lambda story: story.rig.define(SetGate(name="tenant:acme", capacity=3)),
    "define lane": lambda story: story.rig.define(
        DeclareLane(spec=LaneSpec(name="calls", concurrency=5))
    ),
    "define entry": lambda story: story.rig.define(DeclareEntry(spec=_ENTRY)),
    "release_permit": lambda story: story.rig.store.release_permit(
        "phone:1", story.jobs[0].id, "bob", "stuck"
    ),
    "sweep": lambda story: story.rig.store.sweep(100),
    "lead": lambda story: story.rig.store.lead("alerts", "one", 9_000),
}


class RepeatGroup(ConformanceGroup):
    """After a lost reply, repeating the call is safe."""

    @pytest_asyncio.fixture
    async def other(self, make_store: MakeStore) -> AsyncIterator[Rig]:
        """Yield a second store, behind a connection that can fail."""
        clock = FakeClock()
        store = make_store(clock)
        try:
            yield Rig(FaultyStore(store), clock)
        finally:
            await store.close()

    @pytest.mark.parametrize("name", list(ACTS))
    async def test_repeated_operation_leaves_the_state_of_one_execution(
        self, rig: Rig, other: Rig, name: str
    ) -> None:
        once, twice = await Story.begin(rig), await Story.begin(other)
        faulty = other.store
        assert isinstance(faulty, FaultyStore)
        if name == "claim":
            for story in (once, twice):
                await story.worker.settle(*(Succeeded(job.id, 1) for job in story.jobs[:3]))
        await ACTS[name](once)
        faulty.plan(Fault.CUT)
        with pytest.raises(OutcomeUnknown):
            await ACTS[name](twice)
        await ACTS[name](twice)
        assert compare(await dump(rig.store), await dump(faulty.inner)) == []
        await other.check()

    @pytest.mark.parametrize("name", list(ACTS))
    async def test_refused_operation_writes_nothing(self, other: Rig, name: str) -> None:
        story = await Story.begin(other)
        faulty = other.store
        assert isinstance(faulty, FaultyStore)
        before = await dump(faulty.inner)
        faulty.plan(Fault.REFUSE)
        with pytest.raises(StoreUnavailable):
            await ACTS[name](story)
        assert compare(before, await dump(faulty.inner)) == []

    async def test_repeated_fire_creates_each_job_once(self, rig: Rig, other: Rig) -> None:
        stories = [await Story.begin(one) for one in (rig, other)]
        faulty = other.store
        assert isinstance(faulty, FaultyStore)
        for story in stories:
            await story.rig.define(DeclareEntry(spec=_ENTRY))
        await _fire(stories[0])
        faulty.plan(Fault.CUT, operation="fire")
        with pytest.raises(OutcomeUnknown):
            await _fire(stories[1])
        await _fire(stories[1])
        assert compare(await dump(rig.store), await dump(faulty.inner)) == []

    async def test_claims_with_lost_replies_start_each_job_once_and_use_no_attempt(
        self, other: Rig
    ) -> None:
        faulty = other.store
        assert isinstance(faulty, FaultyStore)
        jobs = await other.add_many(20)
        worker = other.new_worker()
        got: list[str] = []
        while len(got) < 20:
            faulty.plan(Fault.CUT, operation="claim")
            with pytest.raises(OutcomeUnknown):
                await worker.ask(3)
            runs = (await worker.repeat(3)).jobs
            faulty.plan(Fault.CUT, operation="settle")
            with pytest.raises(OutcomeUnknown):
                await worker.finish(*runs)
            await worker.finish(*runs)
            got += [run.id for run in runs]
        assert got == [job.id for job in jobs]
        views = [await other.view(job.id) for job in jobs]
        assert {(view.run, view.attempt, view.state) for view in views} == {(1, 1, "succeeded")}
        assert await other.total("started") == 20


TRUNK = Slots("line", 3)
REPO = Slots("repo:{url}", 1)
POOL = Pool("numbers", {"a": 1, "b": 2})
JOBS = 60


async def fill(rig: Rig) -> list[str]:
    """Enqueue jobs that compete for locks, pools and slots, and return their ids."""
    await rig.declare(TRUNK, REPO, POOL)
    jobs = [
        rig.jobs.make(gates=((TRUNK,), (use_of(REPO, url=n % 4),), (POOL,), ())[n % 4])
        for n in range(JOBS)
    ]
    await rig.enqueue(*jobs)
    return [job.id for job in jobs]


async def drain(rig: Rig, worker: PlayedWorker, done: Counter[str]) -> None:
    """Claim and settle until all jobs are done.

    Raises:
        AssertionError: 1000 claims did not suffice.
    """
    for _ in range(1_000):
        runs = await worker.take(3)
        for run in runs:
            assert await worker.finish(run) == [Verdict.DONE]
            done[run.id] += 1
        if done.total() >= JOBS:
            return
        assert await differences(rig.store) == []
    message = "a thousand claims did not suffice"
    raise AssertionError(message)


def drain_in_a_loop(rig: Rig, worker: PlayedWorker, done: Counter[str]) -> None:
    """Run `drain` in a separate event loop."""
    asyncio.run(drain(rig, worker, done))


class RaceGroup(ConformanceGroup):
    """Operations that overlap; each is one step."""

    async def test_racing_workers_do_each_job_once(self, rig: Rig) -> None:
        ids = await fill(rig)
        done = Counter[str]()
        await asyncio.gather(*(drain(rig, rig.new_worker(), done) for _ in range(5)))
        assert done == Counter(ids)

    async def test_operation_can_be_awaited_from_any_loop_in_any_thread(self, rig: Rig) -> None:
        ids = await fill(rig)
        done = Counter[str]()
        workers = [rig.new_worker() for _ in range(3)]
        await asyncio.gather(
            *(asyncio.to_thread(drain_in_a_loop, rig, worker, done) for worker in workers)
        )
        assert done == Counter(ids)

    async def test_racing_settlements_of_one_run_are_written_once(self, rig: Rig) -> None:
        run = await rig.start(gates=(TRUNK,))
        outcomes = [Succeeded(run.id, run.run), Failed(run.id, run.run)] * 5
        verdicts = await asyncio.gather(*(rig.worker.report(outcome) for outcome in outcomes))
        assert Counter(verdicts) == {Verdict.DONE: 1, Verdict.ALREADY: 9}
        assert await rig.state(run.id) in {State.SUCCEEDED, State.SCHEDULED}
        assert await rig.used("line") == 0

    async def test_racing_sweepers_do_each_thing_once(self, rig: Rig) -> None:
        await rig.add_many(20)
        await rig.worker.take(20)
        rig.clock.advance(60_000)
        replies = await asyncio.gather(*(rig.store.sweep(100) for _ in range(5)))
        assert sum(reply.lost for reply in replies) == 20
        assert await rig.total("lost") == 20

    async def test_audit_is_read_in_pages_that_cover_everything_once(self, rig: Rig) -> None:
        await fill(rig)
        runs = await rig.worker.take(30)
        cursor: str | None = None
        held = permits = pages = 0
        while True:
            page = await rig.store.read(AuditQuery(cursor=cursor, limit=2))
            assert page.differences == ()
            held, permits, pages = held + page.held, permits + page.permits, pages + 1
            cursor = page.cursor
            if cursor is None:
                break
        assert held == len(runs)
        assert permits == sum(run.gated for run in runs)
        assert pages > 1

    async def test_audit_is_read_to_its_end_whatever_characters_a_gates_name_has(
        self, rig: Rig
    ) -> None:
        await rig.add_many(3, gates=(Slots("a\x1fb", 3),))
        await rig.worker.take(3)
        cursor: str | None = None
        permits = 0
        for _ in range(9):
            page = await rig.store.read(AuditQuery(cursor=cursor, limit=1))
            permits, cursor = permits + page.permits, page.cursor
            if cursor is None:
                break
        assert (permits, cursor) == (3, None)
