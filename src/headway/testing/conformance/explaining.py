"""Why: for each state one sentence, and the facts behind it."""

from __future__ import annotations

import pytest

from headway.contract.outcomes import Died, Failed, HandedOver, Succeeded
from headway.core.gates.opening import Hours
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.rig import (
    AUTHOR,
    REASON,
    ConformanceGroup,
    Rig,
    for_candidate,
    policy_with,
)
from headway.testing.conformance.worker import LANE, LEASE_MS
from headway.testing.jobs import keyed, use_of

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)
NUMBERS = Pool("numbers", {"a": 1, "b": 1})
TWILIO = Rate("rate:twilio", 1, "10s")
NIGHT = Hours("hours:night", "22:00-23:00", tz="UTC")


class WhyGroup(ConformanceGroup):
    """Why is my job not running?"""

    async def test_scheduled_job_shows_when_it_is_due(self, rig: Rig) -> None:
        job = await rig.add(due_at=rig.clock() + 9_000)
        why = await rig.why(job.id)
        assert (why.id, why.state, why.shown) == (job.id, State.SCHEDULED, "scheduled")
        assert (why.next_at, why.now, why.closed) == (job.due_at, rig.clock(), ())
        assert why.sentence

    async def test_ready_job_shows_its_place_and_whether_a_worker_serves_its_lane(
        self, rig: Rig
    ) -> None:
        jobs = await rig.add_many(3)
        alone = await rig.why(jobs[2].id)
        assert (alone.state, alone.shown) == (State.WAITING, "ready")
        assert (alone.place, alone.workers, alone.closed) == (3, 0, ())
        await rig.new_worker().beat()
        await rig.new_worker().beat()
        served = await rig.why(jobs[0].id)
        assert (served.place, served.workers) == (1, 2)
        assert served.sentence != alone.sentence

    async def test_dead_worker_serves_no_lane(self, rig: Rig) -> None:
        job = await rig.add(expires_at=None)
        await rig.worker.beat()
        await rig.pass_time(LEASE_MS)
        assert (await rig.why(job.id)).workers == 0

    async def test_place_counts_earlier_jobs_in_the_same_flow(self, rig: Rig) -> None:
        await rig.add_many(4)
        await rig.add_many(2, kind="text", priority=1)
        last = await rig.add(priority=999)
        first = await rig.add(priority=1)
        assert (await rig.why(last.id)).place == 6
        assert (await rig.why(first.id)).place == 1

    async def test_every_closed_gate_is_named_with_its_holders(self, rig: Rig) -> None:
        await rig.declare(LINE, NUMBERS, PHONE, NIGHT, TWILIO)
        line, phone = use_of(LINE), use_of(PHONE, phone="1")
        holders = [await rig.add(gates=(use,), kind="text") for use in (line, phone)]
        await rig.add_many(2, gates=(NUMBERS,), kind="text")
        await rig.add(gates=(TWILIO,), kind="text")
        assert len(await rig.worker.take(9)) == 5
        uses = (phone, line, use_of(NUMBERS), use_of(NIGHT), use_of(TWILIO))
        job = await rig.add(gates=uses)
        await rig.worker.take(9)
        why = await rig.why(job.id)
        assert why.shown == "blocked"
        closed = {gate.name: gate for gate in why.closed}
        assert set(closed) == {"phone:1", "line", "numbers", "hours:night", "rate:twilio"}
        assert [one.job for one in closed["line"].holders] == [holders[0].id]
        assert [one.job for one in closed["phone:1"].holders] == [holders[1].id]
        assert (closed["numbers"].holder_count, closed["numbers"].used) == (2, 2)
        assert closed["rate:twilio"].opens_at == rig.clock() + 10_000
        assert closed["hours:night"].opens_at == rig.clock() + 22 * 3_600_000
        assert "line" in why.sentence

    async def test_open_gates_are_not_named(self, rig: Rig) -> None:
        await rig.start(gates=(LINE,), kind="text")
        job = await rig.add(gates=(LINE, keyed(PHONE, phone="1"), TWILIO))
        assert [gate.name for gate in (await rig.why(job.id)).closed] == ["line"]

    @pytest.mark.parametrize("name", ["all", f"lane:{LANE}", "tenant:acme", "kind:dial"])
    async def test_paused_job_shows_who_paused_it_why_and_until_when(
        self, rig: Rig, name: str
    ) -> None:
        job = await rig.add()
        until_at = rig.clock() + 60_000
        await rig.close_gate(name, until_at)
        why = await rig.why(job.id)
        (gate,) = why.closed
        assert (gate.name, gate.closed_by, gate.closed_reason) == (name, AUTHOR, REASON)
        assert (gate.closed_until, why.next_at) == (until_at, until_at)
        assert AUTHOR in why.sentence
        assert REASON in why.sentence

    async def test_pool_with_closed_members_is_not_called_full(self, rig: Rig) -> None:
        await rig.declare(NUMBERS)
        members = [f"numbers/{member}" for member, _ in NUMBERS.members]
        until_at = rig.clock() + 60_000
        await rig.close_gate(members[0], until_at)
        holder = await rig.add(gates=(NUMBERS,), kind="text")
        job = await rig.add(gates=(NUMBERS,))
        assert len(await rig.worker.take(9)) == 1
        sentence = (await rig.why(job.id)).sentence
        assert "pool numbers is full" in sentence
        assert f"1 of {len(members)} members closed" in sentence
        for name in members[1:]:
            await rig.close_gate(name)
        why = await rig.why(job.id)
        assert "full" not in why.sentence
        assert "pool numbers: every member is closed: numbers/" in why.sentence
        assert f"by {AUTHOR}" in why.sentence
        assert REASON in why.sentence
        assert holder.id in why.sentence

    async def test_parked_job_shows_where(self, rig: Rig) -> None:
        first, second = await rig.add_many(2, gates=(keyed(PHONE, phone="1"),))
        await rig.worker.take(9)
        why = await rig.why(second.id)
        assert (why.state, why.shown) == (State.PARKED, "blocked")
        (gate,) = why.closed
        assert (gate.name, gate.holders[0].job) == ("phone:1", first.id)
        assert "phone:1" in why.sentence

    async def test_cascade_is_blocked_only_if_no_candidate_is_free(self, rig: Rig) -> None:
        seat = Slots(for_candidate("seat"), 1)
        policy = policy_with(cascade=True)
        await rig.declare(seat)
        await rig.add(candidates=("ann",), gates=(use_of(seat),), policy=policy)
        await rig.worker.take_one()
        uses = (use_of(seat), use_of(PHONE, phone="1"))
        await rig.declare(PHONE)
        job = await rig.add(candidates=("ann", "bob"), gates=uses, policy=policy)
        why = await rig.why(job.id)
        assert (why.shown, why.closed, why.place) == ("ready", (), 1)
        await rig.close_gate("seat:ann", rig.clock() + 9_000)
        await rig.cap("seat:bob", 0)
        why = await rig.why(job.id)
        assert (why.shown, why.never_fits) == ("blocked", ("seat:bob",))
        assert [gate.name for gate in why.closed] == ["seat:ann", "seat:bob"]
        await rig.reset("seat:bob")
        await rig.close_gate("seat:bob", rig.clock() + 5_000)
        await rig.close_gate("phone:1", rig.clock() + 6_000)
        why = await rig.why(job.id)
        assert [gate.name for gate in why.closed] == ["seat:ann", "phone:1", "seat:bob"]
        assert why.next_at == rig.clock() + 6_000
        await rig.worker.take(9)
        why = await rig.why(job.id)
        assert why.state is State.PARKED
        # The gate at which it waits is the first candidate's.
        assert why.next_at == rig.clock() + 9_000
        await rig.open_gate("phone:1")
        await rig.open_gate("seat:bob")
        assert [gate.name for gate in (await rig.why(job.id)).closed] == ["seat:ann"]

    async def test_first_ten_holders_and_their_number_are_shown(self, rig: Rig) -> None:
        wide = Slots("wide", 12)
        await rig.add_many(13, gates=(wide,))
        await rig.worker.take(12)
        job = await rig.add(gates=(wide,))
        (gate,) = (await rig.why(job.id)).closed
        assert (len(gate.holders), gate.holder_count) == (10, 12)

    async def test_amount_that_never_fits_is_reported(self, rig: Rig) -> None:
        job = await rig.add(gates=(LINE.take(2),))
        why = await rig.why(job.id)
        assert why.never_fits == ("line",)
        assert "line" in why.sentence

    async def test_running_job_shows_its_worker_and_the_end_of_its_lease(self, rig: Rig) -> None:
        run = await rig.start()
        why = await rig.why(run.id)
        assert (why.state, why.next_at) == (State.RUNNING, rig.clock() + LEASE_MS)
        assert rig.worker.id in why.sentence
        assert why.place is None

    async def test_awaiting_job_shows_its_deadline(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(HandedOver, key="call-1", timeout_ms=60_000)
        why = await rig.why(job.id)
        assert (why.state, why.next_at) == (State.AWAITING, rig.clock() + 60_000)

    async def test_retrying_job_shows_what_failed(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(Failed, error="line busy")
        why = await rig.why(job.id)
        assert (why.state, why.next_at) == (State.SCHEDULED, rig.clock() + 2_000)
        assert "line busy" in why.sentence

    async def test_final_job_shows_how_it_ended(self, rig: Rig) -> None:
        jobs = await rig.add_many(3)
        one, two = await rig.worker.take(2)
        await rig.worker.settle(
            Succeeded(one.id, one.run), Died(two.id, two.run, reason="bad number")
        )
        await rig.cancel(jobs[2].id)
        whys = [await rig.why(job.id) for job in jobs]
        assert [why.state for why in whys] == ["succeeded", "dead", "cancelled"]
        assert "bad number" in whys[1].sentence
        assert all(why.next_at is None and not why.closed for why in whys)

    async def test_waiting_job_that_is_merely_not_first_names_no_open_gate(self, rig: Rig) -> None:
        _, second = await rig.add_many(2, gates=(LINE,))
        why = await rig.why(second.id)
        assert (why.closed, why.place, why.shown) == ((), 2, "ready")
