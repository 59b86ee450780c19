"""Pools: one of several Slots, chosen by strategy and passed to the handler."""

from __future__ import annotations

import pytest

from headway.contract.claims import Claimed
from headway.contract.definitions import SetGate
from headway.contract.outcomes import GaveBack, HandedOver, Succeeded
from headway.core.gates.pool import Pool
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.jobs import use_of

NUMBERS = Pool("numbers", {"a": 4, "b": 8, "c": 2})
ROUND = Pool("round", {"a": 2, "b": 2, "c": 2}, strategy="round_robin")
FIRST = Pool("first", {"a": 2, "b": 2, "c": 2}, strategy="first_free")


def chosen(runs: list[Claimed], pool: str) -> str:
    """The members chosen, in the order of the starts."""
    return "".join(run.members[pool] for run in runs)


async def finish(worker: PlayedWorker, *runs: Claimed) -> None:
    """Settle runs as succeeded."""
    await worker.settle(*(Succeeded(run.id, run.run) for run in runs))


class PoolGroup(ConformanceGroup):
    """A gate that is open while any member has a permit free."""

    async def test_least_used_takes_the_lowest_share_then_the_order_given(self, rig: Rig) -> None:
        await rig.declare(NUMBERS)
        await rig.add_many(20, gates=(use_of(NUMBERS),))
        runs = await rig.worker.take(14)
        assert chosen(runs, "numbers") == "abcbabbabcbabb"
        assert await rig.worker.take(5) == []
        await finish(rig.worker, runs[2])
        assert chosen(await rig.worker.take(5), "numbers") == runs[2].members["numbers"]

    async def test_round_robin_takes_the_next_after_the_last(self, rig: Rig) -> None:
        await rig.declare(ROUND)
        await rig.add_many(20, gates=(use_of(ROUND),))
        runs = await rig.worker.take(4)
        assert chosen(runs, "round") == "abca"
        await finish(rig.worker, *runs)
        assert chosen(await rig.worker.take(3), "round") == "bca"

    async def test_first_free_takes_the_first_in_the_order_given(self, rig: Rig) -> None:
        await rig.declare(FIRST)
        await rig.add_many(20, gates=(use_of(FIRST),))
        runs = await rig.worker.take(5)
        assert chosen(runs, "first") == "aabbc"
        await finish(rig.worker, runs[0])
        assert chosen(await rig.worker.take(9), "first") == "ac"

    async def test_member_chosen_stands_on_the_run_and_its_permit(self, rig: Rig) -> None:
        await rig.declare(NUMBERS)
        job = await rig.add(gates=(use_of(NUMBERS, 2),))
        (run,) = await rig.worker.take()
        assert dict(run.members) == {"numbers": "a"}
        assert (await rig.view(job.id)).runs[0].permits == {"numbers": "a"}
        pool = await rig.gate("numbers")
        member = pool.members[0]
        assert (member.name, member.used, member.capacity) == ("numbers/a", 2, 4)
        (holder,) = pool.holders
        assert (holder.job, holder.member, holder.amount) == (job.id, "a", 2)

    async def test_amount_must_fit_one_member(self, rig: Rig) -> None:
        await rig.declare(NUMBERS)
        await rig.add_many(3, gates=(use_of(NUMBERS, 5),))
        impossible = await rig.add(gates=(use_of(NUMBERS, 9),), kind="text")
        assert chosen(await rig.worker.take(9), "numbers") == "b"
        assert (await rig.why(impossible.id)).never_fits == ("numbers",)

    async def test_closed_member_is_passed_over(self, rig: Rig) -> None:
        await rig.declare(FIRST)
        await rig.add_many(20, gates=(use_of(FIRST),))
        await rig.shut("first/a", rig.clock() + 5_000)
        assert chosen(await rig.worker.take(9), "first") == "bbcc"
        assert (await rig.worker.ask(9)).next_at == rig.clock() + 5_000
        rig.clock.advance(5_000)
        assert chosen(await rig.worker.take(9), "first") == "aa"

    @pytest.mark.parametrize("name", ["pair", "pair:{customer}"], ids=["shared", "keyed"])
    async def test_closed_member_is_waited_for_by_one_that_finds_the_others_taken(
        self, rig: Rig, name: str
    ) -> None:
        pair = Pool(name, {"a": 1, "b": 1})
        await rig.declare(pair)
        use = use_of(pair, customer="x") if "{" in name else use_of(pair)
        until_at = rig.clock() + 5_000
        await rig.shut(f"{use.name}/a", until_at)
        jobs = await rig.add_many(2, gates=(use,))
        # The same claim takes the member that is free.
        reply = await rig.worker.ask(9)
        assert [run.id for run in reply.jobs] == [jobs[0].id]
        assert reply.next_at == until_at
        rig.clock.advance(5_000)
        assert await rig.worker.take_ids(9) == [jobs[1].id]

    async def test_closed_pool_stops_all_its_members(self, rig: Rig) -> None:
        await rig.declare(FIRST)
        await rig.add_many(2, gates=(use_of(FIRST),))
        await rig.shut("first")
        assert await rig.worker.take(9) == []
        await rig.unshut("first")
        assert len(await rig.worker.take(9)) == 2

    async def test_members_capacity_is_changed_by_hand(self, rig: Rig) -> None:
        await rig.declare(FIRST)
        await rig.add_many(20, gates=(use_of(FIRST),))
        await rig.cap("first/a", 3)
        await rig.cap("first/b", 0)
        assert chosen(await rig.worker.take(9), "first") == "aaacc"

    async def test_replaced_members_hold_for_what_already_waits(self, rig: Rig) -> None:
        await rig.declare(FIRST)
        await rig.add_many(20, gates=(use_of(FIRST),))
        runs = await rig.worker.take(3)
        await rig.define(SetGate(name="first", members=(("c", 2), ("d", 1))))
        assert chosen(await rig.worker.take(9), "first") == "ccd"
        await finish(rig.worker, *runs)
        assert await rig.worker.take(9) == []

    async def test_permit_of_a_member_taken_away_is_given_back_all_the_same(self, rig: Rig) -> None:
        await rig.declare(FIRST)
        await rig.add_many(2, gates=(use_of(FIRST),))
        runs = await rig.worker.take(2)
        await rig.define(SetGate(name="first", members=(("z", 1),)))
        await rig.check()
        await finish(rig.worker, *runs)
        await rig.define(SetGate(name="first", members=(("a", 1),)))
        await rig.add(gates=(use_of(FIRST),))
        assert chosen(await rig.worker.take(9), "first") == "a"

    async def test_pool_is_given_back_by_its_own_name(self, rig: Rig) -> None:
        await rig.declare(FIRST)
        await rig.add_many(7, gates=(use_of(FIRST),))
        runs = await rig.worker.take(9)
        await rig.worker.settle(GaveBack(runs[2].id, runs[2].run, gate="first"))
        assert chosen(await rig.worker.take(9), "first") == "b"

    async def test_member_is_kept_while_the_job_awaits(self, rig: Rig) -> None:
        await rig.declare(FIRST)
        await rig.add(gates=(use_of(FIRST),))
        await rig.worker.take_and_say(HandedOver, key="call-1", timeout_ms=60_000)
        assert (await rig.gate("first")).members[0].used == 1
        await rig.tell("call-1")
        assert (await rig.gate("first")).members[0].used == 0

    async def test_keyed_pool_parks_for_each_key_by_itself(self, rig: Rig) -> None:
        agents = Pool("agents:{airport}", {"x": 1, "y": 1})
        await rig.declare(agents)
        for airport in ("EWR", "JFK"):
            await rig.add_many(3, gates=(use_of(agents, airport=airport),))
        runs = await rig.worker.take(9)
        assert [run.members for run in runs] == [
            {"agents:EWR": "x"}, {"agents:EWR": "y"}, {"agents:JFK": "x"}, {"agents:JFK": "y"},
        ]  # fmt: skip
        await finish(rig.worker, runs[1])
        (run,) = await rig.worker.take(9)
        assert dict(run.members) == {"agents:EWR": "y"}

    async def test_two_pools_are_chosen_each_by_itself(self, rig: Rig) -> None:
        await rig.declare(FIRST, ROUND)
        await rig.add_many(4, gates=(use_of(FIRST), use_of(ROUND)))
        runs = await rig.worker.take(9)
        assert (chosen(runs, "first"), chosen(runs, "round")) == ("aabb", "abca")
