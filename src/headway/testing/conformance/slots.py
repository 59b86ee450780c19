"""Slots and pools of them: counted permits, and how an operator releases one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from headway.contract.claims import Claimed
from headway.contract.definitions import DeclareLane, LaneSpec, SetGate
from headway.contract.outcomes import (
    Failed,
    GaveBack,
    HandedOver,
    Outcome,
    Released,
    Succeeded,
    Verdict,
)
from headway.core.errors import InvalidValue
from headway.core.gates.pool import Pool
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.rig import (
    UNKNOWN_ID,
    ConformanceGroup,
    Rig,
    each_bad_note,
    each_end,
)
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import keyed

LINE = Slots("line", 2)
WIDE = Slots("wide", 4)
LOCK = Slots("lock:{name}", 1)


class SlotsGroup(ConformanceGroup):
    """A counting semaphore whose permits are rows that name their holders."""

    async def test_permits_in_use_never_exceed_the_capacity(self, rig: Rig) -> None:
        jobs = await rig.add_many(5, gates=(LINE,))
        runs = await rig.worker.take(5)
        assert [run.id for run in runs] == [jobs[0].id, jobs[1].id]
        assert await rig.worker.take(5) == []
        gate = await rig.gate("line")
        assert (gate.used, gate.free, gate.open) == (2, 0, False)
        await rig.worker.finish(runs[0])
        assert await rig.worker.take_ids(5) == [jobs[2].id]

    async def test_permit_names_its_holder(self, rig: Rig) -> None:
        job = await rig.add(gates=(WIDE.take(3),))
        rig.clock.advance(70)
        await rig.worker.take()
        (holder,) = (await rig.gate("wide")).holders
        assert (holder.gate, holder.job, holder.run) == ("wide", job.id, 1)
        assert (holder.member, holder.amount, holder.since) == ("", 3, rig.clock())

    @each_end
    async def test_every_end_of_a_run_releases_its_permits(
        self, rig: Rig, outcome: Callable[..., Outcome]
    ) -> None:
        run = await rig.start(gates=(LINE, keyed(LOCK, name="a")))
        assert (await rig.used("line"), await rig.used("lock:a")) == (1, 1)
        await rig.worker.settle(outcome(run.id, run.run))
        assert (await rig.used("line"), await rig.holders("line")) == (0, [])
        assert await rig.state(run.id) is not State.RUNNING
        other = await rig.add(gates=(keyed(LOCK, name="a"),), priority=1)
        assert other.id in await rig.worker.take_ids(2)

    async def test_job_takes_all_its_permits_or_none(self, rig: Rig) -> None:
        await rig.declare(LINE, WIDE, LOCK)
        await rig.cap("wide", 0)
        await rig.add(gates=(LINE, WIDE, keyed(LOCK, name="a")))
        await rig.add(gates=(keyed(LOCK, name="b"), LINE.take(2)))
        await rig.worker.take(5)
        blocked = await rig.add(gates=(keyed(LOCK, name="b"), keyed(LOCK, name="c")))
        await rig.worker.take(5)
        assert (await rig.used("line"), await rig.used("wide")) == (2, 0)
        assert await rig.state(blocked.id) is State.PARKED
        free = await rig.add(gates=(keyed(LOCK, name="a"), keyed(LOCK, name="c")))
        assert await rig.worker.take_ids(5) == [free.id]

    async def test_jobs_with_gates_in_opposite_order_never_deadlock(self, rig: Rig) -> None:
        one, two = keyed(LOCK, name="1"), keyed(LOCK, name="2")
        jobs = [await rig.add(gates=gates) for gates in ((one, two), (two, one)) * 3]
        got: list[str] = []
        for _ in jobs:
            run = await rig.worker.take_one()
            assert await rig.worker.take(5) == []
            await rig.worker.finish(run)
            got.append(run.id)
        assert sorted(got) == sorted(job.id for job in jobs)

    async def test_weighted_head_that_does_not_fit_holds_its_followers_back(self, rig: Rig) -> None:
        jobs = await rig.add_many(3, gates=(WIDE.take(3),))
        first = await rig.worker.take_one()
        assert await rig.worker.take(5) == []
        await rig.worker.finish(first)
        assert await rig.worker.take_ids(5) == [jobs[1].id]

    async def test_amount_above_the_capacity_never_fits_until_the_capacity_is_raised(
        self, rig: Rig
    ) -> None:
        shared = await rig.add(gates=(WIDE.take(5),))
        locked = await rig.add(gates=(keyed(LOCK, 2, name="a"),), kind="text")
        assert await rig.worker.take(5) == []
        assert (await rig.why(shared.id)).never_fits == ("wide",)
        assert (await rig.why(locked.id)).never_fits == ("lock:a",)
        await rig.cap("wide", 5)
        await rig.cap("lock:a", 2)
        assert await rig.worker.take_ids(5) == [shared.id, locked.id]

    async def test_amount_that_never_fits_at_a_keyed_gate_holds_nobody_back(self, rig: Rig) -> None:
        await rig.add(gates=(keyed(LOCK, 2, name="a"),))
        run = await rig.start(gates=(keyed(LOCK, 1, name="a"),))
        follower = await rig.add(gates=(keyed(LOCK, 1, name="a"),))
        assert await rig.worker.take(5) == []
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(5) == [follower.id]

    async def test_amount_that_never_fitted_starts_when_a_template_is_raised(
        self, rig: Rig
    ) -> None:
        locked = await rig.add(gates=(keyed(LOCK, 2, name="a"),))
        assert await rig.worker.take(5) == []
        await rig.cap("lock:{name}", 2)
        assert await rig.worker.take_ids(5) == [locked.id]

    async def test_lowered_capacity_revokes_nothing_and_lets_nothing_start_above_it(
        self, rig: Rig
    ) -> None:
        jobs = await rig.add_many(6, gates=(WIDE,))
        runs = await rig.worker.take(4)
        await rig.cap("wide", 2)
        gate = await rig.gate("wide")
        assert (gate.used, gate.free, gate.capacity) == (4, 0, 2)
        for run in runs[:2]:
            assert await rig.worker.finish(run) == [Verdict.DONE]
            assert await rig.worker.take(5) == []
        await rig.worker.finish(runs[2])
        assert await rig.worker.take_ids(5) == [jobs[4].id]

    async def test_raised_capacity_lets_waiting_jobs_start(self, rig: Rig) -> None:
        shared = await rig.add_many(4, gates=(LINE,))
        locked = await rig.add_many(3, gates=(keyed(LOCK, name="a"),), kind="text")
        await rig.worker.take(9)
        await rig.cap("line", 3)
        await rig.cap("lock:a", 2)
        assert await rig.worker.take_ids(9) == [shared[2].id, locked[1].id]

    async def test_capacity_of_zero_lets_nothing_pass(self, rig: Rig) -> None:
        await rig.declare(LINE)
        await rig.cap("line", 0)
        job = await rig.add(gates=(LINE,))
        assert await rig.worker.take(5) == []
        await rig.cap("line", 1)
        assert await rig.worker.take_ids(5) == [job.id]

    async def test_operators_capacity_of_one_instance_leaves_the_others(self, rig: Rig) -> None:
        await rig.declare(LOCK)
        await rig.cap("lock:a", 2)
        for name in ("a", "b"):
            await rig.add_many(3, gates=(keyed(LOCK, name=name),))
        await rig.worker.take(9)
        assert (await rig.used("lock:a"), await rig.used("lock:b")) == (2, 1)

    async def test_run_only_permit_is_released_at_hand_over(self, rig: Rig) -> None:
        job = await rig.add(gates=(LINE.take(hold="run"), WIDE.take(3)))
        await rig.worker.take_and_report(HandedOver, key="call-1", timeout_ms=60_000)
        assert (await rig.used("line"), await rig.used("wide")) == (0, 3)
        await rig.signal("call-1")
        assert await rig.state(job.id) is State.SUCCEEDED
        assert await rig.used("wide") == 0

    async def test_give_back_releases_one_gate_early_and_once(self, rig: Rig) -> None:
        await rig.add(gates=(LINE.take(2), keyed(LOCK, name="a")))
        follower = await rig.add(gates=(keyed(LOCK, name="a"),), kind="text")
        run = await rig.worker.take_and_report(GaveBack, gate="lock:a")
        assert (await rig.used("line"), await rig.used("lock:a")) == (2, 0)
        assert await rig.worker.take_ids(5) == [follower.id]
        await rig.worker.settle(GaveBack(run.id, run.run, gate="lock:a"))
        assert await rig.holders("lock:a") == [follower.id]
        await rig.worker.finish(run)
        assert (await rig.used("line"), await rig.used("lock:a")) == (0, 1)

    async def test_permit_returned_twice_in_one_request_is_counted_once(self, rig: Rig) -> None:
        first, second = await rig.add(gates=(WIDE,)), await rig.add(gates=(WIDE,))
        runs = await rig.worker.take(2)
        gave = [GaveBack(run.id, run.run, gate="wide") for run in runs]
        await rig.worker.settle(gave[0], gave[0])
        assert (await rig.used("wide"), await rig.holders("wide")) == (1, [second.id])
        await rig.worker.settle(gave[1], Succeeded(second.id, runs[1].run))
        assert await rig.used("wide") == 0
        assert await rig.states(first, second) == [State.RUNNING, State.SUCCEEDED]

    async def test_gate_not_held_by_the_run_is_not_given_back(self, rig: Rig) -> None:
        await rig.declare(LOCK, LINE, WIDE)
        first, second = await rig.add(gates=(WIDE,)), await rig.add(gates=(WIDE,))
        runs = await rig.worker.take(2)
        for gate in ("typo", "line", "lock:a"):
            async with rig.refuses(InvalidValue, match=gate):
                await rig.worker.settle(
                    Failed(runs[0].id, runs[0].run),
                    GaveBack(runs[1].id, runs[1].run, gate=gate),
                )
        assert await rig.states(first, second) == [State.RUNNING] * 2
        # This gate has no limit now, but an operator may set one at any time.
        every = GaveBack(runs[1].id, runs[1].run, gate="kind:dial")
        assert await rig.worker.report(every) is Verdict.DONE

    async def test_lane_concurrency_counts_handlers_and_not_awaiting_jobs(self, rig: Rig) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name=LANE, concurrency=1)))
        jobs = await rig.add_many(3)
        run = await rig.worker.take_one()
        assert await rig.worker.take(5) == []
        await rig.worker.settle(HandedOver(run.id, run.run, key="call-1", timeout_ms=60_000))
        assert await rig.worker.take_ids(5) == [jobs[1].id]
        assert await rig.used(f"lane:{LANE}") == 1

    @pytest.mark.parametrize("capacity", [1, 3])
    async def test_operators_cap_of_a_lane_overrides_its_concurrency(
        self, rig: Rig, capacity: int
    ) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name=LANE, concurrency=2)))
        await rig.add_many(5)
        await rig.cap(f"lane:{LANE}", capacity)
        assert len(await rig.worker.take(9)) == capacity
        await rig.reset(f"lane:{LANE}")
        assert len(await rig.worker.take(9)) == max(0, 2 - capacity)

    async def test_two_lanes_share_one_gate_by_its_name(self, rig: Rig) -> None:
        for lane in ("a", "b"):
            await rig.add_many(2, lane=lane, gates=(LINE,))
        assert len(await rig.worker.take(9, "a")) == 2
        run = await rig.worker.take(9, "b")
        assert run == []

    async def test_pool_or_rate_values_are_refused_for_slots(self, rig: Rig) -> None:
        await rig.declare(LINE)
        for item in (SetGate(name="line", limit=3), SetGate(name="line", members=(("a", 1),))):
            async with rig.refuses(InvalidValue):
                await rig.define(item)


SINGLE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)


class ReleasePermitGroup(ConformanceGroup):
    """Releasing a permit by force, which is recorded."""

    async def test_forced_release_lets_the_next_start_and_is_in_the_trail(self, rig: Rig) -> None:
        first, second = await rig.add_many(2, gates=(SINGLE,))
        run = await rig.worker.take_one()
        assert await rig.store.release_permit("line", first.id, "bob", "stuck") is True
        assert await rig.worker.take_ids(5) == [second.id]
        (line,) = (await rig.dump()).trail[-1:]
        assert (line.author, line.reason, line.at) == ("bob", "stuck", rig.clock())
        await rig.check()
        await rig.worker.finish(run)
        assert await rig.holders("line") == [second.id]

    @each_bad_note
    async def test_release_with_an_invalid_text_is_refused_and_revokes_nothing(
        self, rig: Rig, text: str
    ) -> None:
        run = await rig.start(gates=(SINGLE,))
        async with rig.refuses(InvalidValue):
            await rig.store.release_permit("line", run.id, "bob", text)
        assert await rig.used("line") == 1

    async def test_permit_is_released_once(self, rig: Rig) -> None:
        run = await rig.start(gates=(SINGLE,))
        assert await rig.store.release_permit("line", run.id, "bob", "stuck") is True
        assert await rig.store.release_permit("line", run.id, "bob", "stuck") is False
        assert await rig.used("line") == 0

    async def test_repeated_release_revokes_nothing_and_gets_the_same_reply(self, rig: Rig) -> None:
        run = await rig.start(gates=(SINGLE,), expires_at=None)
        release = partial(rig.store.release_permit, "line", run.id, "bob", "stuck")
        assert await release(request="first") is True
        assert await release(request="first") is True
        assert await release(request="second") is False
        await rig.worker.report(Released(run.id, run.run))
        again = await rig.worker.take_one()
        assert again.id == run.id
        assert await release(request="first") is True
        assert await rig.holders("line") == [run.id]
        assert await release(request="third") is True
        assert await rig.holders("line") == []

    async def test_release_by_the_name_of_a_pool_revokes_its_members_permit(self, rig: Rig) -> None:
        run = await rig.start(gates=(Pool("numbers", {"+1": 1}),), expires_at=None)
        assert await rig.used("numbers/+1") == 1
        assert await rig.store.release_permit("numbers", run.id, "bob", "stuck") is True
        assert await rig.used("numbers/+1") == 0

    async def test_forced_release_feeds_a_keyed_gate(self, rig: Rig) -> None:
        first, second = await rig.add_many(2, gates=(keyed(PHONE, phone="1"),))
        await rig.worker.take(5)
        await rig.store.release_permit("phone:1", first.id, "bob", "stuck")
        assert await rig.worker.take_ids(5) == [second.id]

    async def test_permit_that_nobody_holds_is_not_released(self, rig: Rig) -> None:
        job = await rig.add(gates=(SINGLE,))
        assert await rig.store.release_permit("line", job.id, "bob", "stuck") is False
        assert await rig.store.release_permit("no such gate", job.id, "bob", "x") is False
        assert await rig.store.release_permit("line", UNKNOWN_ID, "bob", "x") is False

    async def test_release_without_a_gate_is_refused(self, rig: Rig) -> None:
        job = await rig.add(gates=(SINGLE,))
        await rig.worker.take(5)
        async with rig.refuses(InvalidValue, match="gate is empty"):
            await rig.store.release_permit("", job.id, "bob", "stuck")


NUMBERS = Pool("numbers", {"a": 4, "b": 8, "c": 2})
ROUND = Pool("round", {"a": 2, "b": 2, "c": 2}, strategy="round_robin")
FIRST = Pool("first", {"a": 2, "b": 2, "c": 2}, strategy="first_free")


def chosen(runs: list[Claimed], pool: str) -> str:
    """Return the chosen members, in order of start."""
    return "".join(run.members[pool] for run in runs)


class PoolGroup(ConformanceGroup):
    """A gate that is open while any member has a free permit."""

    async def test_least_used_takes_the_lowest_share_then_the_given_order(self, rig: Rig) -> None:
        await rig.add_many(20, gates=(NUMBERS,))
        runs = await rig.worker.take(14)
        assert chosen(runs, "numbers") == "abcbabbabcbabb"
        assert await rig.worker.take(5) == []
        await rig.worker.finish(runs[2])
        assert chosen(await rig.worker.take(5), "numbers") == runs[2].members["numbers"]

    async def test_pool_jobs_start_only_for_free_handlers(self, rig: Rig) -> None:
        jobs = await rig.add_many(5, gates=(NUMBERS,))
        runs = await rig.worker.take(5, free=2)
        assert [run.id for run in runs] == [job.id for job in jobs[:2]]

    async def test_round_robin_takes_the_next_after_the_last(self, rig: Rig) -> None:
        await rig.add_many(20, gates=(ROUND,))
        runs = await rig.worker.take(4)
        assert chosen(runs, "round") == "abca"
        await rig.worker.finish(*runs)
        assert chosen(await rig.worker.take(3), "round") == "bca"

    async def test_first_free_takes_the_first_in_the_given_order(self, rig: Rig) -> None:
        await rig.add_many(20, gates=(FIRST,))
        runs = await rig.worker.take(5)
        assert chosen(runs, "first") == "aabbc"
        await rig.worker.finish(runs[0])
        assert chosen(await rig.worker.take(9), "first") == "ac"

    async def test_chosen_member_is_recorded_on_the_run_and_its_permit(self, rig: Rig) -> None:
        job = await rig.add(gates=(NUMBERS.take(2),))
        (run,) = await rig.worker.take()
        assert dict(run.members) == {"numbers": "a"}
        assert (await rig.view(job.id)).runs[0].permits == {"numbers": "a"}
        pool = await rig.gate("numbers")
        member = pool.members[0]
        assert (member.name, member.used, member.capacity) == ("numbers/a", 2, 4)
        (holder,) = pool.holders
        assert (holder.job, holder.member, holder.amount) == (job.id, "a", 2)

    async def test_amount_must_fit_one_member(self, rig: Rig) -> None:
        await rig.add_many(3, gates=(NUMBERS.take(5),))
        impossible = await rig.add(gates=(NUMBERS.take(9),), kind="text")
        assert chosen(await rig.worker.take(9), "numbers") == "b"
        assert (await rig.why(impossible.id)).never_fits == ("numbers",)

    async def test_closed_member_is_skipped(self, rig: Rig) -> None:
        await rig.add_many(20, gates=(FIRST,))
        await rig.close_gate("first/a", rig.clock() + 5_000)
        assert chosen(await rig.worker.take(9), "first") == "bbcc"
        assert (await rig.worker.ask(9)).next_at == rig.clock() + 5_000
        rig.clock.advance(5_000)
        assert chosen(await rig.worker.take(9), "first") == "aa"

    async def test_first_member_to_open_is_waited_for(self, rig: Rig) -> None:
        job = await rig.add(gates=(FIRST,))
        now = rig.clock()
        for member, ms in (("a", 9_000), ("b", 4_000), ("c", 6_000)):
            await rig.close_gate(f"first/{member}", now + ms)
        assert [gate.opens_at for gate in (await rig.why(job.id)).closed] == [now + 4_000]

    @pytest.mark.parametrize("name", ["pair", "pair:{customer}"], ids=["shared", "keyed"])
    async def test_closed_member_is_waited_for_if_the_others_are_taken(
        self, rig: Rig, name: str
    ) -> None:
        pair = Pool(name, {"a": 1, "b": 1})
        await rig.declare(pair)
        use = keyed(pair, customer="x") if "{" in name else keyed(pair)
        until_at = rig.clock() + 5_000
        await rig.close_gate(f"{use.name}/a", until_at)
        jobs = await rig.add_many(2, gates=(use,))
        # The same claim takes the free member.
        reply = await rig.worker.ask(9)
        assert [run.id for run in reply.jobs] == [jobs[0].id]
        assert reply.next_at == until_at
        rig.clock.advance(5_000)
        assert await rig.worker.take_ids(9) == [jobs[1].id]

    async def test_closed_pool_stops_all_its_members(self, rig: Rig) -> None:
        await rig.add_many(2, gates=(FIRST,))
        await rig.close_gate("first")
        assert await rig.worker.take(9) == []
        await rig.open_gate("first")
        assert len(await rig.worker.take(9)) == 2

    async def test_capacities_of_members_can_be_changed_by_hand_and_reset(self, rig: Rig) -> None:
        await rig.add_many(20, gates=(FIRST,))
        await rig.cap("first/a", 3)
        await rig.cap("first/b", 0)
        runs = await rig.worker.take(9)
        assert chosen(runs, "first") == "aaacc"
        await rig.worker.finish(*runs)
        await rig.reset("first")
        assert chosen(await rig.worker.take(9), "first") == "aabbcc"

    @pytest.mark.parametrize("how", ["opened", "capped"])
    async def test_member_with_room_again_feeds_its_pool(self, rig: Rig, how: str) -> None:
        desks = Pool("desk:{site}", {"a": 1, "b": 1})
        await rig.declare(desks)
        await rig.close_gate("desk:x/a")
        if how == "opened":
            await rig.close_gate("desk:x/b")
        else:
            await rig.cap("desk:x/b", 0)
        job = await rig.add(gates=(keyed(desks, site="x"),))
        assert await rig.worker.take(9) == []
        if how == "opened":
            await rig.open_gate("desk:x/b")
        else:
            await rig.cap("desk:x/b", 1)
        assert await rig.worker.take_ids(9) == [job.id]

    async def test_replaced_members_apply_to_waiting_jobs(self, rig: Rig) -> None:
        await rig.add_many(20, gates=(FIRST,))
        runs = await rig.worker.take(3)
        await rig.define(SetGate(name="first", members=(("c", 2), ("d", 1))))
        assert chosen(await rig.worker.take(9), "first") == "ccd"
        await rig.worker.finish(*runs)
        assert await rig.worker.take(9) == []

    async def test_permit_of_a_removed_member_is_released_as_usual(self, rig: Rig) -> None:
        await rig.add_many(2, gates=(FIRST,))
        runs = await rig.worker.take(2)
        await rig.define(SetGate(name="first", members=(("z", 1),)))
        await rig.check()
        await rig.worker.finish(*runs)
        await rig.define(SetGate(name="first", members=(("a", 1),)))
        await rig.add(gates=(FIRST,))
        assert chosen(await rig.worker.take(9), "first") == "a"

    async def test_pool_is_given_back_by_its_own_name(self, rig: Rig) -> None:
        await rig.add_many(7, gates=(FIRST,))
        runs = await rig.worker.take(9)
        await rig.worker.settle(GaveBack(runs[2].id, runs[2].run, gate="first"))
        assert chosen(await rig.worker.take(9), "first") == "b"

    async def test_member_is_kept_while_the_job_awaits(self, rig: Rig) -> None:
        await rig.add(gates=(FIRST,))
        await rig.worker.take_and_report(HandedOver, key="call-1", timeout_ms=60_000)
        assert (await rig.gate("first")).members[0].used == 1
        await rig.signal("call-1")
        assert (await rig.gate("first")).members[0].used == 0

    async def test_keyed_pool_parks_each_key_separately(self, rig: Rig) -> None:
        agents = Pool("agents:{airport}", {"x": 1, "y": 1})
        for airport in ("EWR", "JFK"):
            await rig.add_many(3, gates=(keyed(agents, airport=airport),))
        runs = await rig.worker.take(9)
        assert [run.members for run in runs] == [
            {"agents:EWR": "x"}, {"agents:EWR": "y"}, {"agents:JFK": "x"}, {"agents:JFK": "y"},
        ]  # fmt: skip
        await rig.worker.finish(runs[1])
        (run,) = await rig.worker.take(9)
        assert dict(run.members) == {"agents:EWR": "y"}

    async def test_two_pools_are_chosen_independently(self, rig: Rig) -> None:
        await rig.add_many(4, gates=(FIRST, ROUND))
        runs = await rig.worker.take(9)
        assert (chosen(runs, "first"), chosen(runs, "round")) == ("aabb", "abca")
