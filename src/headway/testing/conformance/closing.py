"""Closing: any gate, indefinitely or until a given time; and the four implicit gates."""

from __future__ import annotations

import pytest

from headway.contract.definitions import SetGate
from headway.contract.outcomes import Closing, Failed, HandedOver, Succeeded
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.core.state import State
from headway.testing.conformance.rig import AUTHOR, REASON, ConformanceGroup, Rig, dial
from headway.testing.conformance.worker import LANE, LEASE_MS
from headway.testing.jobs import keyed

LINE = Slots("line", 5)
TWILIO = Rate("rate:twilio", 100, "1s")
PHONE = Slots("phone:{phone}", 1)
IMPLICIT = ("all", f"lane:{LANE}", "tenant:acme", "kind:dial")


class ClosingGroup(ConformanceGroup):
    """Gates that an operator closed."""

    async def test_wait_after_a_claim_that_emptied_an_open_flow_is_not_blocked(
        self, rig: Rig
    ) -> None:
        # As many as a claim of 9 reads of one flow, so that it looks for more.
        await rig.add_many(10, gates=(keyed(LINE), keyed(PHONE, phone=1)))
        await rig.close_gate("line")
        assert await rig.worker.take(9) == []
        await rig.open_gate("line")
        await rig.close_gate("phone:1")
        assert await rig.worker.take(9) == []
        assert (await rig.gate("phone:1")).parked == 10
        job = await rig.add(gates=(keyed(LINE),), due_at=rig.clock())
        rig.clock.advance(500)
        assert await rig.worker.take_ids(9) == [job.id]
        assert (await rig.view(job.id)).runs[0].blocked_ms == 0

    @pytest.mark.parametrize("gate", [LINE, TWILIO], ids=["slots", "rate"])
    async def test_gate_closed_until_a_time_opens_then(self, rig: Rig, gate: GateSpec) -> None:
        job = await rig.add(gates=(gate,))
        until_at = rig.clock() + 5_000
        await rig.close_gate(gate.name, until_at)
        rig.clock.advance(4_999)
        shut = await rig.worker.ask()
        assert (shut.jobs, shut.next_at) == ([], until_at)
        rig.clock.advance(1)
        assert await rig.worker.take_ids() == [job.id]

    async def test_gate_closed_indefinitely_stays_closed_until_opened(self, rig: Rig) -> None:
        job = await rig.add(gates=(LINE,), expires_at=None)
        await rig.close_gate("line")
        await rig.pass_time(10 * 365 * 86_400_000)
        assert await rig.worker.take() == []
        await rig.open_gate("line")
        assert await rig.worker.take_ids() == [job.id]

    async def test_closed_gate_shows_who_closed_it_and_why(self, rig: Rig) -> None:
        await rig.declare(LINE)
        until_at = rig.clock() + 5_000
        await rig.close_gate("line", until_at)
        gate = await rig.gate("line")
        assert (gate.open, gate.closed_until, gate.opens_at) == (False, until_at, until_at)
        assert (gate.closed_by, gate.closed_reason) == (AUTHOR, REASON)
        rig.clock.advance(5_000)
        gate = await rig.gate("line")
        assert (gate.open, gate.closed_until) == (True, None)

    async def test_closing_keeps_permits_that_are_in_use(self, rig: Rig) -> None:
        run = await rig.start(gates=(LINE,))
        await rig.close_gate("line")
        assert await rig.holders("line") == [run.id]
        await rig.worker.finish(run)
        assert await rig.holders("line") == []

    async def test_later_closing_replaces_an_earlier_one(self, rig: Rig) -> None:
        job = await rig.add(gates=(LINE,))
        await rig.close_gate("line")
        await rig.close_gate("line", rig.clock() + 3_000)
        rig.clock.advance(3_000)
        assert await rig.worker.take_ids() == [job.id]

    async def test_keyed_instance_is_closed_without_its_siblings(self, rig: Rig) -> None:
        shut = await rig.add(gates=(keyed(PHONE, phone="1"),))
        free = await rig.add(gates=(keyed(PHONE, phone="2"),))
        await rig.close_gate("phone:1", rig.clock() + 9_000)
        reply = await rig.worker.ask(9)
        assert [run.id for run in reply.jobs] == [free.id]
        assert await rig.state(shut.id) is State.PARKED
        assert (await rig.worker.ask(9)).next_at == rig.clock() + 9_000
        rig.clock.advance(9_000)
        assert await rig.worker.take_ids(9) == [shut.id]

    async def test_closed_keyed_instance_is_forgotten_once_open_and_idle(self, rig: Rig) -> None:
        await rig.add(gates=(keyed(PHONE, phone="1"),))
        await rig.close_gate("phone:1", rig.clock() + 9_000)
        assert await rig.worker.take() == []
        await rig.pass_time(9_000)
        await rig.worker.take_and_report(Succeeded)
        assert "phone:1" not in {gate.name for gate in await rig.gates()}

    async def test_keyed_instance_opened_by_hand_feeds_parked_jobs(self, rig: Rig) -> None:
        await rig.declare(PHONE)
        await rig.close_gate("phone:1")
        jobs = await rig.add_many(3, gates=(keyed(PHONE, phone="1"),))
        assert await rig.worker.take(9) == []
        assert await rig.states(*jobs) == [State.PARKED] * 3
        await rig.open_gate("phone:1")
        assert await rig.worker.take_ids(9) == [jobs[0].id]

    async def test_handler_closes_a_gate_in_the_step_of_its_settlement(self, rig: Rig) -> None:
        await rig.add_many(2, gates=(TWILIO,))
        run = await rig.worker.take_one()
        closing = Closing(gate="rate:twilio", for_ms=60_000, reason="429")
        await rig.worker.settle(Failed(run.id, run.run, close=(closing,), after_ms=1_000))
        gate = await rig.gate("rate:twilio")
        assert (gate.closed_until, gate.closed_reason) == (rig.clock() + 60_000, "429")
        assert await rig.worker.take(9) == []
        rig.clock.advance(60_000)
        assert len(await rig.worker.take(9)) == 2

    async def test_handler_closing_prefers_the_time_to_the_duration(self, rig: Rig) -> None:
        run = await rig.start(gates=(TWILIO,))
        until_at = rig.clock() + 7_000
        closing = Closing(gate="rate:twilio", for_ms=60_000, until_at=until_at)
        await rig.worker.settle(Succeeded(run.id, run.run, close=(closing,)))
        assert (await rig.gate("rate:twilio")).closed_until == until_at

    @pytest.mark.parametrize("until_ms", [60_000, None])
    async def test_handler_closing_does_not_shorten_a_longer_one(
        self, rig: Rig, until_ms: int | None
    ) -> None:
        await rig.add_many(2, gates=(LINE,))
        run = await rig.worker.take_one()
        until_at = None if until_ms is None else rig.clock() + until_ms
        await rig.close_gate("line", until_at)
        closing = Closing(gate="line", for_ms=1_000)
        before = (await rig.gate("line")).closed_until
        await rig.worker.report(Succeeded(run.id, run.run, close=(closing,)))
        await rig.pass_time(1_000)
        assert await rig.worker.take() == []
        gate = await rig.gate("line")
        assert gate.closed_until == before
        assert (gate.closed_by, gate.closed_reason) == (AUTHOR, REASON)

    async def test_handler_cannot_close_a_template(self, rig: Rig) -> None:
        run = await rig.start(gates=(keyed(PHONE, phone="1"),))
        closing = Closing(gate=PHONE.name, for_ms=60_000)
        async with rig.refuses(InvalidValue, match="is a template, not a single gate"):
            await rig.worker.settle(Failed(run.id, run.run, close=(closing,), after_ms=1_000))

    async def test_closing_an_unknown_gate_is_refused(self, rig: Rig) -> None:
        with pytest.raises(UnknownGate):
            await rig.close_gate("no such gate")

    async def test_closing_time_of_a_pool_member_is_shown(self, rig: Rig) -> None:
        pool = Pool("numbers", {"a": 1, "b": 1})
        await rig.add(gates=(pool,))
        await rig.close_gate("numbers/a", rig.clock() + 9_000)
        await rig.close_gate("numbers/b", rig.clock() + 6_000)
        assert (await rig.worker.ask()).next_at == rig.clock() + 6_000


