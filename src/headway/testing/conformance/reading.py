"""Listings, counts and the trail show exactly what is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from headway.contract.operate import Acted, Verb
from headway.contract.outcomes import Died, Failed, HandedOver, Snoozed, Succeeded
from headway.contract.views import (
    AuditQuery,
    FlowsQuery,
    GatesQuery,
    JobQuery,
    JobsQuery,
    LanesQuery,
    Query,
    StatsQuery,
    TimetableQuery,
    TrailQuery,
    WhyQuery,
)
from headway.core.errors import InvalidValue
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.rig import UNKNOWN_ID, ConformanceGroup, Rig
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import keyed, use_of


async def ids(rig: Rig, query: JobsQuery) -> list[str]:
    """Return the ids of a whole listing, read page by page."""
    rows = await rig.pages(lambda at: replace(query, cursor=at), query.limit)
    return [row.id for row in rows]


class ListingGroup(ConformanceGroup):
    """Jobs by id, key, subject, lane, tenant, kind and state."""

    async def test_listing_shows_each_job_once_oldest_arrival_first(self, rig: Rig) -> None:
        jobs = [await rig.add(priority=9 - n % 3, lane=f"lane-{n % 2}") for n in range(23)]
        for limit in (1, 7, 23, 1000):
            assert await ids(rig, JobsQuery(limit=limit)) == [job.id for job in jobs]

    async def test_listed_jobs_have_the_trail_that_each_has(self, rig: Rig) -> None:
        jobs = [job.id for job in await rig.add_many(4)]
        for verb in (Verb.KILL, Verb.RETRY, Verb.RUN_NOW, Verb.CANCEL):
            await rig.act(verb, *jobs[:2])
        await rig.act(Verb.KILL, jobs[2])
        listed = (await rig.store.read(JobsQuery(trail=True))).rows
        assert [len(one.trail) for one in listed] == [4, 4, 1, 0]
        assert [one.trail for one in listed] == [(await rig.view(one)).trail for one in jobs]
        assert {one.trail for one in (await rig.store.read(JobsQuery())).rows} == {()}

    async def test_page_of_large_jobs_is_short_and_the_next_ones_continue(self, rig: Rig) -> None:
        args = b'{"text":"%s"}' % (b"x" * 200_000)
        jobs = [job.id for _ in range(6) for job in await rig.add_many(20, args=args)]
        for newest in (False, True):
            query = JobsQuery(newest=newest, limit=1_000)
            first = await rig.store.read(query)
            assert 50 <= len(first.rows) <= 110
            assert await ids(rig, query) == (jobs[::-1] if newest else jobs)

    @pytest.mark.parametrize("text", ["with \0", "with \ud800"], ids=["nul", "surrogate"])
    async def test_text_that_no_name_can_have_is_refused(self, rig: Rig, text: str) -> None:
        read = rig.store.read
        asks: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: read(JobsQuery(tenant="", key=text)),
            lambda: read(JobsQuery(subject=text)),
            lambda: read(JobsQuery(worker=text)),
            lambda: read(FlowsQuery(lane=text)),
            lambda: read(FlowsQuery(gate=text)),
            lambda: read(GatesQuery(names=("a", text))),
            lambda: read(GatesQuery(cursor=text)),
            lambda: read(LanesQuery(names=(text,))),
            lambda: read(TimetableQuery(names=(text,))),
            lambda: read(TrailQuery(target=text)),
        )
        for ask in asks:
            with pytest.raises(InvalidValue, match=r"NUL|Unicode"):
                await ask()

    async def test_reversed_listing_shows_the_newest_first(self, rig: Rig) -> None:
        jobs = await rig.add_many(9)
        expected = [job.id for job in reversed(jobs)]
        assert await ids(rig, JobsQuery(newest=True, limit=4)) == expected

    async def test_listing_filters_by_lane_tenant_kind_and_state_in_any_combination(
        self, rig: Rig
    ) -> None:
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
        runs = await rig.worker.take(4)
        await rig.worker.settle(
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

    async def test_listing_by_ids_keeps_their_order_and_omits_unknown_ones(self, rig: Rig) -> None:
        jobs = await rig.add_many(3)
        wanted = (jobs[2].id, UNKNOWN_ID, jobs[0].id)
        assert await ids(rig, JobsQuery(ids=wanted)) == [jobs[2].id, jobs[0].id]

    async def test_listing_by_subject_is_within_the_tenant(self, rig: Rig) -> None:
        jobs = [await rig.add(subject="+1555", tenant=tenant) for tenant in ("a", "b", "a")]
        await rig.add(subject="+1666", tenant="a")
        query = JobsQuery(subject="+1555", tenant="a")
        assert await ids(rig, query) == [jobs[0].id, jobs[2].id]

    async def test_listing_by_key_shows_its_job_only_if_the_other_filters_match(
        self, rig: Rig
    ) -> None:
        job = await rig.add(key="k", tenant="a", lane="l", kind="x", subject="s")
        await rig.add(key="k", tenant="b", lane="m", kind="y", subject="t")
        by_key = JobsQuery(key="k", tenant="a")
        fitting = replace(by_key, lane="l", kind="x", subject="s", states=(State.WAITING,))
        assert await ids(rig, by_key) == await ids(rig, fitting) == [job.id]
        for other in (
            replace(by_key, lane="m"),
            replace(by_key, kind="y"),
            replace(by_key, subject="t"),
            replace(by_key, states=(State.DEAD, State.RUNNING)),
        ):
            assert await ids(rig, other) == []

    async def test_listing_by_worker_shows_its_jobs_in_order_of_start(self, rig: Rig) -> None:
        jobs = [await rig.add(priority=9 - n) for n in range(5)]
        worker, other = rig.new_worker(), rig.new_worker()
        await worker.take(3)
        (taken,) = await other.take(1)
        await worker.settle(
            Succeeded(jobs[3].id, 1), HandedOver(jobs[2].id, 1, key="k", timeout_ms=9_000)
        )
        query = JobsQuery(worker=worker.id, runs=True)
        rows = (await rig.store.read(query)).rows
        assert [one.id for one in rows] == [jobs[4].id, jobs[2].id]
        assert [len(one.runs) for one in rows] == [1, 1]
        assert await ids(rig, JobsQuery(worker=other.id)) == [taken.id]
        one = await rig.store.read(replace(query, limit=1))
        assert ([row.id for row in one.rows], one.cursor) == ([jobs[4].id], None)
        assert await ids(rig, JobsQuery(worker=UNKNOWN_ID)) == []

    async def test_listing_can_include_the_runs(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(Snoozed, after_ms=0)
        await rig.worker.take_one()
        (with_runs,) = (await rig.store.read(JobsQuery(runs=True))).rows
        (without,) = (await rig.store.read(JobsQuery())).rows
        assert with_runs.runs == (await rig.view(job.id)).runs
        assert [run.run for run in with_runs.runs] == [1, 2]
        assert without.runs == ()

    @pytest.mark.parametrize("other", [UNKNOWN_ID, "no id", "a\0b"])
    async def test_unknown_job_and_impossible_id_return_none(self, rig: Rig, other: str) -> None:
        for one in (other, "\ud800"):
            assert await rig.store.read(JobQuery(id=one)) is None
            assert await rig.store.read(WhyQuery(id=one)) is None
        job = await rig.add()
        assert await rig.cancel(other, job.id) == [Acted.UNKNOWN, Acted.DONE]

    async def test_read_changes_nothing(self, rig: Rig) -> None:
        await rig.add_many(3, due_at=rig.clock() + 5)
        await rig.worker.take()
        rig.clock.advance(10)
        before = await rig.dump()
        assert await rig.dump() == before


class FlowsGroup(ConformanceGroup):
    """Jobs that wait together, found by an index among any number of others."""

    async def test_flows_of_a_lane_are_listed_with_counts_and_first_jobs(self, rig: Rig) -> None:
        line = Slots("line", 1)
        made: dict[tuple[str, str], list[str]] = {}
        for n in range(12):
            tenant, kind = f"t{n % 2}", f"k{n % 3}"
            job = await rig.add(lane="flows", tenant=tenant, kind=kind, priority=99 - n)
            made.setdefault((tenant, kind), []).insert(0, job.id)
        gated = await rig.add(lane="flows", tenant="t0", kind="k0", gates=(line,))
        await rig.add(lane="flows", due_at=rig.clock() + 60_000)
        await rig.add(lane="elsewhere")
        page = await rig.store.read(FlowsQuery(lane="flows", first=2))
        assert page.cursor is None
        found = {(one.tenant, one.kind, len(one.shared)): one for one in page.rows}
        assert len(found) == len(page.rows) == 7
        for (tenant, kind), ids in made.items():
            flow = found[tenant, kind, 0]
            assert (flow.lane, flow.count, flow.first) == ("flows", 2, tuple(ids))
            assert flow.parked_at is None
        behind = found["t0", "k0", 1]
        assert (behind.shared, behind.first) == ((use_of(line),), (gated.id,))
        (one,) = (await rig.store.read(FlowsQuery(lane="elsewhere"))).rows
        assert (one.count, len(one.first)) == (1, 1)
        assert (await rig.store.read(FlowsQuery(lane="never used"))).rows == ()

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    async def test_flows_are_paged_without_gaps_or_repeats(self, rig: Rig, limit: int) -> None:
        phone = Slots("phone:{phone}", 1)
        use = keyed(phone, phone="1")
        for n in range(7):
            await rig.add(kind=f"k{n}", gates=(use,))
        await rig.add(kind="k0", gates=(use,))
        await rig.add(kind="other", gates=(keyed(phone, phone="2"),))
        await rig.worker.take(9)
        for n in range(7):
            await rig.add(kind=f"k{n}")
            await rig.add(kind="other", lane="elsewhere", tenant=f"t{n}")
        for query in (FlowsQuery(lane=LANE, limit=limit), FlowsQuery(gate=use.name, limit=limit)):
            flows = await rig.pages(lambda at, query=query: replace(query, cursor=at), limit)
            assert sorted(flow.kind for flow in flows) == [f"k{n}" for n in range(7)]

    @pytest.mark.parametrize("first", [1, 3, 100])
    async def test_flow_names_its_first_waiting_jobs(self, rig: Rig, first: int) -> None:
        jobs = [await rig.add(priority=9 - n) for n in range(5)]
        (flow,) = (await rig.store.read(FlowsQuery(lane=LANE, first=first))).rows
        ids = [job.id for job in reversed(jobs)]
        assert (flow.count, flow.first) == (5, tuple(ids[:first]))

    async def test_flow_counts_waiting_jobs_up_to_a_thousand(self, rig: Rig) -> None:
        await rig.add_many(999)
        (flow,) = (await rig.store.read(FlowsQuery(lane=LANE))).rows
        assert flow.count == 999
        await rig.add_many(2)
        (flow,) = (await rig.store.read(FlowsQuery(lane=LANE))).rows
        assert flow.count == 1_000

    async def test_flows_omit_started_and_ended_jobs(self, rig: Rig) -> None:
        jobs = await rig.add_many(5)
        runs = await rig.worker.take(3)
        await rig.worker.settle(Succeeded(runs[0].id, 1))
        await rig.cancel(jobs[3].id)
        (flow,) = (await rig.store.read(FlowsQuery(lane=LANE, first=100))).rows
        assert (flow.count, flow.first) == (1, (jobs[4].id,))

    async def test_flows_of_a_gate_contain_the_jobs_parked_there(self, rig: Rig) -> None:
        phone = Slots("phone:{phone}", 1)
        uses = [keyed(phone, phone=n) for n in ("1", "2")]
        jobs = [await rig.add(gates=(use,), tenant=t) for t in "ab" for use in uses for _ in "xy"]
        taken = {one.id for one in await rig.new_worker().take(9)}
        assert len(taken) == 2
        parked: list[str] = []
        for use in uses:
            page = await rig.store.read(FlowsQuery(gate=use.name, first=9))
            assert {(one.lane, one.kind, one.parked_at) for one in page.rows} == {
                (LANE, jobs[0].kind, use.name)
            }
            assert all(one.count == len(one.first) for one in page.rows)
            parked += [one for flow in page.rows for one in flow.first]
        assert sorted(parked) == sorted(one.id for one in jobs if one.id not in taken)
        assert (await rig.store.read(FlowsQuery(gate="phone:3"))).rows == ()

    async def test_flows_of_a_gate_name_as_many_jobs_as_requested(self, rig: Rig) -> None:
        phone = Slots("phone:{phone}", 1)
        use = keyed(phone, phone="1")
        jobs = [await rig.add(gates=(use,), priority=9 - n) for n in range(5)]
        await rig.worker.take(9)
        ids = [job.id for job in reversed(jobs)][1:]
        for first in (1, 3, 100):
            (flow,) = (await rig.store.read(FlowsQuery(gate=use.name, first=first))).rows
            assert flow.first == tuple(ids[:first])

    async def test_gates_with_parked_jobs_are_found_among_others(self, rig: Rig) -> None:
        phone, lines = Slots("phone:{phone}", 1), Slots("lines", 1)
        for n in range(9):
            use = keyed(phone, phone=str(n))
            for _ in range(1 + n % 2):
                await rig.add(gates=(use,))
        never = keyed(phone, 2, phone="never")
        await rig.add(gates=(never,))
        for _ in range(2):
            await rig.add(gates=(lines,))
        await rig.worker.take(20)
        names = ["phone:1", "phone:3", "phone:5", "phone:7", "phone:never"]
        for limit in (1, 2, 5, 100):
            query = GatesQuery(parked=True, limit=limit)
            gates = await rig.pages(lambda at, query=query: replace(query, cursor=at), limit)
            assert [one.name for one in gates] == names
            assert [one.parked for one in gates] == [1] * 5
            assert {(one.template, one.kind) for one in gates} == {("phone:{phone}", "slots")}

    async def test_flows_of_a_gate_start_with_jobs_that_never_fit_it(self, rig: Rig) -> None:
        phone = Slots("phone:{phone}", 1)
        one = keyed(phone, phone="1")
        # The last unfit job is in the same flow as the jobs that fit.
        never = keyed(phone, 2, phone="1")
        unfit = [await rig.add(gates=(never,), tenant=tenant) for tenant in ("a", "b", "same")]
        fit = [await rig.add(gates=(one,), tenant="same") for _ in range(2)]
        await rig.worker.take(9)
        page = await rig.store.read(FlowsQuery(gate=one.name, first=9))
        assert {(flow.tenant, flow.unfit, flow.first) for flow in page.rows} == {
            ("a", True, (unfit[0].id,)),
            ("b", True, (unfit[1].id,)),
            ("same", True, (unfit[2].id,)),
            ("same", False, (fit[1].id,)),
        }
        # Unfit jobs are only on the first page, whatever its size.
        page = await rig.store.read(FlowsQuery(gate=one.name, first=1, limit=1))
        assert [flow.unfit for flow in page.rows] == [True, False]
        rest = await rig.store.read(FlowsQuery(gate=one.name, cursor=page.cursor))
        assert (rest.rows, rest.cursor) == ((), None)

    @pytest.mark.parametrize(
        "query",
        [
            FlowsQuery(lane=LANE, limit=0),
            FlowsQuery(lane=LANE, limit=101),
            FlowsQuery(lane=LANE, first=0),
            FlowsQuery(lane=LANE, first=101),
            FlowsQuery(lane=LANE, cursor="x"),
            FlowsQuery(lane=LANE, cursor=str(2**31)),
        ],
        ids=lambda query: f"{query.limit} {query.first} {query.cursor}",
    )
    async def test_flows_refuse_a_page_too_large_or_a_foreign_cursor(
        self, rig: Rig, query: FlowsQuery
    ) -> None:
        with pytest.raises(InvalidValue):
            await rig.store.read(query)

    @pytest.mark.parametrize(
        ("query", "limit"),
        [(JobsQuery(limit=0), "0"), (JobsQuery(limit=1_001), "1001"), (AuditQuery(limit=0), "0")],
        ids=["jobs 0", "jobs 1001", "audit 0"],
    )
    async def test_jobs_and_audit_refuse_too_few_or_too_many_rows_per_page(
        self, rig: Rig, query: Query[Any], limit: str
    ) -> None:
        with pytest.raises(InvalidValue, match=limit):
            await rig.store.read(query)

    @pytest.mark.parametrize("cursor", ["x", "-1", "\N{SUPERSCRIPT TWO}", "9" * 30])
    async def test_jobs_and_trail_refuse_the_cursor_of_another_listing(
        self, rig: Rig, cursor: str
    ) -> None:
        with pytest.raises(InvalidValue, match="does not belong to this listing"):
            await rig.store.read(JobsQuery(cursor=cursor))
        with pytest.raises(InvalidValue, match="does not belong to this listing"):
            await rig.store.read(TrailQuery(cursor=cursor))


class StatsGroup(ConformanceGroup):
    """Counts of the whole store, without a scan."""

    async def test_every_job_is_in_one_state_and_none_is_missing_from_the_counts(
        self, rig: Rig
    ) -> None:
        gate = Slots("repo:{url}", 1)
        added = 0
        workers = [rig.new_worker() for _ in range(3)]
        for turn in range(30):
            added += len(await rig.add_many(3, due_at=rig.clock() + turn % 4 * 500))
            added += len(await rig.add_many(2, gates=(keyed(gate, url=turn % 2),)))
            runs = await workers[turn % 3].take(4)
            if runs and turn % 3:
                await workers[turn % 3].settle(
                    Succeeded(runs[0].id, runs[0].run), *(Died(one.id, one.run) for one in runs[2:])
                )
            await rig.pass_time(700)
            await rig.check()
            stats = await rig.store.read(StatsQuery())
            assert sum(stats.counts.values()) == added == stats.totals["enqueued"]

    async def test_totals_start_at_zero(self, rig: Rig) -> None:
        stats = await rig.store.read(StatsQuery())
        assert not any(stats.totals.values())
        assert not any(stats.counts.values())

    async def test_store_returns_its_identity_epoch_and_time(self, rig: Rig) -> None:
        one = await rig.store.read(StatsQuery())
        rig.clock.advance(9)
        two = await rig.store.read(StatsQuery())
        assert (one.identity, one.epoch) == (two.identity, two.epoch)
        assert one.identity
        assert two.now == one.now + 9

    async def test_oldest_due_time_of_a_lane_is_returned(self, rig: Rig) -> None:
        await rig.add(due_at=rig.clock(), tenant="beta")
        job = await rig.add(due_at=rig.clock() - 70_000)
        await rig.add(due_at=rig.clock())
        (lane,) = (await rig.dump()).lanes
        assert lane.oldest_due_at == job.due_at

    async def test_wait_behind_gates_is_measured_separately_for_each_attempt(
        self, rig: Rig
    ) -> None:
        gate = Slots("repo:{url}", 1)
        jobs = await rig.add_many(2, gates=(keyed(gate, url="a"),), due_at=rig.clock())
        run = await rig.worker.take_one()
        await rig.worker.take()
        rig.clock.advance(4_000)
        await rig.worker.finish(run)
        rig.clock.advance(500)
        await rig.worker.take_and_report(Failed, after_ms=1_000)
        rig.clock.advance(1_000)
        assert await rig.worker.take_ids() == [jobs[1].id]
        waits = [[run.blocked_ms for run in (await rig.view(job.id)).runs] for job in jobs]
        assert waits == [[0], [4_000, 0]]

    async def test_parking_while_the_flow_is_closed_does_not_lengthen_the_wait(
        self, rig: Rig
    ) -> None:
        line, repo = Slots("line", 2), Slots("repo:{url}", 1)
        both = (keyed(line), keyed(repo, url="a"))
        _, parked = await rig.add_many(2, gates=both, due_at=rig.clock())
        run = await rig.worker.take_one()
        assert await rig.worker.take(9) == []
        await rig.close_gate("line")
        await rig.add(gates=(line,))
        assert await rig.worker.take(9) == []
        rig.clock.advance(4_000)
        await rig.open_gate("line")
        await rig.worker.take_one()
        await rig.worker.finish(run)
        rig.clock.advance(500)
        assert await rig.worker.take_ids(9) == [parked.id]
        assert 4_000 <= (await rig.view(parked.id)).runs[0].blocked_ms <= 4_500

    async def test_wait_behind_a_shared_gate_is_measured_from_the_claim_that_met_it(
        self, rig: Rig
    ) -> None:
        line = Slots("line", 2)
        first, second, third, fourth = [
            await rig.add(gates=(line,), due_at=rig.clock() + after)
            for after in (-900, -800, -700, 1_000)
        ]
        runs = await rig.worker.take(9)
        assert [run.id for run in runs] == [first.id, second.id]
        rig.clock.advance(4_000)
        await rig.worker.finish(*runs)
        rig.clock.advance(500)
        runs = await rig.worker.take(9)
        assert [run.id for run in runs] == [third.id, fourth.id]
        await rig.worker.finish(*runs)
        fifth = await rig.add(gates=(line,), due_at=rig.clock())
        rig.clock.advance(200)
        assert await rig.worker.take_ids(9) == [fifth.id]
        waits = [
            (await rig.view(job.id)).runs[0].blocked_ms
            for job in (first, second, third, fourth, fifth)
        ]
        assert waits == [0, 0, 4_500, 3_500, 0]

    async def test_each_closing_of_a_shared_gate_counts_for_all_who_waited_through_it(
        self, rig: Rig
    ) -> None:
        jobs = await rig.add_many(2, gates=(Slots("line", 9),), due_at=rig.clock())
        for shut_ms in (4_000, 3_000):
            await rig.close_gate("line")
            assert await rig.worker.take() == []
            rig.clock.advance(shut_ms)
            await rig.open_gate("line")
            # The second job starts after a claim has found the gate open.
            await rig.worker.take_one()
            rig.clock.advance(500)
            await rig.worker.take_one()
            jobs += await rig.add_many(2, gates=(Slots("line", 9),), due_at=rig.clock())
        waits = [(await rig.view(job.id)).runs[0].blocked_ms for job in jobs[:4]]
        assert waits == [4_000, 4_000, 3_000, 3_000]


class TrailGroup(ConformanceGroup):
    """Who did what, when and why; newest first."""

    async def test_trail_is_read_newest_first_in_pages_each_line_once(self, rig: Rig) -> None:
        for number in range(9):
            rig.clock.advance(1)
            await rig.cap("all", number)
        trail = await rig.pages(lambda at: TrailQuery(cursor=at, limit=4), 4)
        lines = [line.at for line in trail]
        assert lines == sorted(lines, reverse=True)
        assert len(lines) == 9

    async def test_sweep_forgets_a_bounded_number_of_trail_lines_after_retention(
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
        # A listing that was started before continues with the remaining lines.
        page = await rig.store.read(TrailQuery(cursor=first.cursor, limit=4))
        assert [line.at for line in page.rows] == left[:1]
        assert page.cursor is None

    async def test_newest_trail_line_stays_and_later_ones_follow_it(self, rig: Rig) -> None:
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
    async def test_trail_of_one_target_shows_only_its_lines(self, rig: Rig, target: str) -> None:
        for number, name in enumerate(("all", "tenant:acme", "all", "kind:dial")):
            await rig.cap(name, number)
        page = await rig.store.read(TrailQuery(target=target))
        assert {line.target for line in page.rows} == {target}
        assert len(page.rows) == (2 if target == "all" else 1)
