"""Listings, counts and the trail: what is read is what is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.contract.outcomes import Died, HandedOver, Snoozed, Succeeded
from headway.contract.views import JobQuery, JobsQuery, StatsQuery, TrailQuery, WhyQuery
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.jobs import use_of

NOBODY = "00000000-0000-4000-8000-000000000000"


async def ids(rig: Rig, query: JobsQuery) -> list[str]:
    """The ids of a whole listing, page by page.

    Raises:
        AssertionError: a hundred pages did not suffice.
    """
    found: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = await rig.store.read(replace(query, cursor=cursor))
        assert len(page.rows) <= query.limit
        found += [row.id for row in page.rows]
        cursor = page.cursor
        if cursor is None:
            return found
    message = "a hundred pages, and no end"
    raise AssertionError(message)


class ListingGroup(ConformanceGroup):
    """Jobs by id, key, subject, lane, tenant, kind and state."""

    async def test_listing_shows_each_job_once_oldest_arrival_first(self, rig: Rig) -> None:
        jobs = [await rig.add(priority=9 - n % 3, lane=f"lane-{n % 2}") for n in range(23)]
        for limit in (1, 7, 23, 1000):
            assert await ids(rig, JobsQuery(limit=limit)) == [job.id for job in jobs]

    async def test_listing_turned_round_shows_the_newest_first(self, rig: Rig) -> None:
        jobs = await rig.add_many(9)
        expected = [job.id for job in reversed(jobs)]
        assert await ids(rig, JobsQuery(newest=True, limit=4)) == expected

    async def test_listing_by_lane_tenant_kind_and_state_and_any_of_them(self, rig: Rig) -> None:
        made = [
            (await rig.add(lane=lane, tenant=tenant, kind=kind), lane, tenant, kind)
            for lane in ("a", "b")
            for tenant in ("x", "y")
            for kind in ("k", "l")
        ]
        for lane in (None, "a"):
            for tenant in (None, "y"):
                for kind in (None, "l"):
                    expected = [
                        job.id
                        for job, one, two, three in made
                        if lane in {None, one} and tenant in {None, two} and kind in {None, three}
                    ]
                    query = JobsQuery(lane=lane, tenant=tenant, kind=kind, limit=3)
                    assert await ids(rig, query) == expected

    async def test_listing_by_states_shows_those_states(self, rig: Rig) -> None:
        jobs = await rig.add_many(6)
        later = await rig.add(due_at=rig.clock() + 9_000)
        worker = rig.worker()
        runs = await worker.take(4)
        await worker.settle(
            Succeeded(runs[0].id, 1),
            Died(runs[1].id, 1),
            HandedOver(runs[2].id, 1, key="k", timeout_ms=9_000),
        )
        await rig.cancel(jobs[4].id)
        states = [
            State.SUCCEEDED, State.DEAD, State.AWAITING, State.RUNNING, State.CANCELLED,
            State.WAITING, State.SCHEDULED,
        ]  # fmt: skip
        for job, state in zip([*jobs, later], states, strict=True):
            assert await ids(rig, JobsQuery(states=(state,))) == [job.id]
        final = JobsQuery(states=(State.SUCCEEDED, State.DEAD, State.CANCELLED), limit=2)
        assert await ids(rig, final) == [jobs[n].id for n in (0, 1, 4)]
        assert await ids(rig, JobsQuery(states=(State.PARKED,))) == []

    async def test_listing_by_ids_keeps_their_order_and_leaves_unknown_ones_out(
        self, rig: Rig
    ) -> None:
        jobs = await rig.add_many(3)
        wanted = (jobs[2].id, NOBODY, jobs[0].id)
        assert await ids(rig, JobsQuery(ids=wanted)) == [jobs[2].id, jobs[0].id]

    async def test_listing_by_subject_is_within_the_tenant(self, rig: Rig) -> None:
        jobs = [await rig.add(subject="+1555", tenant=tenant) for tenant in ("a", "b", "a")]
        await rig.add(subject="+1666", tenant="a")
        query = JobsQuery(subject="+1555", tenant="a")
        assert await ids(rig, query) == [jobs[0].id, jobs[2].id]

    async def test_listing_can_show_the_runs(self, rig: Rig) -> None:
        job = await rig.add()
        worker = rig.worker()
        run = await worker.take_one()
        await worker.say(Snoozed(run.id, run.run, after_ms=0))
        await worker.take_one()
        (with_runs,) = (await rig.store.read(JobsQuery(runs=True))).rows
        (without,) = (await rig.store.read(JobsQuery())).rows
        assert with_runs.runs == (await rig.view(job.id)).runs
        assert [run.run for run in with_runs.runs] == [1, 2]
        assert without.runs == ()

    async def test_unknown_job_is_none(self, rig: Rig) -> None:
        assert await rig.store.read(JobQuery(id=NOBODY)) is None
        assert await rig.store.read(WhyQuery(id=NOBODY)) is None

    async def test_read_changes_nothing(self, rig: Rig) -> None:
        await rig.add_many(3, due_at=rig.clock() + 5)
        await rig.worker().take()
        rig.clock.advance(10)
        before = await rig.dump()
        assert await rig.dump() == before


class StatsGroup(ConformanceGroup):
    """Counts of the whole store, without a scan."""

    async def test_every_job_is_in_one_state_and_none_is_lost_from_the_counts(
        self, rig: Rig
    ) -> None:
        gate = Slots("repo:{url}", 1)
        await rig.declare(gate)
        added = 0
        workers = [rig.worker() for _ in range(3)]
        for turn in range(30):
            added += len(await rig.add_many(3, due_at=rig.clock() + turn % 4 * 500))
            added += len(await rig.add_many(2, gates=(use_of(gate, url=turn % 2),)))
            runs = await workers[turn % 3].take(4)
            if runs and turn % 3:
                await workers[turn % 3].settle(
                    Succeeded(runs[0].id, runs[0].run), *(Died(one.id, one.run) for one in runs[2:])
                )
            await rig.pass_time(700)
            await rig.check()
            stats = await rig.store.read(StatsQuery())
            assert sum(stats.counts.values()) == added == stats.totals["enqueued"]

    async def test_totals_start_from_nothing(self, rig: Rig) -> None:
        stats = await rig.store.read(StatsQuery())
        assert not any(stats.totals.values())
        assert not any(stats.counts.values())

    async def test_store_tells_its_identity_epoch_and_time(self, rig: Rig) -> None:
        one = await rig.store.read(StatsQuery())
        rig.clock.advance(9)
        two = await rig.store.read(StatsQuery())
        assert (one.identity, one.epoch) == (two.identity, two.epoch)
        assert one.identity
        assert two.now == one.now + 9

    async def test_oldest_due_moment_of_a_lane_is_told(self, rig: Rig) -> None:
        job = await rig.add(due_at=rig.clock() - 70_000)
        await rig.add(due_at=rig.clock())
        (lane,) = (await rig.dump()).lanes
        assert lane.oldest_due_at == job.due_at

    async def test_wait_behind_gates_is_measured_apart(self, rig: Rig) -> None:
        gate = Slots("repo:{url}", 1)
        await rig.declare(gate)
        first, second = await rig.add_many(2, gates=(use_of(gate, url="a"),), due_at=rig.clock())
        worker = rig.worker()
        run = await worker.take_one()
        await worker.take()
        rig.clock.advance(4_000)
        await worker.say(Succeeded(run.id, run.run))
        rig.clock.advance(500)
        await worker.take_one()
        waits = [(await rig.view(job.id)).runs[0].blocked_ms for job in (first, second)]
        assert waits == [0, 4_000]

    async def test_wait_behind_a_shared_gate_is_measured_from_the_claim_that_met_it(
        self, rig: Rig
    ) -> None:
        line = Slots("line", 2)
        await rig.declare(line)
        first, second, third, fourth = [
            await rig.add(gates=(use_of(line),), due_at=rig.clock() + after)
            for after in (-900, -800, -700, 1_000)
        ]
        worker = rig.worker()
        runs = await worker.take(9)
        assert [run.id for run in runs] == [first.id, second.id]
        rig.clock.advance(4_000)
        await worker.settle(*(Succeeded(run.id, run.run) for run in runs))
        rig.clock.advance(500)
        runs = await worker.take(9)
        assert [run.id for run in runs] == [third.id, fourth.id]
        await worker.settle(*(Succeeded(run.id, run.run) for run in runs))
        fifth = await rig.add(gates=(use_of(line),), due_at=rig.clock())
        rig.clock.advance(200)
        assert await worker.take_ids(9) == [fifth.id]
        waits = [
            (await rig.view(job.id)).runs[0].blocked_ms
            for job in (first, second, third, fourth, fifth)
        ]
        assert waits == [0, 0, 4_500, 3_500, 0]


class TrailGroup(ConformanceGroup):
    """Who did what, when and why; newest first."""

    async def test_trail_is_read_newest_first_in_pages_each_line_once(self, rig: Rig) -> None:
        for number in range(9):
            rig.clock.advance(1)
            await rig.cap("all", number)
        lines: list[int] = []
        cursor: str | None = None
        while True:
            page = await rig.store.read(TrailQuery(cursor=cursor, limit=4))
            lines += [line.at for line in page.rows]
            cursor = page.cursor
            if cursor is None:
                break
        assert lines == sorted(lines, reverse=True)
        assert len(lines) == 9

    async def test_trail_is_forgotten_after_its_retention_a_bounded_number_a_sweep(
        self, rig: Rig
    ) -> None:
        for number in range(9):
            await rig.cap(("all", "tenant:acme")[number % 2], number)
            rig.clock.advance(1)
        first = await rig.store.read(TrailQuery(limit=4))
        rig.clock.advance(100)
        assert (await rig.store.sweep(3, keep_trail_ms=109)).removed == 0
        reply = await rig.store.sweep(3, keep_trail_ms=105)
        assert (reply.removed, reply.again) == (3, True)
        reply = await rig.store.sweep(3, keep_trail_ms=105)
        assert (reply.removed, reply.again) == (1, False)
        left = [line.at for line in (await rig.dump()).trail]
        assert left == [rig.clock() - ago for ago in (105, 104, 103, 102, 101)]
        for target, count in (("all", 3), ("tenant:acme", 2)):
            page = await rig.store.read(TrailQuery(target=target))
            assert len(page.rows) == count
        # A page that was begun before goes on with what is left.
        page = await rig.store.read(TrailQuery(cursor=first.cursor, limit=4))
        assert [line.at for line in page.rows] == left[:1]
        assert page.cursor is None

    async def test_newest_line_of_the_trail_stays_and_later_ones_come_after_it(
        self, rig: Rig
    ) -> None:
        for number in range(3):
            await rig.cap("all", number)
        rig.clock.advance(100)
        assert (await rig.store.sweep(100, keep_trail_ms=50)).removed == 2
        assert (await rig.store.sweep(100, keep_trail_ms=50)).removed == 0
        (kept,) = (await rig.dump()).trail
        await rig.cap("all", 3)
        page = await rig.store.read(TrailQuery(limit=1))
        assert page.rows[0].at == rig.clock()
        page = await rig.store.read(TrailQuery(cursor=page.cursor, limit=1))
        assert page.rows == (kept,)
        assert (await rig.store.sweep(100, keep_trail_ms=50)).removed == 1

    @pytest.mark.parametrize("target", ["all", "tenant:acme"])
    async def test_trail_of_one_target_shows_its_lines_alone(self, rig: Rig, target: str) -> None:
        for number, name in enumerate(("all", "tenant:acme", "all", "kind:dial")):
            await rig.cap(name, number)
        page = await rig.store.read(TrailQuery(target=target))
        assert {line.target for line in page.rows} == {target}
        assert len(page.rows) == (2 if target == "all" else 1)
