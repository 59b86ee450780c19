"""Jobs from elsewhere: the content of another store, and work that is already under way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from headway.contract.definitions import (
    DeclareEntry,
    DeclareLane,
    EntrySpec,
    FireRequest,
    LaneSpec,
    NoteUse,
    ResetLane,
    SetLane,
    SetToken,
)
from headway.contract.extensions import ExportChunk, Movable
from headway.contract.operate import Edit, Verb
from headway.contract.outcomes import Failed, HandedOver, Succeeded
from headway.contract.signals import Decided, SignalResult
from headway.contract.store import InFlight, Sent
from headway.contract.views import TimetableQuery
from headway.core.errors import InvalidValue, KeyConflict, UnknownGate
from headway.core.gates.opening import Hours
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.job import FollowUp, NewJob
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.core.timetable.schedule import Every
from headway.testing.conformance.accepting import LOCK, accepted, ref
from headway.testing.conformance.granting import ORDERS, SENDER
from headway.testing.conformance.rig import ConformanceGroup, MakeStore, Rig, dial, policy_with
from headway.testing.conformance.worker import LANE
from headway.testing.dump import Dump, unnumbered
from headway.testing.jobs import keyed, use_of

LINE = Slots("line", 2)
PHONE = Slots("phone:{phone}", 1)
NUMBERS = Pool("numbers", {"a": 1, "b": 2})
OFTEN = Rate("often:{phone}", 2, "1h")
OFFICE = Hours("hours:office", "00:00-24:00", tz="Europe/Berlin")


async def carry(source: Rig, target: Rig, times: int = 1) -> list[ExportChunk]:
    """Copy everything, importing each chunk several times, as after lost replies."""
    assert isinstance(source.store, Movable)
    assert isinstance(target.store, Movable)
    chunks: list[ExportChunk] = []
    cursor: str | None = None
    while True:
        chunk = await source.store.export_chunk(cursor)
        chunks.append(chunk)
        for _ in range(times):
            await target.store.import_chunk(chunk)
        cursor = chunk.cursor
        if cursor is None:
            return chunks


def standing(dump: Dump) -> Dump:
    """Return what a copy must show: everything except workers and the definitions' revision.

    Rows get new numbers, because a copy lacks the gaps left by rolled-back steps.
    """
    lanes = tuple(replace(lane, workers=0) for lane in dump.lanes)
    stats = replace(dump.stats, revision=0)
    return replace(unnumbered(dump), workers=(), lanes=lanes, stats=stats)


async def busy(rig: Rig) -> dict[str, str]:
    """Fill a store with some of everything, and return the ids of jobs by situation."""
    await rig.declare(LINE, PHONE, NUMBERS, OFTEN, OFFICE)
    await rig.define(
        DeclareLane(spec=LaneSpec(name="fair", fair="tenant", weights=(("acme", 2),))),
        DeclareEntry(
            spec=EntrySpec(
                name="nightly", schedule=Every(60_000), job=rig.jobs.make(expires_at=None, key=None)
            )
        ),
        SetLane(spec=LaneSpec(name="quiet", concurrency=1)),
        ResetLane(name="quiet"),
        SetToken(spec=ORDERS),
        SetToken(spec=SENDER),
        NoteUse(used=((SENDER.id, rig.clock()),)),
    )
    call = await dial(
        rig,
        gates=(NUMBERS, use_of(PHONE, phone="1"), use_of(OFTEN, phone="1"), OFFICE),
    )
    parked = await rig.add(gates=(use_of(PHONE, phone="1"),), priority=2)
    for tenant in ("acme", "beta"):
        await rig.add_many(2, lane="fair", tenant=tenant)
    fair = rig.new_worker()
    for run in await fair.take(3, "fair"):
        await fair.finish(run)
    worker = rig.new_worker()
    await worker.take(5)
    failing = await rig.add(priority=0, policy=policy_with(retry=RetryPolicy(attempts=2)))
    await worker.take_and_report(Failed, error="boom")
    keyed = await rig.add(key="k1", tenant="acme", due_at=rig.clock() + 5_000)
    called_off = await rig.add()
    await rig.cancel(called_off.id)
    await rig.cap("all", 50)
    await rig.close_gate("tenant:beta", rig.clock() + 90_000)
    await rig.signal("call-not-there-yet", event="early")
    (entry,) = await rig.store.read(TimetableQuery())
    await rig.store.fire(
        FireRequest(
            entry="nightly",
            revision=entry.revision,
            moments=(rig.clock() + 60_000,),
            ahead_until=rig.clock() + 60_000,
        )
    )
    return {
        "call": call.id,
        "parked": parked.id,
        "failing": failing.id,
        "keyed": keyed.id,
        "cancelled": called_off.id,
    }


class MovingGroup(ConformanceGroup):
    """A copy is equal to its source, except for workers."""

    @pytest_asyncio.fixture
    async def target(self, rig: Rig, make_store: MakeStore) -> AsyncIterator[Rig]:
        """Yield a second, empty store with the same clock."""
        store = make_store(rig.clock)
        target = Rig(store, rig.clock)
        # The copy continues with new jobs, not with ids that were imported.
        target.jobs = rig.jobs
        try:
            yield target
            await target.check()
        finally:
            await store.close()

    @pytest.mark.parametrize("times", [1, 2])
    async def test_copy_returns_everything_that_the_store_returned_once(
        self, rig: Rig, target: Rig, times: int
    ) -> None:
        await busy(rig)
        await carry(rig, target, times)
        assert standing(await target.dump()) == standing(await rig.dump())

    @pytest.mark.parametrize("part", ["templates", "tokens"])
    async def test_imported_definitions_make_a_new_revision(
        self, rig: Rig, target: Rig, part: str
    ) -> None:
        await rig.declare(LINE)
        await rig.define(SetToken(spec=ORDERS))
        chunks = await carry(rig, target)
        before = (await target.dump()).stats.revision
        assert isinstance(target.store, Movable)
        for chunk in chunks:
            if chunk.part == part:
                await target.store.import_chunk(chunk)
        assert (await target.dump()).stats.revision > before

    async def test_copy_continues_where_the_store_stopped(self, rig: Rig, target: Rig) -> None:
        ids = await busy(rig)
        await carry(rig, target)
        assert await target.state(ids["parked"]) is State.PARKED
        assert (await target.signal("call-1")).answer is SignalResult.APPLIED
        assert await target.state(ids["call"]) is State.SUCCEEDED
        assert await target.used("numbers") == 0
        worker = target.new_worker()
        assert await worker.take_ids() == [ids["parked"]]
        again = target.jobs.make(key="k1", tenant="acme")
        kept = await target.view(ids["keyed"])
        same = again.changed(kind=kept.kind, lane=kept.lane, subject=kept.subject, args=kept.args)
        assert await target.enqueue(same) == [Sent(ids["keyed"], created=False)]
        assert (await target.signal("call-1", event="event-x")).answer is SignalResult.LATE

    async def test_copy_keeps_rate_usage_and_early_signals(self, rig: Rig, target: Rig) -> None:
        await busy(rig)
        await carry(rig, target)
        await target.signal("call-1")
        first, second = [
            await target.add(gates=(use_of(OFTEN, phone="1"),), priority=0) for _ in range(2)
        ]
        worker = target.new_worker()
        taken = await worker.take_ids(5)
        assert first.id in taken
        assert second.id not in taken
        early = await dial(target, key="call-not-there-yet")
        assert await target.state(early.id) is State.SUCCEEDED

    async def test_copy_keeps_what_is_reserved_for_a_job(self, rig: Rig, target: Rig) -> None:
        await rig.declare(LINE)
        call = await dial(rig, gates=(use_of(LINE),))
        large = await rig.add(gates=(keyed(LINE, 2),))
        assert await rig.worker.take(9) == []
        small = await rig.add(gates=(use_of(LINE),))
        await carry(rig, target)
        assert (await target.gate("line")).reserved_for == large.id
        assert standing(await target.dump()) == standing(await rig.dump())
        worker = target.new_worker()
        assert await worker.take(9) == []
        await target.signal(call.key)
        assert await worker.take_ids(9) == [large.id]
        await worker.report(Succeeded(large.id, 1))
        assert await worker.take_ids(9) == [small.id]

    async def test_copy_applies_early_signals_in_the_order_of_their_arrival(
        self, rig: Rig, target: Rig
    ) -> None:
        await rig.signal("call-1", event="b", body=b"1")
        rig.clock.advance(1)
        await rig.signal("call-1", Decided.DEAD, event="a")
        await carry(rig, target)
        early = await dial(target, key="call-1")
        view = await target.view(early.id)
        assert (view.state, view.result) == (State.SUCCEEDED, b"1")

    async def test_accepted_job_keeps_awaiting_in_the_copy(self, rig: Rig, target: Rig) -> None:
        run = await accepted(rig, "ann", "bob")
        waiting = await rig.add()
        gates = (use_of(LOCK),)
        await rig.signal("later", Decided.RETRY, after_ms=0, stage="check", gates=gates)
        await carry(rig, target)
        assert standing(await target.dump()) == standing(await rig.dump())
        worker = target.new_worker()
        assert waiting.id in await worker.take_ids(9)
        await worker.report(HandedOver(waiting.id, 1, key="later", timeout_ms=60_000))
        moved = await target.view(waiting.id)
        assert (moved.state, moved.stage, moved.gates) == (State.WAITING, "check", gates)
        assert (
            await target.signal(ref(run), Decided.ACCEPTED, event="sms")
        ).answer is SignalResult.LATE
        await target.pass_time(1_000_000)
        assert await target.holders("lock:ann") == [run.id]
        assert (await target.signal(ref(run), event="done")).state == State.SUCCEEDED
        assert await target.used("lock:ann") == 0

    async def test_large_store_is_copied_in_chunks(self, rig: Rig, target: Rig) -> None:
        jobs = [job for n in (1000, 1000, 300) for job in await rig.add_many(n, lane=LANE)]
        chunks = await carry(rig, target)
        assert [one.size for one in chunks if one.part == "jobs"] == [1000, 1000, 300]
        assert await target.new_worker().take_ids(3) == [job.id for job in jobs[:3]]

    async def test_chunks_of_large_jobs_contain_fewer(self, rig: Rig, target: Rig) -> None:
        await rig.declare(LINE)
        args = b'"' + b"x" * 900_000 + b'"'
        large = [await rig.add(args=args) for _ in range(20)]
        small = await rig.add_many(3)
        chunks = [one for one in await carry(rig, target) if one.part == "jobs"]
        assert max(len(one.rows) for one in chunks) < 17_000_000
        assert sum(one.size for one in chunks) == 23
        taken = await target.new_worker().take_ids(25)
        assert taken == [job.id for job in (*large, *small)]
        assert (await target.view(large[-1].id)).args == args

    async def test_invalid_cursor_and_chunk_are_refused(self, rig: Rig) -> None:
        assert isinstance(rig.store, Movable)
        with pytest.raises(InvalidValue, match="not a cursor"):
            await rig.store.export_chunk("nonsense")
        chunk = ExportChunk(part="jobs", rows=b"\x91\x01", size=1, cursor=None)
        with pytest.raises(InvalidValue, match="cannot be read"):
            await rig.store.import_chunk(chunk)
        with pytest.raises(InvalidValue, match="'toys'"):
            await rig.store.import_chunk(replace(chunk, part="toys"))


SINGLE = Slots("line", 1)
PAIR = Pool("numbers", {"a": 1, "b": 1})
TWILIO = Rate("rate:twilio", 1, "10s")


def under_way(rig: Rig, job: NewJob, key: str, **members: str) -> InFlight:
    """Return a job whose work started a minute ago and has ten minutes left."""
    return InFlight(
        job=job,
        signal_key=key,
        since_at=rig.clock() - 60_000,
        deadline_ms=600_000,
        members=members,
    )


class RestoreGroup(ConformanceGroup):
    """Work in the outside world, recorded as it is."""

    async def test_restored_job_holds_nothing_at_a_pool_without_members(self, rig: Rig) -> None:
        empty = Pool("numbers", {})
        await rig.declare(empty)
        job = rig.jobs.make(gates=(empty,))
        assert await rig.store.restore([under_way(rig, job, "call-1")]) == [
            Sent(job.id, created=True)
        ]
        assert await rig.state(job.id) is State.AWAITING

    async def test_restored_job_awaits_uncertain_with_its_permits(self, rig: Rig) -> None:
        await rig.declare(SINGLE, PAIR, PHONE)
        gates = (use_of(SINGLE), use_of(PAIR), use_of(PHONE, phone="1"))
        job = rig.jobs.make(gates=gates)
        reply = await rig.store.restore([under_way(rig, job, "call-1", numbers="b")])
        assert reply == [Sent(job.id, created=True)]
        view = await rig.view(job.id)
        assert (view.state, view.in_doubt) == (State.AWAITING, True)
        assert view.deadline_at == rig.clock() + 600_000
        assert await rig.holders("line") == [job.id]
        assert await rig.holders("phone:1") == [job.id]
        members = {one.name: one.used for one in (await rig.gate("numbers")).members}
        assert members == {"numbers/a": 0, "numbers/b": 1}

    @pytest.mark.parametrize("ahead_ms", [-60_000, 0, 7_000])
    async def test_restored_job_was_created_before_its_run_started(
        self, rig: Rig, ahead_ms: int
    ) -> None:
        began_at = rig.clock() + ahead_ms
        job = rig.jobs.make()
        flight = replace(under_way(rig, job, "call-1"), since_at=began_at)
        await rig.store.restore([flight])
        view = await rig.view(job.id)
        assert view.created_at == min(rig.clock(), began_at)
        assert view.runs[0].claimed_at == began_at

    async def test_job_queued_here_is_never_adopted_before_its_creation(self, rig: Rig) -> None:
        job = await rig.add()
        created_at = rig.clock()
        flight = replace(under_way(rig, job, "call-1"), newer=True)
        await rig.store.restore([flight])
        view = await rig.view(job.id)
        assert view.state is State.AWAITING
        assert view.created_at == view.runs[0].claimed_at == created_at

    async def test_work_in_flight_is_restored_even_if_its_lane_is_full(self, rig: Rig) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name=LANE, max_backlog=1)))
        await rig.add()
        job = rig.jobs.make()
        reply = await rig.store.restore([under_way(rig, job, "call-1")])
        assert reply == [Sent(job.id, created=True)]
        assert await rig.state(job.id) is State.AWAITING

    async def test_restored_job_is_never_dispatched(self, rig: Rig) -> None:
        job = rig.jobs.make()
        await rig.store.restore([under_way(rig, job, "call-1")])
        await rig.pass_time(500_000)
        assert await rig.worker.take(5) == []

    async def test_restored_job_ends_by_its_signal_and_releases_its_permits(self, rig: Rig) -> None:
        await rig.declare(SINGLE)
        job = rig.jobs.make(gates=(SINGLE,))
        waiting = await rig.add(gates=(SINGLE,))
        await rig.store.restore([under_way(rig, job, "call-1")])
        assert await rig.worker.take(5) == []
        assert (await rig.signal("call-1")).answer is SignalResult.APPLIED
        assert await rig.state(job.id) is State.SUCCEEDED
        assert await rig.worker.take_ids(5) == [waiting.id]

    async def test_permits_of_running_jobs_are_taken_even_above_the_capacity(
        self, rig: Rig
    ) -> None:
        await rig.declare(SINGLE)
        jobs = rig.jobs.many(3, gates=(SINGLE,))
        flights = [under_way(rig, job, f"call-{n}") for n, job in enumerate(jobs)]
        await rig.store.restore(flights)
        gate = await rig.gate("line")
        assert (gate.used, gate.free, gate.open) == (3, 0, False)
        await rig.check()
        await rig.signal("call-0")
        await rig.signal("call-1")
        later = await rig.add(gates=(SINGLE,))
        assert await rig.worker.take(5) == []
        await rig.signal("call-2")
        assert await rig.worker.take_ids(5) == [later.id]

    @pytest.mark.parametrize("state", [State.AWAITING, State.WAITING])
    async def test_restoring_again_by_key_leaves_the_job_unchanged(
        self, rig: Rig, state: State
    ) -> None:
        job = rig.jobs.make()
        if state is State.WAITING:
            await rig.enqueue(job)
        else:
            await rig.store.restore([under_way(rig, job, "call-1")])
        again = job.changed(id=rig.jobs.make().id)
        reply = await rig.store.restore([under_way(rig, again, "call-1")])
        assert reply == [Sent(job.id, created=False)]
        assert (await rig.state(job.id), await rig.missing(again.id)) == (state, True)

    async def test_restoring_a_known_id_leaves_an_edited_job_unchanged(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.act(Verb.EDIT, job.id, edit=Edit(args=b'{"edited":1}'))
        flight = under_way(rig, job.changed(args=b'{"edited":1}'), "call-1")
        assert await rig.store.restore([flight]) == [Sent(job.id, created=False)]
        assert await rig.state(job.id) is State.WAITING

    async def test_restored_job_counts_on_from_its_restored_run(self, rig: Rig) -> None:
        await rig.declare(SINGLE)
        job = rig.jobs.make(gates=(SINGLE,), policy=policy_with(on_deadline="retry"))
        await rig.store.restore([under_way(rig, job, f"{job.id}:7")])
        assert (await rig.view(job.id)).run == 7
        assert (await rig.signal(f"{job.id}:6")).answer is not SignalResult.APPLIED
        await rig.signal(f"{job.id}:7", Decided.RETRY)
        await rig.pass_time(3_600_000)
        again = await rig.worker.take_one()
        assert (again.run, again.attempt) == (8, 2)
        await rig.check()

    @pytest.mark.parametrize("state", ["scheduled", "waiting", "parked", "running", "awaiting"])
    async def test_running_job_of_an_older_store_is_adopted(self, rig: Rig, state: str) -> None:
        await rig.declare(SINGLE, PHONE)
        before, line = (use_of(PHONE, phone="1"),), (use_of(SINGLE),)
        if state == "parked":
            blocker = await rig.add(gates=before)
            assert await rig.new_worker().take_ids(1) == [blocker.id]
        due_at = rig.clock() + 9_000 if state == "scheduled" else None
        job = await rig.add(gates=before, stage="check", due_at=due_at)
        if state in {"running", "awaiting"}:
            taken = await rig.worker.take_one()
            if state == "awaiting":
                await rig.worker.report(HandedOver(taken.id, taken.run, key="call-1"))
        if state == "parked":
            assert await rig.worker.take(5) == []
        assert await rig.state(job.id) is State(state)
        now = job.changed(stage="dial", gates=line, args=b'{"now":1}')
        flight = replace(under_way(rig, now, f"{job.id}:5"), newer=True)
        assert await rig.store.restore([flight, flight]) == [Sent(job.id, created=False)] * 2
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.run) == (State.AWAITING, "dial", 5)
        assert await rig.holders("line") == [job.id]
        assert job.id not in await rig.holders("phone:1")
        await rig.check()
        assert await rig.store.restore([flight]) == [Sent(job.id, created=False)]
        assert (await rig.view(job.id)).run == 5
        assert (await rig.signal(f"{job.id}:5")).answer is SignalResult.APPLIED
        assert await rig.state(job.id) is State.SUCCEEDED
        assert await rig.holders("line") == []
        await rig.check()

    async def test_adopted_run_gets_an_unused_number(self, rig: Rig) -> None:
        job = await rig.add()
        for _ in range(2):
            await rig.worker.take_and_report(Failed, after_ms=0)
        flight = replace(under_way(rig, job, f"{job.id}:1"), newer=True)
        await rig.store.restore([flight])
        assert [run.run for run in (await rig.view(job.id)).runs] == [1, 2, 3]

    async def test_restored_job_takes_no_permit_that_is_released_at_hand_over(
        self, rig: Rig
    ) -> None:
        await rig.declare(SINGLE)
        job = rig.jobs.make(gates=(SINGLE.take(hold="run"),))
        await rig.store.restore([under_way(rig, job, "call-1")])
        assert await rig.holders("line") == []

    async def test_restore_is_all_or_nothing(self, rig: Rig) -> None:
        job = rig.jobs.make()
        bad = rig.jobs.make(gates=(SINGLE,))
        async with rig.refuses(UnknownGate):
            await rig.store.restore([under_way(rig, job, "1"), under_way(rig, bad, "2")])
        clash = job.changed(id=rig.jobs.make().id, args=b"[]")
        async with rig.refuses(KeyConflict):
            await rig.store.restore([under_way(rig, job, "1"), under_way(rig, clash, "2")])

    async def test_restored_job_follows_its_deadline(self, rig: Rig) -> None:
        one = rig.jobs.make()
        two = rig.jobs.make(policy=policy_with(on_deadline="retry"))
        await rig.store.restore([under_way(rig, one, "1"), under_way(rig, two, "2")])
        await rig.pass_time(599_999)
        assert await rig.states(one, two) == [State.AWAITING] * 2
        await rig.pass_time(1)
        assert await rig.states(one, two) == [State.DEAD, State.SCHEDULED]

    async def test_restored_job_is_reconciled(self, rig: Rig) -> None:
        job = rig.jobs.make(policy=policy_with(reconcile="ask"))
        await rig.store.restore([under_way(rig, job, "call-1")])
        await rig.pass_time(1)
        kinds = [one.kind for one in (await rig.dump()).jobs]
        assert kinds.count("ask") == 1

    async def test_early_signal_settles_a_job_as_it_is_restored(self, rig: Rig) -> None:
        assert (await rig.signal("call-1")).answer is SignalResult.KEPT
        job = rig.jobs.make()
        await rig.store.restore([under_way(rig, job, "call-1")])
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_cascade_without_candidates_ends_as_it_is_restored(self, rig: Rig) -> None:
        policy = policy_with(cascade=True, on_final=FollowUp(kind="tell", states=(State.DEAD,)))
        job = rig.jobs.make(policy=policy)
        await rig.store.restore([under_way(rig, job, "call-1")])
        view = await rig.view(job.id)
        assert (view.state, view.reason) == (State.DEAD, "exhausted")
        assert [one.kind for one in (await rig.dump()).jobs].count("tell") == 1
