"""The leader reads ahead: no job is lost or doubled, whenever it dies and whatever rows arrive."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from headway.bridges.cassandra.link import Cql, Values
from headway.bridges.cassandra.rows import (
    GUARD_MS,
    LINGER_MS,
    LONGEST_WRITE_MS,
    bucket_name,
    load_progress,
    minute_of,
    row_of,
    shard_of,
)
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DefineRequest, LaneSpec, SetLane
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.core.errors import InvalidValue, StoreUnavailable
from headway.core.gates.spec import GateUse
from headway.core.job import JobPolicy, NewJob
from headway.core.state import State
from tests.bridges.cassandra.fake_link import FakeLink
from tests.bridges.cassandra.world import HOUR, LEASE_MS, MINUTE, SETTINGS, Killed, World


async def laid(world: World, n: int = 12, *, minutes: int = 2, ahead: int = HOUR) -> list[NewJob]:
    """Enqueue jobs of several buckets, due this long from now."""
    jobs = [world.job(ahead + i * minutes * MINUTE // n) for i in range(n)]
    await world.calendar().enqueue(jobs)
    return jobs


async def stand_at(world: World, jobs: Sequence[NewJob], before: int) -> None:
    """Set the clock to this long before the last of the jobs is due."""
    last = max(job.due_at or 0 for job in jobs)
    world.clock.jump_to(last - before)


async def test_jobs_are_moved_when_the_horizon_reaches_their_minute() -> None:
    world = World()
    jobs = await laid(world)
    reader = world.reader()
    assert await reader.round()
    assert await world.made() == 0
    await stand_at(world, jobs, 15 * MINUTE)
    await reader.round()
    assert await world.made() == len(jobs)
    assert world.link.left == 0
    views = [await world.view(job) for job in jobs]
    assert [(one.due_at, one.state) for one in views if one is not None] == [
        (job.due_at, State.SCHEDULED) for job in jobs
    ]


async def test_partition_is_deleted_as_a_whole_and_read_once_more() -> None:
    world = World()
    jobs = await laid(world, 6, minutes=1)
    await stand_at(world, jobs, 15 * MINUTE)
    await world.reader().round()
    asked = world.link.asked
    assert asked.count(Cql.DROP_ROW) == 0
    shards = world.link.settings.shards
    parts = {((one.due_at or 0) // MINUTE, shard_of(one.id, shards)) for one in jobs}
    assert asked.count(Cql.DROP_BUCKET) == len(parts)
    drop = asked.index(Cql.DROP_BUCKET)
    assert Cql.READ_BUCKET in asked[drop:]


async def test_other_readers_wait_for_the_leader_and_continue_where_it_stopped() -> None:
    world = World(settings=SETTINGS.model_copy(update={"every": 20_000}))
    jobs = await laid(world)
    first, second = world.reader(), world.reader()
    assert await first.round()
    assert not await second.round()
    # The lead outlasts the time between two rounds, even if that is longer than usual.
    world.clock.advance(59_000)
    assert not await second.round()
    await stand_at(world, jobs, 5 * MINUTE)  # the first leader's lease has ended
    assert await second.round()
    assert await world.made() == len(jobs)
    assert not await first.round()


async def test_bucket_is_done_only_if_empty_two_minutes_after_its_end() -> None:
    world = World()
    reader = world.reader()
    await reader.round()
    start = minute_of(world.clock())
    assert reader.progress is not None
    assert reader.progress.done_through == minute_of(world.clock() - LINGER_MS) - 1
    world.clock.advance(LINGER_MS + MINUTE)
    await reader.round()
    assert reader.progress.done_through == start
    assert reader.progress.read_through == minute_of(world.clock() + 15 * MINUTE)


async def test_outage_of_a_day_is_caught_up() -> None:
    world = World()
    await world.reader().round()
    jobs = [world.job(HOUR * n) for n in range(1, 24)]
    await world.calendar().enqueue(jobs)
    world.clock.advance(24 * HOUR)
    reader = world.reader()
    await reader.round()
    assert await world.made() == len(jobs)
    assert reader.progress is not None
    assert reader.progress.done_through == minute_of(world.clock() - LINGER_MS) - 1


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
async def test_next_leader_recovers_from_each_crash_between_two_steps(
    stride: int,
) -> None:
    crashes = 0
    for dies_at in count(0, stride):
        world = World()
        jobs = await laid(world, 8, ahead=18 * MINUTE)
        # One row is younger than the guard, so that both ways of deletion are used.
        await stand_at(world, jobs, 15 * MINUTE)
        young = world.job(14 * MINUTE)
        await world.lay(young, world.clock() - GUARD_MS // 2)
        engine = world.engine(dies_at=dies_at)
        died = False
        try:
            await world.reader(engine).round()
        except Killed:
            died = True
            crashes += 1
        await world.read_until_empty()
        assert await world.made() == len(jobs) + 1, f"killed at seam {dies_at}"
        assert world.link.left == 0
        assert all([await world.view(job) for job in (*jobs, young)])
        if not died:
            break
    assert crashes * stride > 100


async def test_row_read_again_after_its_job_ran_creates_no_second_job() -> None:
    world = World()
    jobs = [world.job(HOUR, policy=JobPolicy(keep_ms=0)) for _ in range(3)]
    await world.calendar().enqueue(jobs)
    await stand_at(world, jobs, 15 * MINUTE)

    async def killed(statement: Cql, values: Values) -> None:
        if statement in {Cql.DROP_ROW, Cql.DROP_BUCKET}:
            raise Killed

    world.link.before = killed
    with pytest.raises(Killed):
        await world.reader().round()
    world.clock.advance(16 * MINUTE)
    reply = await world.store.claim(
        ClaimRequest(worker="w", request=1, lanes=(("main", 1),), n=10, free=10)
    )
    assert len(reply.jobs) > 0
    done = tuple(Succeeded(one.id, one.run) for one in reply.jobs)
    await world.store.settle(SettleRequest(worker="w", outcomes=done))
    world.clock.advance(HOUR)
    await world.store.sweep(100)
    made = await world.made()

    async def nothing(statement: Cql, values: Values) -> None:
        del statement, values

    world.link.before = nothing
    await world.reader().round()
    assert world.link.left == 0
    assert await world.made() == len(jobs) >= made


@pytest.mark.parametrize("off_ms", [-2_000, 2_000])
@pytest.mark.parametrize("leader_off_ms", [-2_000, 2_000])
async def test_rows_written_into_the_bucket_during_the_read_arrive(
    off_ms: int, leader_off_ms: int
) -> None:
    world = World()
    jobs = await laid(world, 6, minutes=1)
    await stand_at(world, jobs, 15 * MINUTE)
    late: list[NewJob] = []
    bucket = bucket_name(minute_of(world.clock() + 14 * MINUTE))
    steps = {Cql.READ_BUCKET, Cql.DROP_BUCKET, Cql.DROP_ROW}

    async def write(statement: Cql, values: Values) -> None:
        if statement in steps and bucket in values and len(late) < 40:
            steps_off = off_ms - LONGEST_WRITE_MS * (len(late) % 2)
            late.append(world.job(14 * MINUTE + len(late)))
            await world.lay(late[-1], world.clock() + steps_off)

    world.link.after = write
    reader = world.reader(world.engine(off_ms=leader_off_ms))
    for _ in range(20):
        await reader.round()
        world.clock.advance(5_000)
    assert len(late) == 40
    assert await world.made() == len(jobs) + len(late)
    assert world.link.left == 0
    assert reader.progress is not None
    assert reader.progress.late >= 30


LANDINGS = some.lists(
    some.tuples(
        some.integers(0, 120),  # statement before which the row arrives
        some.integers(0, LONGEST_WRITE_MS - 1),  # duration of the write
        some.integers(-2_000, 2_000),  # how far its writer's clock is off
        some.integers(-MINUTE, 14 * MINUTE),  # when it is due
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(LANDINGS, some.integers(-2_000, 2_000), some.none() | some.integers(0, 150))
async def test_each_job_is_created_once_whatever_arrives_and_whichever_process_dies(
    landings: list[tuple[int, int, int, int]], leader_off_ms: int, dies_at: int | None
) -> None:
    world = World()
    jobs: list[NewJob] = []
    waiting = sorted(landings, reverse=True)

    async def land(statement: Cql, values: Values) -> None:
        if statement is Cql.PUT_ROW:
            return
        while waiting and waiting[-1][0] <= len(world.link.asked):
            _, took, off, due = waiting.pop()
            jobs.append(world.job(due))
            await world.lay(jobs[-1], world.clock() - took + off)

    world.link.before = land
    first = world.reader(world.engine(off_ms=leader_off_ms, dies_at=dies_at))
    try:
        await first.round()
        world.clock.advance(5_000)
        await first.round()
    except Killed:
        pass
    world.clock.advance(LEASE_MS)
    second = world.reader(world.engine(off_ms=-leader_off_ms))
    await second.round()
    for _ in range(3):
        world.clock.advance(5_000)
        await second.round()
    waiting.clear()
    assert world.link.left == 0
    assert await world.made() == len(jobs)


async def test_stale_leader_deletes_nothing_of_its_successor() -> None:
    world = World()
    jobs = await laid(world, 4, minutes=1)
    await stand_at(world, jobs, 15 * MINUTE)
    stale = world.reader()
    fresh: list[NewJob] = []

    async def sleep(statement: Cql, values: Values) -> None:
        if statement is Cql.DROP_BUCKET and not fresh:
            # It is paused past its lease; meanwhile another reader leads, and new rows arrive.
            fresh.append(world.job(14 * MINUTE))
            world.clock.advance(LEASE_MS * 4)
            assert await world.reader().round()
            await world.lay(fresh[0])

    world.link.before = sleep
    await stale.round()
    assert world.link.left == 1
    await world.read_until_empty()
    assert await world.made() == len(jobs) + 1


async def test_round_ends_if_another_has_led_since_it_started() -> None:
    world = World()
    jobs = await laid(world)
    await stand_at(world, jobs, 15 * MINUTE)
    slow = world.reader()
    others: list[bool] = []

    async def sleep(statement: Cql, values: Values) -> None:
        if statement is Cql.READ_BUCKET and not others:
            others.append(True)
            world.clock.advance(LEASE_MS * 4)
            assert await world.reader().round()
            world.clock.advance(LEASE_MS * 4)

    world.link.before = sleep
    assert not await slow.round()
    assert slow.progress is None
    assert await slow.round()
    assert await world.made() == len(jobs)


async def test_lead_is_kept_while_a_partition_of_many_pages_is_read() -> None:
    world = World()
    # All rows are in one partition.
    world.link.settings = SETTINGS.model_copy(update={"shards": 1})
    jobs = [world.job(HOUR + n) for n in range(18)]
    await world.calendar().enqueue(jobs)
    await stand_at(world, jobs, 15 * MINUTE)
    pages: list[Values] = []
    others: list[bool] = []

    async def take_long(statement: Cql, values: Values) -> None:
        bucket = bucket_name(minute_of(jobs[0].due_at or 0))
        if statement is Cql.READ_BUCKET and bucket in values and len(pages) < 7:
            pages.append(values)
            world.clock.advance(LEASE_MS // 3)
            others.append(await world.reader().round())

    world.link.after = take_long
    assert await world.reader().round()
    assert await world.made() == len(jobs)
    # The last of these reads finds nothing.
    assert others == [False] * 7


@pytest.mark.parametrize("page", [3, 100])
async def test_job_refused_by_a_full_lane_stays_and_moves_later(page: int) -> None:
    world = World(link=FakeLink(SETTINGS, page=page))
    await world.store.define(_limit("tight", 3))
    jobs = [world.job(HOUR + n, lane="tight") for n in range(5)]
    free = [world.job(HOUR + n, lane="wide") for n in range(5)]
    await world.calendar().enqueue([*jobs, *free])
    await stand_at(world, jobs, 15 * MINUTE)
    reader = world.reader()
    await reader.round()
    assert all([await world.view(job) for job in free])
    assert 0 < world.link.left <= 5
    assert reader.progress is not None
    await world.store.define(_limit("tight", 30))
    world.clock.advance(10 * MINUTE)
    await reader.round()
    assert await world.made() == 10
    assert world.link.left == 0
    assert world.link.refused == {}


async def test_bucket_with_immovable_rows_is_not_done() -> None:
    world = World()
    job = world.job(HOUR, gates=(GateUse(name="no such gate", template="no such gate"),))
    await world.calendar().enqueue([job])
    bucket = bucket_name(minute_of(job.due_at or 0))
    world.clock.advance(3 * HOUR)
    reads: list[Values] = []

    async def note(statement: Cql, values: Values) -> None:
        if statement is Cql.READ_BUCKET and bucket in values:
            reads.append(values)

    world.link.before = note
    reader = world.reader()
    await reader.round()
    assert world.link.left == 1
    # Rows that cannot move are read once in a round.
    assert len(reads) == len(set(reads)) == SETTINGS.shards
    assert reader.progress is not None
    assert bucket_name(reader.progress.done_through + 1) == bucket


async def test_row_that_no_store_accepts_is_set_aside_with_the_reason() -> None:
    world = World(link=FakeLink(SETTINGS, page=1))
    good, bad, conflict = world.job(HOUR), world.job(HOUR), world.job(HOUR)
    await world.calendar().enqueue([good, bad, conflict])
    place = await world.lay(bad)
    rows = world.link.rows[place.bucket, place.shard]
    key = next(one for one in rows if str(one[1]) == bad.id)
    rows[key] = (b"\xc1 no job", rows[key][1])
    await world.store.enqueue([NewJob(id=conflict.id, kind="another")])
    await stand_at(world, [good], 15 * MINUTE)
    reader = world.reader()
    await reader.round()
    assert await world.view(good) is not None
    assert world.link.left == 0
    assert {str(id_): one[2][:20] for id_, one in world.link.refused.items()} == {
        bad.id: f"the row of job {bad.id}"[:20],
        conflict.id: f"a job {conflict.id} exists"[:20],
    }
    assert reader.progress is not None
    assert reader.progress.refused == 2
    assert await world.calendar().retry_refused() == 0
    key = next(one for one in world.link.refused if str(one) == bad.id)
    # Now on the second page.
    aside = world.link.refused.pop(key)
    world.link.refused[key] = (bad.due_at, row_of(bad), *aside[2:])
    assert await world.calendar().retry_refused() == 1
    assert await world.view(bad) is not None
    assert {str(one) for one in world.link.refused} == {conflict.id}


async def test_progress_can_be_queried() -> None:
    world = World()
    jobs = await laid(world, 6)
    assert (await load_progress(world.link)) is not None
    await stand_at(world, jobs, 15 * MINUTE)
    reader = world.reader()
    await reader.round()
    found = await load_progress(world.link)
    assert found == reader.progress
    assert found is not None
    assert (found.rows_read, found.enqueued, found.late, found.refused) == (6, 6, 0, 0)
    assert found.seen_at == world.clock()


async def test_calendar_with_another_number_of_shards_is_refused() -> None:
    world = World()
    await world.reader().round()
    other = SETTINGS.model_copy(update={"shards": 3})
    world.link.settings = other
    world.clock.advance(LEASE_MS)
    with pytest.raises(InvalidValue, match="created with 2"):
        await world.reader().round()
    with pytest.raises(InvalidValue, match="created with 2"):
        await world.calendar().enqueue([world.job(HOUR)])


async def test_cassandra_error_ends_the_round_and_the_next_continues() -> None:
    world = World()
    jobs = await laid(world)
    await stand_at(world, jobs, 15 * MINUTE)
    draw = random.Random(7)
    reader = world.reader()

    async def sometimes(statement: Cql, values: Values) -> None:
        if draw.random() < 0.02:
            raise StoreUnavailable("away")

    world.link.before = world.link.after = sometimes
    failed = 0
    for _ in range(40):
        try:
            await reader.round()
        except StoreUnavailable:
            failed += 1
        world.clock.advance(1_000)
    assert 0 < failed < 40
    assert await world.made() == len(jobs)
    assert world.link.left == 0


def _limit(lane: str, most: int) -> DefineRequest:
    return DefineRequest(author="t", items=(SetLane(spec=LaneSpec(name=lane, max_backlog=most)),))
