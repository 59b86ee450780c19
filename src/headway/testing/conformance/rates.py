"""Rates: exact in every window, half-open, never refunded."""

from __future__ import annotations

from itertools import cycle

from headway.contract.definitions import SetGate
from headway.contract.outcomes import Failed, Released, Succeeded
from headway.core.gates.rate import Rate
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.jobs import use_of

TWILIO = Rate("rate:twilio", 3, "10s")
PHONE = Rate("phone:{phone}", 2, "60s")


class RateGroup(ConformanceGroup):
    """At most so many starts in any window of claim times on the store's clock."""

    async def test_rate_is_exact_and_half_open(self, rig: Rig) -> None:
        await rig.declare(TWILIO)
        await rig.add_many(6, gates=(use_of(TWILIO),))
        assert len(await rig.worker.take(1)) == 1
        rig.clock.advance(4_000)
        assert len(await rig.worker.take(9)) == 2
        rig.clock.advance(5_999)
        full = await rig.worker.ask(9)
        assert (full.jobs, full.next_at) == ([], rig.clock() + 1)
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 1
        rig.clock.advance(3_999)
        assert await rig.worker.take(9) == []
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 2

    async def test_rate_holds_in_every_window_of_a_long_history(self, rig: Rig) -> None:
        await rig.declare(TWILIO)
        await rig.add_many(200, gates=(use_of(TWILIO),))
        starts: list[int] = []
        steps = zip(cycle((1, 2, 5, 1, 9)), cycle((1, 900, 3_333, 5_000, 40, 10_000, 7)))
        while len(starts) < 150:
            n, ms = next(steps)
            reply = await rig.worker.ask(n)
            starts += [reply.now] * len(reply.jobs)
            await rig.worker.settle(*(Succeeded(job.id, job.run) for job in reply.jobs))
            rig.clock.advance(ms)
        for n in range(len(starts) - 3):
            assert starts[n + 3] - starts[n] >= 10_000

    async def test_rate_with_a_backlog_is_used_to_the_full(self, rig: Rig) -> None:
        await rig.declare(TWILIO)
        await rig.add_many(30, gates=(use_of(TWILIO),))
        for _ in range(10):
            assert len(await rig.worker.take(9)) == 3
            rig.clock.advance(10_000)

    async def test_start_is_never_refunded(self, rig: Rig) -> None:
        await rig.declare(TWILIO)
        await rig.add_many(4, gates=(use_of(TWILIO),))
        one, two, three = await rig.worker.take(9)
        await rig.worker.settle(
            Released(one.id, one.run), Failed(two.id, two.run, after_ms=0), Succeeded(three.id, 1)
        )
        rig.clock.advance(9_999)
        assert await rig.worker.take(9) == []
        assert await rig.used("rate:twilio") == 3

    async def test_weighted_starts_count_by_their_amount(self, rig: Rig) -> None:
        await rig.declare(TWILIO)
        await rig.add_many(2, gates=(use_of(TWILIO, 2),))
        first = await rig.worker.ask(9)
        assert len(first.jobs) == 1
        assert await rig.used("rate:twilio") == 2
        rig.clock.advance(10_000)
        assert len(await rig.worker.take(9)) == 1

    async def test_limit_lowered_and_raised_again_forgets_no_start(self, rig: Rig) -> None:
        await rig.declare(TWILIO)
        await rig.add_many(6, gates=(use_of(TWILIO),))
        assert len(await rig.worker.take(9)) == 3
        await rig.define(SetGate(name="rate:twilio", limit=1))
        rig.clock.advance(5_000)
        assert await rig.worker.take(9) == []
        await rig.define(SetGate(name="rate:twilio", limit=4))
        assert len(await rig.worker.take(9)) == 1
        rig.clock.advance(5_000)
        assert len(await rig.worker.take(9)) == 2

    async def test_rate_is_not_exceeded_when_the_clock_jumps_back_or_far_ahead(
        self, rig: Rig
    ) -> None:
        await rig.declare(TWILIO)
        await rig.add_many(9, gates=(use_of(TWILIO),))
        assert len(await rig.worker.take(9)) == 3
        rig.clock.advance(-3_600_000)
        assert await rig.worker.take(9) == []
        rig.clock.advance(3_600_000 + 9_999)
        assert await rig.worker.take(9) == []
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 3

    async def test_keyed_rate_holds_for_each_key_by_itself(self, rig: Rig) -> None:
        await rig.declare(PHONE)
        for phone in ("1", "2"):
            await rig.add_many(3, gates=(use_of(PHONE, phone=phone),))
        assert len(await rig.worker.take(9)) == 4
        full = await rig.worker.ask(9)
        assert (full.jobs, full.next_at) == ([], rig.clock() + 60_000)

    async def test_job_parked_at_a_rate_starts_when_its_window_has_passed(self, rig: Rig) -> None:
        await rig.declare(PHONE)
        jobs = await rig.add_many(3, gates=(use_of(PHONE, phone="1"),))
        assert len(await rig.worker.take(9)) == 2
        assert await rig.state(jobs[2].id) is State.PARKED
        rig.clock.advance(59_999)
        assert await rig.worker.take(9) == []
        rig.clock.advance(1)
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_limit_of_nothing_lets_nothing_pass(self, rig: Rig) -> None:
        await rig.declare(TWILIO)
        await rig.define(SetGate(name="rate:twilio", limit=0))
        job = await rig.add(gates=(use_of(TWILIO),))
        empty = await rig.worker.ask(9)
        assert (empty.jobs, empty.next_at) == ([], None)
        assert (await rig.why(job.id)).never_fits == ("rate:twilio",)

    async def test_operators_window_holds_at_once(self, rig: Rig) -> None:
        await rig.declare(TWILIO)
        await rig.add_many(6, gates=(use_of(TWILIO),))
        assert len(await rig.worker.take(9)) == 3
        await rig.define(SetGate(name="rate:twilio", limit=3, per_ms=20_000))
        rig.clock.advance(19_999)
        assert await rig.worker.take(9) == []
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 3