class ImplicitGateGroup(ConformanceGroup):
    """Gates that always apply, and are open until they are defined."""

    @pytest.mark.parametrize("name", IMPLICIT)
    async def test_pause_stops_waiting_jobs_and_resume_releases_them(
        self, rig: Rig, name: str
    ) -> None:
        jobs = await rig.add_many(2)
        await rig.close_gate(name)
        assert await rig.worker.take(9) == []
        assert await rig.states(*jobs) == [State.WAITING] * 2
        assert {(await rig.view(job.id)).shown for job in jobs} == {"blocked"}
        await rig.open_gate(name)
        assert await rig.worker.take_ids(9) == [job.id for job in jobs]

    @pytest.mark.parametrize("name", IMPLICIT[1:])
    async def test_pause_leaves_other_targets_running(self, rig: Rig, name: str) -> None:
        await rig.add_many(2)
        other = await rig.add(lane="texts", tenant="beta", kind="text")
        await rig.close_gate(name)
        assert await rig.worker.take_ids(9, LANE, "texts") == [other.id]

    @pytest.mark.parametrize("name", IMPLICIT)
    async def test_cap_applies_to_waiting_jobs(self, rig: Rig, name: str) -> None:
        jobs = await rig.add_many(3)
        await rig.cap(name, 1)
        run = await rig.worker.take_one()
        assert (run.id, await rig.worker.take(9)) == (jobs[0].id, [])
        assert await rig.holders(name) == [jobs[0].id]
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(9) == [jobs[1].id]

    async def test_refused_later_item_undoes_the_cap(self, rig: Rig) -> None:
        await rig.add_many(2)
        run = await rig.worker.take_one()
        with pytest.raises(UnknownGate):
            await rig.define(SetGate(name="all", capacity=1), SetGate(name="nowhere", capacity=1))
        await rig.check()
        assert await rig.gates() == ()
        assert len(await rig.worker.take(9)) == 1
        await rig.cap("all", 2)
        assert await rig.used("all") == 2
        await rig.worker.finish(run)
        assert await rig.used("all") == 1

    async def test_cap_counts_awaiting_jobs_of_a_dead_worker(self, rig: Rig) -> None:
        job, other = await rig.add_many(2, expires_at=None)
        run = await rig.worker.take_one()
        await rig.worker.settle(HandedOver(run.id, run.run, key="call-1", timeout_ms=3_600_000))
        await rig.pass_time(LEASE_MS + 1)
        assert (await rig.view(job.id)).state is State.AWAITING
        await rig.cap("all", 1)
        assert await rig.holders("all") == [job.id]
        worker = rig.new_worker()
        assert await worker.take(9) == []
        await rig.signal("call-1")
        assert await worker.take_ids(9) == [other.id]

    @pytest.mark.parametrize("name", IMPLICIT)
    async def test_cap_counts_running_jobs_and_reset_lifts_it(self, rig: Rig, name: str) -> None:
        jobs = await rig.add_many(5)
        one, two = await rig.worker.take(2)
        await rig.cap(name, 2)
        assert await rig.worker.take(9) == []
        await rig.worker.finish(one)
        assert await rig.worker.take_ids(9) == [jobs[2].id]
        await rig.reset(name)
        assert await rig.worker.take_ids(9) == [job.id for job in jobs[3:]]
        await rig.worker.finish(two)
        await rig.check()

    @pytest.mark.parametrize("name", ["all", "tenant:acme", "kind:dial"])
    async def test_cap_counts_awaiting_jobs(self, rig: Rig, name: str) -> None:
        early = await dial(rig, key="call-1")
        rig.clock.advance(1)
        await rig.cap(name, 2)
        late = await dial(rig, key="call-2")
        await rig.add()
        assert await rig.holders(name) == [early.id, late.id]
        assert await rig.worker.take(9) == []
        await rig.signal("call-1")
        assert len(await rig.worker.take(9)) == 1

    async def test_pause_until_a_time_ends_by_itself(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.close_gate("all", rig.clock() + 2_000)
        assert (await rig.worker.ask()).next_at == rig.clock() + 2_000
        rig.clock.advance(2_000)
        assert await rig.worker.take_ids() == [job.id]

    async def test_pause_holds_parked_jobs_and_loses_no_feed(self, rig: Rig) -> None:
        jobs = await rig.add_many(3, gates=(keyed(PHONE, phone="1"),))
        run = await rig.worker.take_one()
        await rig.worker.take(9)
        await rig.close_gate("tenant:acme")
        await rig.worker.finish(run)
        assert await rig.worker.take(9) == []
        await rig.open_gate("tenant:acme")
        assert await rig.worker.take_ids(9) == [jobs[1].id]
        assert await rig.used("phone:1") == 1

    async def test_pausing_many_waiting_jobs_changes_none_of_them(self, rig: Rig) -> None:
        await rig.add_many(200)
        before = (await rig.dump()).jobs
        await rig.close_gate("all")
        after = (await rig.dump()).jobs
        assert [job.state for job in after] == [job.state for job in before]
        assert [job.due_at for job in after] == [job.due_at for job in before]
