"""Jobs go to the calendar or to the store, and are found, moved, cancelled and rescheduled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from headway.bridges.cassandra.link import Cql, RowPage, Values
from headway.bridges.cassandra.rows import LONGEST_WRITE_MS
from headway.contract.operate import Acted
from headway.contract.store import Sent
from headway.core.errors import IdConflict, InvalidValue, KeyConflict, OutcomeUnknown
from headway.core.job import DEFAULT_POLICY, MAX_BATCH, NewJob
from headway.core.state import State
from tests.bridges.cassandra.world import HOUR, LEASE_MS, MINUTE, Engine, Killed, World

LIMIT = 17 * MINUTE
"""Horizon plus margin."""


async def test_stores_clock_decides_between_calendar_and_store() -> None:
    world = World()
    jobs = [world.job(LIMIT), world.job(LIMIT + 1), world.job(0), world.job(HOUR)]
    replies = await world.calendar().enqueue(jobs)
    assert replies == [Sent(job.id, created=True) for job in jobs]
    assert await world.made() == 2
    assert world.link.left == 2
    assert set(await world.calendar().find([job.id for job in jobs])) == {jobs[1].id, jobs[3].id}


@pytest.mark.parametrize("off_ms", [-2_000, 2_000])
async def test_two_engines_with_different_clocks_lose_nothing_and_start_nothing_early(
    off_ms: int,
) -> None:
    world = World()
    ahead, behind = world.engine(off_ms=off_ms), world.engine(off_ms=-off_ms)
    reader = world.reader(behind)
    writer = world.calendar(ahead)
    jobs: list[NewJob] = []
    for _ in range(40):
        # Around the limit, where one clock selects the calendar and the other the store.
        jobs += [world.job(LIMIT + ms) for ms in (-2_500, -1_500, 0, 1_500, 2_500)]
        await writer.enqueue(jobs[-5:])
        await reader.round()
        world.clock.advance(5_000)
    for _ in range(12):
        world.clock.advance(MINUTE)
        await reader.round()
    assert await world.made() == len(jobs)
    for job in jobs:
        view = await world.view(job)
        assert view is not None
        assert view.due_at == job.due_at
        assert view.created_at <= view.due_at - 10 * MINUTE


async def test_repeated_enqueue_creates_nothing_more() -> None:
    world = World()
    jobs = [world.job(HOUR + n) for n in range(3)]
    await world.calendar().enqueue(jobs)
    later = [job.changed(due_at=(job.due_at or 0) + HOUR) for job in jobs]
    assert await world.calendar().enqueue(later) == [Sent(one.id, created=False) for one in jobs]
    assert world.link.left == 3
    twice = world.job(HOUR)
    assert [one.created for one in await world.calendar().enqueue([twice, twice])] == [True, False]


async def test_id_with_another_body_is_refused() -> None:
    world = World()
    job = world.job(HOUR)
    await world.calendar().enqueue([job])
    with pytest.raises(IdConflict):
        await world.calendar().enqueue([job.changed(args=b'{"n": 1}')])
    new = world.job(HOUR)
    with pytest.raises(IdConflict):
        await world.calendar().enqueue([new, new.changed(kind="other")])
    assert world.link.left == 1


async def test_invalid_job_is_refused_before_anything_is_written() -> None:
    world = World()
    with pytest.raises(InvalidValue):
        await world.calendar().enqueue([world.job(HOUR), world.job(HOUR, priority=-1)])
    assert world.link.left == 0


async def test_key_creates_one_job_in_the_calendar() -> None:
    world = World()
    one, two = world.job(HOUR, key="k"), world.job(2 * HOUR, key="k")
    other = world.job(HOUR, key="k", tenant="t")
    assert await world.calendar().enqueue([one, two, other]) == [
        Sent(one.id, created=True),
        Sent(one.id, created=False),
        Sent(other.id, created=True),
    ]
    again = world.job(HOUR, key="k")
    assert await world.calendar().enqueue([again]) == [Sent(one.id, created=False)]
    with pytest.raises(KeyConflict):
        await world.calendar().enqueue([world.job(HOUR, key="k", kind="other")])
    assert world.link.left == 2


async def test_same_text_divided_otherwise_into_tenant_and_key_is_another_job() -> None:
    world = World()
    jobs = [world.job(HOUR, tenant="a", key="b c"), world.job(HOUR, tenant="a b", key="c")]
    sent = await world.calendar().enqueue(jobs)
    assert sent == [Sent(job.id, created=True) for job in jobs]


async def test_more_jobs_than_a_call_of_the_store_takes_are_moved_and_known_there() -> None:
    world = World()
    jobs = [world.job(HOUR) for _ in range(MAX_BATCH + 1)]
    await world.calendar().enqueue(jobs)
    await world.calendar().fetch(job.id for job in jobs)
    assert (await world.made(), world.link.left) == (len(jobs), 0)
    again = await world.calendar().enqueue(jobs)
    assert again == [Sent(job.id, created=False) for job in jobs]


@pytest.mark.parametrize("other", ["in the same call", "in the calendar"])
async def test_refused_call_leaves_no_key_to_a_job_that_does_not_exist(other: str) -> None:
    world = World()
    held, first = world.job(HOUR, key="held"), world.job(HOUR, key="k", args=b"[1]")
    await world.calendar().enqueue([held])
    conflicting = world.job(HOUR, key="held" if other == "in the calendar" else "k", args=b"[2]")
    with pytest.raises(KeyConflict):
        await world.calendar().enqueue([first, conflicting])
    corrected = world.job(HOUR, key="k", args=b"[3]")
    (sent,) = await world.calendar().enqueue([corrected])
    assert (sent.id, sent.created) == (corrected.id, True)


async def test_key_in_the_store_also_applies_to_the_calendar() -> None:
    world = World()
    near, far = world.job(0, key="k"), world.job(HOUR, key="k")
    await world.calendar().enqueue([near])
    assert await world.calendar().enqueue([far]) == [Sent(near.id, created=False)]
    with pytest.raises(KeyConflict):
        await world.calendar().enqueue([world.job(HOUR, key="k", args=b"[]")])
    assert world.link.left == 0


async def test_enqueue_interrupted_before_its_row_is_completed_by_a_repeat() -> None:
    world = World()
    job = world.job(HOUR, key="k")
    for dies_at in count():
        engine = world.engine(dies_at=dies_at)
        try:
            await world.calendar(engine).enqueue([job])
            break
        except Killed:
            assert world.link.left <= 1
    assert world.link.left == 1
    assert (await world.calendar().find([job.id]))[job.id].job == job


async def test_retry_repairs_each_crash_of_a_writer() -> None:
    for dies_at in count():
        world = World()
        jobs = [world.job(HOUR + n, key=None if n % 2 else f"k{n}") for n in range(4)]
        jobs.append(world.job(0))
        try:
            await world.calendar(world.engine(dies_at=dies_at)).enqueue(jobs)
            break
        except Killed:
            await world.calendar().enqueue(jobs)
        assert world.link.left == 4
        world.clock.advance(HOUR - 10 * MINUTE)
        await world.reader().round()
        assert await world.made() == 5
        assert all([await world.view(job) for job in jobs])
    assert dies_at > 20


async def test_write_that_took_too_long_is_also_made_in_the_store() -> None:
    world = World()
    job = world.job(HOUR)

    async def slow(statement: Cql, values: Values) -> None:
        del values
        if statement is Cql.PUT_ROW:
            world.clock.advance(LONGEST_WRITE_MS)

    world.link.after = slow
    await world.calendar().enqueue([job])
    assert await world.view(job) is not None
    world.clock.advance(HOUR - 10 * MINUTE)
    await world.reader().round()
    assert await world.made() == 1


async def test_near_jobs_use_the_callers_insert() -> None:
    world = World()
    sent: list[NewJob] = []

    async def send(jobs: Sequence[NewJob]) -> list[Sent]:
        sent.extend(jobs)
        return [Sent(job.id, created=True) for job in jobs]

    near, far = world.job(0), world.job(HOUR)
    await world.calendar().enqueue([near, far], send=send)
    assert sent == [near]


async def test_cancelled_job_never_runs_and_records_who_and_why() -> None:
    world = World()
    job, near, unknown = world.job(30 * HOUR), world.job(0), world.job(HOUR)
    await world.calendar().enqueue([job, near])
    replies = await world.calendar().cancel([job.id, near.id, unknown.id], "ada", "not needed")
    assert [one.answer for one in replies] == [Acted.DONE, Acted.DONE, Acted.UNKNOWN]
    view = await world.view(job)
    assert view is not None
    assert view.state is State.CANCELLED
    assert [(one.author, one.reason) for one in view.trail][-1] == ("ada", "not needed")
    assert world.link.left == 0
    world.clock.advance(30 * HOUR - 10 * MINUTE)
    await world.reader().round()
    assert await world.made() == 2


async def test_key_of_a_job_that_is_moved_into_the_store_meanwhile_creates_no_second_job() -> None:
    world = World()
    job = world.job(24 * HOUR, key="k")
    await world.calendar().enqueue([job])

    class Slow(Engine):
        async def run(
            self, statement: Cql, values: Values = (), after: bytes | None = None
        ) -> RowPage:
            if statement is Cql.CLAIM_KEY:
                await world.calendar().cancel([job.id], "ada")
            return await super().run(statement, values, after)

    sender = world.calendar(Slow(world.link, world.store))
    again = world.job(24 * HOUR, key="k")
    assert await sender.enqueue([again]) == [Sent(job.id, created=False)]
    assert world.link.left == 0
    assert not any(name.startswith("key") for name in world.link.index)


async def test_key_of_a_cancelled_job_is_free_when_the_store_frees_it() -> None:
    world = World()
    job = world.job(24 * 300 * HOUR, key="k")
    other = world.job(24 * 300 * HOUR, key="k", kind="other")
    await world.calendar().enqueue([job])
    await world.calendar().cancel([job.id], "ada")
    with pytest.raises(KeyConflict):
        await world.calendar().enqueue([other])
    world.clock.advance(max(DEFAULT_POLICY.keep_ms, DEFAULT_POLICY.key_for_ms) + MINUTE)
    await world.store.sweep(10)
    assert await world.calendar().enqueue([other]) == [Sent(other.id, created=True)]


async def test_row_that_cannot_be_decoded_is_refused_and_the_other_jobs_are_cancelled() -> None:
    world = World()
    job, newer = world.job(HOUR), world.job(HOUR)
    await world.calendar().enqueue([job, newer])
    for rows in world.link.rows.values():
        for place, (_, stamp) in rows.items():
            if str(place[1]) == newer.id:
                rows[place] = b"of a newer version", stamp
    replies = await world.calendar().cancel([newer.id, job.id], "ada")
    assert [(one.id, one.answer) for one in replies] == [
        (newer.id, Acted.REFUSED),
        (job.id, Acted.DONE),
    ]
    assert world.link.left == 1
    with pytest.raises(InvalidValue, match="cannot be decoded"):
        await world.calendar().view(newer.id)


@pytest.mark.parametrize("due_in", [MINUTE, 5 * HOUR])
async def test_rescheduled_job_is_due_only_at_its_new_time(due_in: int) -> None:
    world = World()
    job = world.job(3 * HOUR)
    await world.calendar().enqueue([job])
    due_at = world.clock() + due_in
    (reply,) = await world.calendar().reschedule([job.id], due_at, "ada")
    assert reply.answer is Acted.DONE
    world.clock.advance(3 * HOUR - 10 * MINUTE)
    await world.reader().round()
    view = await world.view(job)
    assert view is not None
    assert view.due_at == due_at
    assert await world.made() == 1


async def test_each_crash_of_a_cancel_leaves_one_job_or_none() -> None:
    for dies_at in count():
        world = World()
        job = world.job(HOUR)
        await world.calendar().enqueue([job])
        died = False
        try:
            await world.calendar(world.engine(dies_at=dies_at)).cancel([job.id], "ada")
        except Killed:
            died = True
        if dies_at % 2:
            world.clock.advance(HOUR - 10 * MINUTE)
            await world.reader().round()
            world.clock.advance(LEASE_MS)
        else:
            await world.calendar().cancel([job.id], "ada")
        await world.reader().round()
        view = await world.view(job)
        assert view is not None
        assert await world.made() == 1
        if not dies_at % 2:
            assert view.state is State.CANCELLED
            assert world.link.left == 0
        if not died:
            break
    assert dies_at > 6


async def test_cancel_while_the_leader_reads_the_row_wins() -> None:
    world = World()
    job = world.job(HOUR)
    await world.calendar().enqueue([job])
    world.clock.advance(HOUR - 15 * MINUTE)

    async def cancel(statement: Cql, values: Values) -> None:
        del values
        if statement is Cql.READ_BUCKET and world.link.left:
            world.link.after = world.link.before
            await world.calendar().cancel([job.id], "ada")

    world.link.after = cancel
    await world.reader().round()
    view = await world.view(job)
    assert view is not None
    assert view.state is State.CANCELLED
    assert await world.made() == 1


async def test_refusal_by_cassandra_is_reported_and_can_be_repeated() -> None:
    world = World()
    jobs: list[Any] = [world.job(HOUR), world.job(0)]

    async def away(statement: Cql, values: Values) -> None:
        del values
        if statement is Cql.PUT_ROW:
            raise OutcomeUnknown("cassandra: away")

    world.link.before, usual = away, world.link.before
    with pytest.raises(OutcomeUnknown):
        await world.calendar().enqueue(jobs)
    world.link.before = usual
    assert [one.created for one in await world.calendar().enqueue(jobs)] == [True, True]
