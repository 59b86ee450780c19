"""Heads are searched for past jobs that started long ago, without missing any waiting job."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

from headway import Slots
from headway.contract.definitions import (
    DeclareEntry,
    DeclareGate,
    DefineRequest,
    EntrySpec,
    FireRequest,
)
from headway.contract.outcomes import SettleRequest, Snoozed
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.job import NewJob
from headway.core.timetable.schedule import Every
from headway.stores.postgres import low_water_marks
from headway.stores.postgres.low_water_marks import WHOLE, LowWaterMarks
from headway.stores.postgres.shared import Done
from headway.stores.postgres.store import PostgresStore
from headway.testing.clock import FakeClock
from headway.testing.jobs import use_of
from tests.plain_jobs import assert_clean, claim, job, jobs, succeed
from tests.postgres.places import Place
from tests.postgres.test_out_of_order import LIMIT, Held

LINE = Slots("line", 100)
GATED = (use_of(LINE),)


@pytest.fixture(autouse=True)
def used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_water_marks, "LEAST", 1)


def test_flow_is_read_whole_until_one_of_its_jobs_has_started() -> None:
    known = LowWaterMarks()
    assert known.ranges(1) is WHOLE
    known.rise("mail", 1, {5: (100, 7)}, 3, known.lowered)
    assert known.ranges(1) is not WHOLE
    known.drop([1])
    assert known.ranges(1) is WHOLE


def test_ranges_of_a_flow_omit_only_what_precedes_a_mark() -> None:
    known = LowWaterMarks()
    known.rise("mail", 1, {5: (100, 7), 2: (50, 3)}, 3, known.lowered)
    assert known.ranges(1) == ((-1, 0, 0, 2), (2, 50, 3, 5), (5, 100, 7, 2**62))


def test_mark_moves_back_to_a_job_waiting_before_it() -> None:
    known = LowWaterMarks()
    known.rise("mail", 1, {5: (100, 7)}, 3, known.lowered)
    known.lower(1, 5, 100, 9)
    assert known.ranges(1)[1] == (5, 100, 7, 2**62)
    known.lower(1, 5, 99, 9)
    assert known.ranges(1)[1] == (5, 99, 9, 2**62)


def test_mark_is_not_raised_by_a_read_before_another_step_queued_a_job() -> None:
    known = LowWaterMarks()
    read_at = known.lowered
    known.lower(1, 5, 99, 9)
    known.rise("mail", 1, {5: (100, 7)}, 3, read_at)
    assert known.ranges(1) is WHOLE
    known.rise("mail", 1, {5: (100, 7)}, 3, known.lowered)
    assert known.ranges(1)[1] == (5, 100, 7, 2**62)


def test_dropped_mark_is_not_raised_by_an_earlier_read() -> None:
    known = LowWaterMarks()
    for forget in (lambda: known.drop([1]), known.clear):
        known.rise("mail", 1, {5: (100, 7)}, 3, known.lowered)
        read_at = known.lowered
        forget()
        known.rise("mail", 1, {5: (200, 8)}, 3, read_at)
        assert known.ranges(1) is WHOLE


def test_whole_flow_is_read_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    known = LowWaterMarks()
    known.rise("mail", 1, {5: (100, 7)}, 3, known.lowered)
    now = low_water_marks.monotonic() + low_water_marks.SECONDS
    monkeypatch.setattr(low_water_marks, "monotonic", lambda: now)
    assert known.ranges(1) is WHOLE
    known.rise("mail", 1, {5: (200, 8)}, 1, known.lowered)
    assert known.ranges(1)[1] == (5, 200, 8, 2**62)


def test_only_marks_in_use_of_its_own_flows_are_read_for_a_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(low_water_marks, "LEAST", 3)
    known = LowWaterMarks()
    for flow, started in ((3, 3), (2, 3), (1, 2)):
        known.rise("mail", flow, {5: (100, 7)}, started, known.lowered)
    known.rise("sms", 4, {5: (100, 7)}, 3, known.lowered)
    assert (known.flows("mail"), known.flows("sms"), known.flows("push")) == ([2, 3], [4], [])
    known.drop([2])
    assert known.flows("mail") == [3]
    known.clear()
    assert known.flows("mail") == []


async def declare(store: PostgresStore, spec: GateSpec | DeclareEntry) -> None:
    item = DeclareGate(spec=spec) if isinstance(spec, GateSpec) else spec
    await store.define(DefineRequest(items=(item,), author="ann", reason="a test"))


async def claimed(store: PostgresStore, n: int, request: int) -> list[str]:
    return [one.id for one in (await claim(store, request=request, n=n)).jobs]


async def test_job_of_a_smaller_priority_from_another_process_goes_first(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    await store.enqueue(jobs(0, 9))
    assert len(await claimed(store, 3, 1)) == 3
    urgent = job(50, priority=1)
    await other.enqueue([urgent])
    assert (await claimed(store, 2, 2))[0] == urgent.id
    await assert_clean(store)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_requeued_job_keeps_its_place(
    place: Place, clock: FakeClock, *, elsewhere: bool
) -> None:
    store, other = place.open(clock), place.open(clock)
    made = jobs(0, 9)
    await store.enqueue(made)
    first = (await claim(store, n=3)).jobs[0]
    outcome = Snoozed(first.id, first.run, until_at=clock() - 1)
    request = SettleRequest(worker="w", outcomes=(outcome,))
    await (other if elsewhere else store).settle(request)
    assert await claimed(store, 2, 2) == [first.id, made[3].id]
    assert await claimed(store, 9, 3) == [one.id for one in made[4:]]
    await assert_clean(store)


async def test_job_with_an_old_due_time_of_the_same_process_goes_first(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 9))
    assert len(await claimed(store, 3, 1)) == 3
    late: NewJob = job(60, due_at=clock() - 5_000)
    await store.enqueue([late])
    assert (await claimed(store, 2, 2))[0] == late.id
    await assert_clean(store)


async def test_job_enqueued_while_an_exclusive_claim_runs_goes_first(
    place: Place, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open(clock)
    await declare(store, LINE)
    made = jobs(0, 9, gates=GATED)
    await store.enqueue(made)
    assert len(await claimed(store, 2, 1)) == 2
    session, chosen, queued = store._turns.session, threading.Event(), threading.Event()
    commit = session.commit

    def held() -> Done:
        chosen.set()
        assert queued.wait(LIMIT)
        return commit()

    monkeypatch.setattr(session, "commit", held)
    claiming = asyncio.create_task(claimed(store, 2, 2))
    assert await asyncio.to_thread(chosen.wait, LIMIT)
    late = job(60, due_at=clock() - 5_000, gates=GATED)
    await store.enqueue([late])
    queued.set()
    assert await claiming == [one.id for one in made[2:4]]
    assert (await claimed(store, 2, 3))[0] == late.id
    await assert_clean(store)


@pytest.mark.parametrize("gates", [(), GATED], ids=["plain", "gated"])
async def test_job_whose_enqueue_arrives_after_a_claim_goes_first(
    place: Place, clock: FakeClock, gates: tuple[GateUse, ...]
) -> None:
    store = place.open(clock)
    await declare(store, LINE)
    made = jobs(0, 9, gates=gates)
    await store.enqueue(made)
    assert len(await claimed(store, 2, 1)) == 2
    late = job(60, due_at=clock() - 5_000, gates=gates)
    held = Held(store._enqueues._steps, before=True)
    adding = asyncio.create_task(store.enqueue([late]))
    assert await asyncio.to_thread(held.came.wait, LIMIT)
    # The enqueue is ready to be sent, but the claim does not see its job.
    assert await claimed(store, 2, 2) == [one.id for one in made[2:4]]
    held.through.set()
    await adding
    assert (await claimed(store, 2, 3))[0] == late.id
    await assert_clean(store)


async def test_late_job_with_an_old_due_time_is_found_after_the_rest(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    await store.enqueue(jobs(0, 4))
    assert len(await claimed(store, 2, 1)) == 2
    late: NewJob = job(60, due_at=clock() - 5_000)
    await other.enqueue([late])
    assert late.id in await claimed(store, 9, 2)
    assert await claimed(store, 9, 3) == []
    await other.enqueue([job(61, due_at=clock() - 9_000)])
    assert len(await claimed(store, 9, 4)) == 1


async def test_late_job_is_found_by_a_claim_like_earlier_ones(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    await declare(store, LINE)
    made = jobs(0, 8, gates=GATED)
    await store.enqueue(made)
    # These claims start like the previous one, with what it read.
    for request in (1, 2, 3):
        assert len(await claimed(store, 2, request)) == 2
    late = job(60, due_at=clock() - 5_000, gates=GATED)
    await other.enqueue([late])
    rest = await claimed(store, 2, 4) + await claimed(store, 2, 5)
    assert sorted(rest) == sorted([made[6].id, made[7].id, late.id])
    await assert_clean(store)


async def test_late_job_is_found_in_a_flow_that_a_claim_has_just_emptied(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    await declare(store, LINE)
    await store.enqueue(jobs(0, 2, gates=GATED))
    # As many as there are, so the claim does not read the flow to its end.
    assert len(await claimed(store, 2, 1)) == 2
    late = job(60, due_at=clock() - 5_000, gates=GATED)
    await other.enqueue([late])
    assert await claimed(store, 2, 2) == [late.id]
    await assert_clean(store)


@pytest.mark.parametrize("gates", [(), GATED], ids=["plain", "gated"])
async def test_due_job_whose_enqueue_was_committed_late_goes_first(
    place: Place, clock: FakeClock, gates: tuple[GateUse, ...]
) -> None:
    store = place.open(clock)
    await declare(store, LINE)
    made = jobs(0, 4, gates=gates)
    late = jobs(60, 2, due_at=clock() + 60_000, gates=gates)
    await store.enqueue([*made, *late])
    assert await claimed(store, 2, 1) == [one.id for one in made[:2]]
    with psycopg.connect(place.database) as other:
        query = f"UPDATE {place.namespace}.job SET due_at = %s WHERE id = ANY (%s::uuid[])"  # noqa: S608  (our own names)
        other.execute(query.encode(), (clock() - 5_000, [one.id for one in late]))
    # The second becomes waiting with the claim that starts the first.
    assert await claimed(store, 1, 2) == [late[0].id]
    assert await claimed(store, 1, 3) == [late[1].id]
    assert await claimed(store, 5, 4) == [one.id for one in made[2:]]
    await assert_clean(store)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_fire_inserted_late_goes_first(
    place: Place, clock: FakeClock, *, elsewhere: bool
) -> None:
    store, other = place.open(clock), place.open(clock)
    spec = EntrySpec(name="nightly", schedule=Every(60_000), job=job(70))
    await declare(store, DeclareEntry(spec=spec))
    made = jobs(0, 4)
    await store.enqueue(made)
    assert await claimed(store, 2, 1) == [one.id for one in made[:2]]
    moments = (clock() - 5_000,)
    request = FireRequest(entry="nightly", revision=1, moments=moments, ahead_until=clock())
    await store.fire(request)
    if elsewhere:
        assert (await other.sweep(100)).promoted == 1
    (found,) = (await claim(store, request=2, n=1)).jobs
    assert found.due_at == moments[0]
    await assert_clean(store)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_job_fed_by_its_gate_goes_first(
    place: Place, clock: FakeClock, *, elsewhere: bool
) -> None:
    store, other = place.open(clock), place.open(clock)
    phone = Slots("phone:{phone}", 1)
    await declare(store, phone)
    holder, parked = jobs(0, 2, gates=(use_of(phone, phone="7"),))
    made = jobs(2, 5)
    await store.enqueue([holder, parked, *made])
    (first,) = (await claim(store, n=1)).jobs
    assert await claimed(store, 2, 2) == [one.id for one in made[:2]]
    # Only now is the mark behind the parked job.
    assert await claimed(store, 1, 3) == [made[2].id]
    await succeed(other if elsewhere else store, [(first.id, first.run)])
    assert await claimed(store, 1, 4) == [parked.id]
    await assert_clean(store)


async def test_job_that_another_process_puts_back_is_found_in_an_emptied_flow(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    await declare(store, LINE)
    made = jobs(0, 6, gates=GATED)
    await store.enqueue(made)
    first, _ = (await claim(store, request=1, n=2)).jobs
    # These claims start like the previous one, from the same marks, and leave nothing.
    for request in (2, 3):
        assert len(await claimed(store, 2, request)) == 2
    outcome = Snoozed(first.id, first.run, until_at=clock() - 1)
    await other.settle(SettleRequest(worker="w", outcomes=(outcome,)))
    assert await claimed(store, 2, 4) == [first.id]
    await assert_clean(store)


async def test_marks_outlast_a_job_that_the_process_itself_put_back(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 4))
    first = (await claim(store, n=3)).jobs[0]
    outcome = Snoozed(first.id, first.run, until_at=clock() - 1)
    await store.settle(SettleRequest(worker="w", outcomes=(outcome,)))
    # This step reads whether other processes have put jobs back.
    await store.lead("chores", "here", 1_000)
    assert len(store._shared.marks.flows("main")) == 1


async def test_marks_are_forgotten_with_their_store(place: Place, clock: FakeClock) -> None:
    store = place.open(clock)
    await store.enqueue([job(1)])
    shared = store._turns.session.shared
    shared.marks.rise("mail", 1, {5: (100, 7)}, 3, shared.marks.lowered)
    shared.follow(shared.identity)
    assert shared.marks.ranges(1) is not WHOLE
    shared.follow(shared.identity + 1)
    assert shared.marks.ranges(1) is WHOLE
