"""Leases and beats: live workers, lost runs, lost replies; leaders and sweeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.contract.claims import BeatRequest
from headway.contract.outcomes import Failed, HandedOver, Released, Verdict
from headway.core.gates.slots import Slots
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.testing.conformance.rig import SHORT, UNKNOWN_ID, ConformanceGroup, Rig
from headway.testing.conformance.worker import LANE, LEASE_MS
from headway.testing.jobs import POLICY, keyed

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)


class LeaseGroup(ConformanceGroup):
    """Runs stay live while their worker beats."""

    async def test_beat_extends_every_run_of_its_worker(self, rig: Rig) -> None:
        await rig.add_many(2)
        one, two = await rig.worker.take(2)
        for _ in range(3):
            await rig.pass_time(LEASE_MS - 1)
            reply = await rig.worker.beat(one, two)
            assert (reply.lost, reply.cancel) == ((), ())
            assert (reply.now, reply.lease_until) == (rig.clock(), rig.clock() + LEASE_MS)
        assert await rig.worker.finish(one) == [Verdict.DONE]

    async def test_beat_extends_by_the_given_duration(self, rig: Rig) -> None:
        run = await rig.start()
        reply = await rig.worker.beat(run, lease_ms=90_000)
        assert reply.lease_until == rig.clock() + 90_000
        await rig.pass_time(89_999)
        assert await rig.worker.finish(run) == [Verdict.DONE]

    async def test_beat_of_one_worker_extends_no_other(self, rig: Rig) -> None:
        await rig.add_many(2)
        one, other = rig.new_worker(), rig.new_worker()
        run_one, run_other = await one.take_one(), await other.take_one()
        rig.clock.advance(LEASE_MS - 1)
        await one.beat(run_one)
        await rig.pass_time(1)
        assert await rig.state(run_one.id) is State.RUNNING
        assert await rig.state(run_other.id) is State.SCHEDULED

    async def test_run_with_an_expired_lease_is_retried_and_uses_an_attempt(self, rig: Rig) -> None:
        job = await rig.add(gates=(LINE,))
        await rig.new_worker().take()
        await rig.pass_time(LEASE_MS)
        view = await rig.view(job.id)
        assert (view.state, view.attempt) == (State.SCHEDULED, 1)
        assert (view.runs[0].outcome, view.runs[0].ended_at) == ("lost", rig.clock())
        assert await rig.used("line") == 0
        assert await rig.total("lost") == 1
        rig.clock.advance(2_000)
        run = await rig.new_worker().take_one()
        assert (run.run, run.attempt) == (2, 2)

    async def test_job_that_always_loses_its_lease_ends_dead(self, rig: Rig) -> None:
        job = await rig.add()
        for _ in range(3):
            await rig.new_worker().take_one()
            await rig.pass_time(LEASE_MS)
            rig.clock.advance(100_000)
        view = await rig.view(job.id)
        assert view.state is State.DEAD
        assert view.reason
        assert len(view.runs) == 3

    async def test_claim_after_the_lease_expired_revives_no_earlier_run(self, rig: Rig) -> None:
        first, second = await rig.add_many(2)
        old = await rig.worker.take_one()
        rig.clock.advance(LEASE_MS + 1)
        new = await rig.worker.take_one()
        assert (old.id, new.id) == (first.id, second.id)
        assert await rig.worker.finish(old) == [Verdict.LOST]
        assert (await rig.worker.beat(old, new)).lost == ((old.id, old.run),)
        await rig.sweep()
        assert await rig.state(first.id) is State.SCHEDULED
        assert await rig.worker.finish(new) == [Verdict.DONE]

    @pytest.mark.parametrize("how", ["claim", "beat"])
    async def test_run_is_lost_at_the_instant_its_lease_ends(self, rig: Rig, how: str) -> None:
        run = await rig.start()
        rig.clock.advance(LEASE_MS)
        if how == "claim":
            assert await rig.worker.take() == []
        else:
            assert (await rig.worker.beat(run, request=1)).lost == ((run.id, run.run),)
        assert await rig.state(run.id) is State.SCHEDULED
        assert await rig.worker.finish(run) == [Verdict.LOST]

    async def test_claim_reports_its_workers_lost_jobs_that_are_dead(self, rig: Rig) -> None:
        run = await rig.start(policy=replace(POLICY, retry=RetryPolicy(attempts=1)))
        rig.clock.advance(LEASE_MS)
        assert (await rig.worker.ask()).dead == (run.id,)

    async def test_worker_that_beats_after_its_lease_expired_is_alive(self, rig: Rig) -> None:
        await rig.worker.beat()
        await rig.pass_time(LEASE_MS)
        await rig.worker.beat()
        assert (await rig.store.sweep(100)).workers == 1
        rig.clock.advance(LEASE_MS)
        assert (await rig.store.sweep(100)).workers == 0

    async def test_repeated_claim_after_the_lease_expired_returns_no_lost_run(
        self, rig: Rig
    ) -> None:
        run = await rig.start()
        rig.clock.advance(LEASE_MS + 1)
        assert (await rig.worker.repeat()).jobs == []
        await rig.sweep()
        assert await rig.state(run.id) is State.SCHEDULED

    async def test_run_not_listed_by_a_beat_is_released_unused(self, rig: Rig) -> None:
        lost = await rig.add(gates=(LINE,))
        await rig.worker.ask()
        await rig.worker.beat(request=1)
        view = await rig.view(lost.id)
        assert (view.state, view.error) == (State.WAITING, "")
        assert await rig.used("line") == 0
        run = await rig.new_worker().take_one()
        assert (run.run, run.attempt) == (2, 1)

    async def test_run_of_a_claim_later_than_the_beat_knows_is_kept(self, rig: Rig) -> None:
        await rig.add_many(3)
        first = await rig.worker.take_one()
        second = await rig.worker.take_one()
        await rig.worker.beat(first, request=1)
        assert await rig.state(second.id) is State.RUNNING
        await rig.worker.beat(first, request=2)
        assert await rig.state(second.id) is State.WAITING
        assert await rig.state(first.id) is State.RUNNING

    async def test_beat_without_claims_releases_nothing(self, rig: Rig) -> None:
        await rig.add_many(2)
        first, second = await rig.worker.take(2)
        await rig.worker.beat(first)
        assert await rig.state(second.id) is State.RUNNING

    async def test_handed_over_run_is_not_released_if_unlisted(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(HandedOver, key="call-1", timeout_ms=60_000)
        await rig.worker.beat(request=1)
        assert await rig.state(job.id) is State.AWAITING
        assert await rig.worker.take(5) == []

    async def test_leaving_worker_returns_everything_unused(self, rig: Rig) -> None:
        await rig.add_many(2)
        runs = await rig.worker.take(2)
        await rig.worker.beat(leaving=True)
        again = await rig.new_worker().take(5)
        assert [run.id for run in again] == [run.id for run in runs]
        assert {run.attempt for run in again} == {1}

    async def test_leaving_worker_leaves_an_awaiting_job_uncertain(self, rig: Rig) -> None:
        job = await rig.add()
        run = await rig.worker.take_and_report(HandedOver, key="call-1", timeout_ms=90_000)
        await rig.worker.beat(leaving=True)
        view = await rig.view(job.id)
        assert (view.state, view.in_doubt, view.worker) == (State.AWAITING, True, None)
        assert await rig.worker.report(Failed(run.id, run.run)) is Verdict.LOST

    async def test_run_still_listed_by_a_leaving_worker_uses_its_attempt(self, rig: Rig) -> None:
        started, unheard = await rig.add_many(2)
        run, _ = await rig.worker.take(2)
        await rig.worker.beat(run, request=rig.worker.request, leaving=True)
        views = [await rig.view(job.id) for job in (started, unheard)]
        assert [view.state for view in views] == [State.SCHEDULED, State.WAITING]
        assert [view.runs[-1].outcome for view in views] == ["lost", "unused"]
        assert [view.attempt for view in views] == [1, 0]
        assert (await rig.dump()).workers[0].lease_until == rig.clock()

    async def test_progress_is_kept_until_the_end_of_its_run(self, rig: Rig) -> None:
        run = await rig.start()
        await rig.worker.beat(run, progress=[(run.id, run.run, b'{"done":4}')])
        assert (await rig.view(run.id)).progress == b'{"done":4}'
        await rig.worker.beat(run)
        assert (await rig.view(run.id)).progress == b'{"done":4}'
        await rig.worker.report(Released(run.id, run.run))
        assert (await rig.view(run.id)).progress is None
        again = await rig.worker.take_one()
        await rig.worker.beat(again, progress=[(run.id, run.run, b'{"done":5}')])
        assert (await rig.view(run.id)).progress is None

    async def test_beat_of_a_nonexistent_run_returns_lost(self, rig: Rig) -> None:
        job = await rig.add()
        stranger = (UNKNOWN_ID, 1)
        reply = await rig.worker.beat((job.id, 1), stranger)
        assert set(reply.lost) == {(job.id, 1), stranger}

    async def test_worker_is_listed_with_its_lanes_and_jobs(self, rig: Rig) -> None:
        await rig.add_many(2)
        runs = await rig.worker.take(2)
        rig.clock.advance(40)
        await rig.worker.beat(*runs)
        (view,) = (await rig.dump()).workers
        assert (view.id, view.name) == (rig.worker.id, f"{rig.worker.id}@host")
        assert (view.lanes, view.running) == ((LANE,), 2)
        assert (view.seen_at, view.lease_until) == (rig.clock(), rig.clock() + LEASE_MS)

    async def test_worker_shows_the_lanes_of_its_claim_until_a_beat_names_others(
        self, rig: Rig
    ) -> None:
        await rig.add()
        await rig.worker.ask(1, "calls", "mails")
        (view,) = (await rig.dump()).workers
        assert (view.lanes, view.name, view.seen_at) == (("calls", "mails"), "", rig.clock())
        await rig.worker.beat(request=0)
        await rig.add()
        await rig.worker.ask(1, "calls", "texts")
        rig.clock.advance(40)
        # A beat without a name and lanes leaves both unchanged.
        await rig.store.beat(BeatRequest(worker=rig.worker.id, lease_ms=LEASE_MS))
        (view,) = (await rig.dump()).workers
        assert (view.lanes, view.name, view.running) == ((LANE,), f"{rig.worker.id}@host", 2)
        assert (view.seen_at, view.lease_until) == (rig.clock(), rig.clock() + LEASE_MS)

    async def test_worker_that_beat_before_claiming_shows_the_lanes_of_its_claim(
        self, rig: Rig
    ) -> None:
        await rig.add_many(2, subject=None, **SHORT)
        await rig.store.beat(BeatRequest(worker=rig.worker.id, lease_ms=LEASE_MS))
        await rig.worker.take()
        (view,) = (await rig.dump()).workers
        assert (view.lanes, view.running) == ((LANE,), 1)

    async def test_dead_worker_is_listed_for_an_hour(self, rig: Rig) -> None:
        await rig.worker.beat()
        await rig.pass_time(LEASE_MS + 3_500_000)
        assert len((await rig.dump()).workers) == 1
        await rig.pass_time(200_000)
        assert (await rig.dump()).workers == ()

    async def test_worker_with_the_same_name_but_another_id_gets_no_run_of_the_first(
        self, rig: Rig
    ) -> None:
        await rig.add()
        old, new = rig.new_worker(), rig.new_worker()
        run = await old.take_one()
        assert (await new.repeat(request=1)).jobs == []
        assert (await new.beat(run)).lost == ((run.id, run.run),)
        assert await old.finish(run) == [Verdict.DONE]


class SweepGroup(ConformanceGroup):
    """Changes caused only by the passing of time, in bounded steps."""

    async def test_sweep_of_a_quiet_store_does_nothing(self, rig: Rig) -> None:
        await rig.add()
        async with rig.unchanged():
            reply = await rig.store.sweep(100)
            done = (reply.lost, reply.deadlines, reply.expired, reply.promoted, reply.fed)
            assert (done, reply.again) == ((0, 0, 0, 0, 0), False)

    async def test_sweep_counts_what_it_did(self, rig: Rig) -> None:
        now = rig.clock()
        await rig.start(expires_at=None)
        await rig.add(due_at=now + 1_000, expires_at=None)
        await rig.add(expires_at=now + 1_000)
        rig.clock.advance(LEASE_MS)
        reply = await rig.store.sweep(100)
        assert (reply.lost, reply.expired, reply.promoted) == (1, 1, 1)

    async def test_sweep_names_the_jobs_that_became_dead(self, rig: Rig) -> None:
        once = replace(POLICY, retry=RetryPolicy(attempts=1))
        last = await rig.add(policy=once, expires_at=None)
        again = await rig.add(expires_at=None)
        awaiting = await rig.add(policy=once, expires_at=None)
        run = {run.id: run for run in await rig.worker.take(3)}[awaiting.id]
        await rig.worker.report(HandedOver(run.id, run.run, key="call-1", timeout_ms=LEASE_MS))
        late = await rig.add(expires_at=rig.clock() + 1_000)
        rig.clock.advance(LEASE_MS)
        replies = await rig.sweep()
        named = [job for reply in replies for job in reply.dead]
        assert sorted(named) == sorted((last.id, awaiting.id, late.id))
        assert (await rig.view(again.id)).state is State.SCHEDULED
        assert [reply.dead for reply in await rig.sweep()] == [()]

    async def test_sweep_is_bounded_and_says_that_more_is_due(self, rig: Rig) -> None:
        await rig.add_many(5, expires_at=rig.clock() + 1_000)
        rig.clock.advance(2_000)
        first = await rig.store.sweep(2)
        assert (first.expired, first.again) == (2, True)
        done = 2
        for _ in range(5):
            done += (await rig.store.sweep(2)).expired
        assert done == 5

    async def test_sweep_handles_a_dead_workers_jobs_in_parts_and_in_order(self, rig: Rig) -> None:
        made = [
            await rig.add(priority=n // 7, due_at=rig.clock() - 9 * (n // 7 + 1) + n % 7 // 2)
            for n in reversed(range(25))
        ]
        jobs = sorted(made, key=lambda job: (job.priority, job.due_at or 0))
        worker, other = rig.new_worker(), rig.new_worker()
        runs = await worker.take(25)
        handed = [HandedOver(r.id, r.run, key=r.id, timeout_ms=600_000) for r in runs[5:8]]
        await worker.settle(*handed)
        await rig.add()
        await other.take_one()
        await rig.cancel(runs[-1].id)
        rig.clock.advance(LEASE_MS)
        for done in (10, 20, 26):
            reply = await rig.store.sweep(10)
            assert reply.again is (done < 26)
            held = [State.AWAITING if run in runs[5:8] else State.RUNNING for run in runs[done:]]
            states = await rig.states(*jobs)
            assert states[done:] == held
            assert State.RUNNING not in states[:done]
            for run in runs:
                assert await worker.finish(run) == [Verdict.LOST]
                assert await worker.report(Failed(run.id, run.run, error="no")) is Verdict.LOST
            assert await rig.states(*jobs) == states
            await rig.check()
        assert states[:24] == [State.SCHEDULED] * 5 + [State.AWAITING] * 3 + [State.SCHEDULED] * 16
        assert states[24] is State.CANCELLED
        assert (await rig.store.sweep(10)).again is False
        assert await rig.total("lost") == 23
        rig.clock.advance(100_000)
        again = await rig.new_worker().take(30)
        assert {run.id for run in again} >= {run.id for run in (*runs[:5], *runs[8:24])}
        assert {run.attempt for run in again} == {2}

    async def test_sweep_is_bounded_over_the_jobs_of_all_dead_workers(self, rig: Rig) -> None:
        await rig.add_many(12)
        for _ in range(3):
            assert len(await rig.new_worker().take(4)) == 4
        rig.clock.advance(LEASE_MS)
        replies = [await rig.store.sweep(6) for _ in range(3)]
        assert [(reply.lost, reply.again) for reply in replies] == [
            (6, True),
            (6, True),
            (0, False),
        ]

    async def test_beat_between_sweeps_of_its_worker_revives_no_run(self, rig: Rig) -> None:
        await rig.add_many(5)
        runs = await rig.worker.take(5)
        rig.clock.advance(LEASE_MS)
        assert (await rig.store.sweep(2)).lost == 2
        reply = await rig.worker.beat(*runs)
        assert reply.lost == tuple((run.id, run.run) for run in runs)
        assert await rig.total("lost") == 5
        assert await rig.worker.finish(runs[4]) == [Verdict.LOST]
        assert (await rig.store.sweep(2)).lost == 0

    async def test_dead_worker_with_jobs_left_is_found_however_old(self, rig: Rig) -> None:
        jobs = await rig.add_many(3)
        await rig.worker.take(3)
        rig.clock.advance(2 * 3_600_000)
        for left in (2, 1, 0):
            await rig.store.sweep(1)
            assert (await rig.states(*jobs)).count(State.RUNNING) == left

    async def test_sweep_returns_the_number_of_live_workers_and_the_first_lease_end(
        self, rig: Rig
    ) -> None:
        assert (await rig.store.sweep(100)).workers == 0
        for n, worker in enumerate((rig.worker, rig.new_worker(), rig.new_worker()), 1):
            await worker.beat(lease_ms=n * 10_000)
        reply = await rig.store.sweep(100)
        assert (reply.workers, reply.next_at) == (3, rig.clock() + 10_000)
        rig.clock.advance(10_000)
        reply = await rig.store.sweep(100)
        assert (reply.workers, reply.next_at) == (2, rig.clock() + 10_000)

    async def test_sweep_that_reached_its_limit_of_workers_has_more_to_do(self, rig: Rig) -> None:
        for worker in (rig.worker, rig.new_worker()):
            await worker.beat()
        rig.clock.advance(LEASE_MS)
        assert (await rig.store.sweep(1)).again
        await rig.store.sweep(1)
        reply = await rig.store.sweep(1)
        assert (reply.again, reply.workers) == (False, 0)

    async def test_sweep_says_when_there_is_something_to_do(self, rig: Rig) -> None:
        await rig.add(expires_at=None)
        await rig.add(expires_at=rig.clock() + 7_000)
        expiry = (await rig.store.sweep(100)).next_at
        assert expiry is not None
        assert rig.clock() + 7_000 <= expiry <= rig.clock() + 7_001
        await rig.worker.ask(lease_ms=3_000)
        assert (await rig.store.sweep(100)).next_at == rig.clock() + 3_000

    async def test_sweep_returns_the_next_deadline_and_timer(self, rig: Rig) -> None:
        run = await rig.start(expires_at=None)
        await rig.worker.report(HandedOver(run.id, run.run, key="sid", timeout_ms=20_000))
        assert (await rig.store.sweep(100)).next_at == rig.clock() + 20_000
        await rig.add(gates=(keyed(PHONE, phone=1),), expires_at=None)
        await rig.close_gate("phone:1", rig.clock() + 9_000)
        assert await rig.worker.take() == []
        assert (await rig.store.sweep(100)).next_at == rig.clock() + 9_000


async def lead(rig: Rig, holder: str) -> int:
    """Lead the alerts as this holder; return the term."""
    term = await rig.store.lead("alerts", holder, 10_000)
    assert term is not None
    return term


class LeadGroup(ConformanceGroup):
    """One leader for each chore with outside effects, with increasing terms."""

    async def test_one_worker_leads_each_role_and_the_others_are_refused(self, rig: Rig) -> None:
        await lead(rig, "one")
        assert await rig.store.lead("alerts", "two", 10_000) is None
        assert await rig.store.lead("bridges", "two", 10_000) is not None

    async def test_leader_keeps_its_term(self, rig: Rig) -> None:
        term = await lead(rig, "one")
        rig.clock.advance(9_999)
        assert await lead(rig, "one") == term
        rig.clock.advance(9_999)
        assert await rig.store.lead("alerts", "two", 10_000) is None

    @pytest.mark.parametrize("holder", ["one", "two"], ids=["late", "new"])
    async def test_term_increases_with_each_late_or_new_leader(self, rig: Rig, holder: str) -> None:
        first = await lead(rig, "one")
        rig.clock.advance(10_000)
        second = await lead(rig, holder)
        rig.clock.advance(10_000)
        third = await lead(rig, "one")
        assert first < second < third

    @pytest.mark.parametrize("jump_ms", [-3_600_000, -1])
    async def test_leader_is_not_replaced_when_the_clock_jumps_back(
        self, rig: Rig, jump_ms: int
    ) -> None:
        await lead(rig, "one")
        rig.clock.advance(jump_ms)
        assert await rig.store.lead("alerts", "two", 10_000) is None
