"""Beats take no exclusive lock: no other call, of any process, delays a healthy worker's lease."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from headway.contract.claims import BeatReply, BeatRequest, ClaimRequest
from headway.contract.outcomes import HandedOver, SettleRequest, Succeeded
from headway.contract.signals import Decided, Signal, SignalKind, SignalReply, SignalResult
from headway.core.errors import InvalidValue
from headway.core.state import State
from headway.runtime.timing import pause
from headway.stores.ledger.packing import encode
from headway.stores.postgres.call_queue import TOGETHER
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.session import lock_key
from headway.stores.postgres.store import PostgresStore
from headway.testing.clock import FakeClock
from tests.plain_jobs import LANE, assert_clean, claim, count, job, jobs
from tests.postgres.places import Place
from tests.postgres.test_out_of_order import Held
from tests.servers.postgres import until_it_waits

LEASE_MS = 30_000
LIMIT = 240
"""Time limit in seconds for events that must happen."""


def beat(store: PostgresStore, *held: Any, worker: str = "w", **fields: Any) -> Any:
    running = tuple((one.id, one.run) for one in held)
    given = {"request": 1, "lease_ms": LEASE_MS, **fields}
    return store.beat(BeatRequest(worker=worker, running=running, **given))


def news(number: int) -> Signal:
    return Signal(key=f"call-{number}", event=f"e{number}", kind=SignalKind.NOTE)


async def test_beat_is_answered_before_thousands_of_waiting_signals(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue([job(1)])
    held = (await claim(store)).jobs
    await beat(store, *held)
    answered: list[SignalReply] = []
    slow = Held(store._turns)
    signals = [asyncio.ensure_future(store.signal(news(n))) for n in range(3_000)]
    for one in signals:
        one.add_done_callback(lambda done: answered.append(done.result()))
    await slow.until_it_came()
    clock.advance(LEASE_MS // 2)
    reply: BeatReply = await asyncio.wait_for(beat(store, *held), LIMIT)
    assert reply.lease_until == clock() + LEASE_MS
    assert (reply.lost, reply.cancel) == ((), ())
    assert answered == []
    # A beat that needs the lock (progress is written to the job) gets it next.
    progress = ((held[0].id, held[0].run, b"7"),)
    late = asyncio.ensure_future(beat(store, *held, progress=progress))
    async with asyncio.timeout(LIMIT):
        while store._turn_queue._calls[0].together is not None:
            await pause(0)
    slow.through.set()
    await asyncio.wait_for(late, LIMIT)
    assert len(answered) <= 2 * TOGETHER
    await asyncio.wait_for(asyncio.gather(*signals), LIMIT)
    assert {one.answer for one in answered} == {SignalResult.KEPT}
    await assert_clean(store)


async def test_beat_does_not_wait_for_an_exclusive_step(place: Place, clock: FakeClock) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 2))
    held = (await claim(store)).jobs
    await beat(store, *held)
    key = lock_key(parse_url(place.url).namespace)
    with psycopg.connect(parse_url(place.url).conninfo) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
        clock.advance(LEASE_MS - 1)
        assert (await beat(store, *held)).lease_until == clock() + LEASE_MS
    clock.advance(LEASE_MS - 1)
    assert (await store.sweep(100)).lost == 0
    assert await count(store, "running") == 2


async def test_sweep_that_saw_the_lease_end_is_repeated_after_a_beat(
    place: Place, clock: FakeClock
) -> None:
    """Two processes whose clocks differ a little, at the very end of a lease."""
    store = place.open(clock)
    ahead = FakeClock(clock() + LEASE_MS)
    other = place.open(ahead)
    await store.enqueue([job(1)])
    held = (await claim(store)).jobs
    await beat(store, *held)
    await other.lead("chores", "here", 1_000)
    await other.beat(BeatRequest(worker="other", running=(), request=0))
    swept = Held(other._turns)
    sweep = asyncio.ensure_future(other.sweep(100))
    await swept.until_it_came()
    # The store's time is that of the clock ahead, so the lease has ended for this store, too. The
    # row is replaced by hand, as a beat a moment ago would have done.
    place.sql(
        "UPDATE @worker SET lease_until = lease_until + 60000, no = no + 1 WHERE id = %s", "w"
    )
    swept.through.set()
    assert (await sweep).lost == 0
    assert await count(store, "running") == 1
    await assert_clean(store)


async def test_beat_that_read_the_lease_before_a_new_epoch_does_not_revive_it(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue([job(1)])
    held = (await claim(store)).jobs
    await beat(store, *held)
    slow = Held(store._beats._steps)
    late = asyncio.ensure_future(beat(store, *held))
    await slow.until_it_came()
    await place.open(clock).new_epoch("ann", "to be safe")
    slow.through.set()
    reply: BeatReply = await late
    assert reply.lost == tuple((one.id, one.run) for one in held)
    assert await count(store, "running") == 0


async def test_beat_committed_while_a_new_epoch_ends_the_leases_does_not_survive(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue([job(1)])
    held = (await claim(store)).jobs
    await beat(store, *held)
    with psycopg.connect(parse_url(place.url).conninfo) as other:
        # The effect of a beat on the row: it is replaced, not updated.
        for text in (
            "CREATE TEMP TABLE beaten AS SELECT * FROM {}.worker",
            "UPDATE beaten SET lease_until = lease_until + 60000, no = no + 1",
            "DELETE FROM {}.worker",
            "INSERT INTO {}.worker SELECT * FROM beaten",
        ):
            other.execute(text.format(place.namespace).encode())
        late = asyncio.ensure_future(place.open(clock).new_epoch("ann", "to be safe"))
        await until_it_waits(place.database, late)
        other.commit()
    await late
    reply: BeatReply = await beat(store, *held)
    assert reply.lost == tuple((one.id, one.run) for one in held)


async def test_shared_settlement_and_exclusive_step_wait_for_an_exclusive_step(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue([job(1)])
    (one,) = (await claim(store)).jobs
    settlement = SettleRequest(worker="w", outcomes=(Succeeded(one.id, one.run),))
    key = lock_key(parse_url(place.url).namespace)
    for call in (lambda: store.settle(settlement), lambda: store.lead("chores", "here", 1_000)):
        with psycopg.connect(parse_url(place.url).conninfo) as other:
            other.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
            late = asyncio.ensure_future(call())
            await until_it_waits(place.database, late)
        await late
    assert await count(store, "succeeded") == 1


@pytest.mark.parametrize("beats", [1, 2])
async def test_concurrent_claim_and_beats_of_a_worker_keep_each_others_writes(
    place: Place, clock: FakeClock, beats: int
) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 2))
    first = (await claim(store, n=1)).jobs
    await beat(store, *first)
    slow = Held(store._turns)
    # From two lanes, so that the claim takes the lock and is not a plain claim in one trip.
    lanes = ((LANE, 1), ("other", 1))
    turn = ClaimRequest(worker="w", request=2, lanes=lanes, n=1, free=1)
    late = asyncio.ensure_future(store.claim(turn))
    await slow.until_it_came()
    clock.advance(20_000)
    for _ in range(beats):
        extended: BeatReply = await beat(store, *first, lease_ms=90_000)
    slow.through.set()
    second = (await late).jobs
    assert (await late).lease_until == extended.lease_until
    clock.advance(80_000)
    reply: BeatReply = await beat(store, *first, *second, request=2)
    assert reply.lost == ()
    assert place.sql("SELECT count(*) FROM @worker WHERE id = 'w'") == [(1,)]


async def test_first_beat_beside_claims_leaves_the_worker_one_lease(
    place: Place, clock: FakeClock
) -> None:
    """A second row would expire by itself, and a sweep would then take the live worker's jobs."""
    store = place.open(clock)
    await store.enqueue([job(1)])
    await beat(store, worker="other")
    with psycopg.connect(parse_url(place.url).conninfo) as claims:
        key = lock_key(parse_url(place.url).namespace)
        claims.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
        late: asyncio.Future[BeatReply] | None = None
        remove = "DELETE FROM {}.worker WHERE id = 'w'"
        add = "INSERT INTO {}.worker VALUES ('w', 'w', %s, %s, %s, 0, false, %s)"
        for no in (1, 2, 3):
            claims.execute(remove.format(place.namespace).encode())
            bound = (encode(()), clock(), clock() + LEASE_MS, no)
            claims.execute(add.format(place.namespace).encode(), bound)
            late = late or asyncio.ensure_future(beat(store, request=0))
            await until_it_waits(place.database, late)
        claims.commit()
        assert late is not None
    await late
    assert place.sql("SELECT no FROM @worker WHERE id = 'w'") == [(4,)]
    held = (await claim(store)).jobs
    clock.advance(LEASE_MS - 1)
    await beat(store, *held)
    clock.advance(1)
    assert (await store.sweep(100)).lost == 0
    assert await count(store, "running") == 1


async def test_beat_that_releases_undelivered_jobs_extends_the_lease_at_once(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 3))
    (one, *_) = (await claim(store)).jobs
    await beat(store, one, request=0)
    await beat(store, worker="other")
    clock.advance(LEASE_MS - 1)
    key = lock_key(parse_url(place.url).namespace)
    with psycopg.connect(parse_url(place.url).conninfo) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
        late = asyncio.ensure_future(beat(store, one))
        await pause(0)
        # Beats of a process are answered in order, so the lease of the first has been written by
        # then.
        await beat(store, worker="other")
        rows = place.sql("SELECT lease_until FROM @worker WHERE id = 'w'")
        assert rows == [(clock() + LEASE_MS,)]
    await late
    assert await count(store, "running") == 1
    assert await count(store, "waiting") == 2
    await assert_clean(store)


async def test_waiting_signals_share_steps_and_each_gets_its_own_reply(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 40))
    held = (await claim(store)).jobs
    over = tuple(HandedOver(one.id, one.run, key=f"call-{n}") for n, one in enumerate(held))
    await store.settle(SettleRequest(worker="w", outcomes=over))
    slow = Held(store._turns)
    first = asyncio.ensure_future(store.lead("chores", "here", 1_000))
    await slow.until_it_came()
    ends = [
        Signal(key=f"call-{n}", event="end", kind=SignalKind.FINAL, decided=Decided.SUCCEEDED)
        for n in range(40)
    ]
    bad = Signal(key="call-1", event="e" * 2_000, kind=SignalKind.NOTE)
    asked = [*ends[:20], bad, *ends[20:], ends[3]]
    replies = [asyncio.ensure_future(store.signal(one)) for one in asked]
    # The first statement of each step starts a transaction.
    await pause(0)
    trips = store._turns.session.link.trips
    slow.through.set()
    done = await asyncio.gather(first, *replies, return_exceptions=True)
    answers = done[1:]
    assert isinstance(answers[20], InvalidValue)
    assert isinstance(answers[-1], SignalReply)
    assert answers[-1].answer is SignalResult.ALREADY
    fine = [one for one in (*answers[:20], *answers[21:-1]) if isinstance(one, SignalReply)]
    assert [one.answer for one in fine] == [SignalResult.APPLIED] * 40
    assert {one.state for one in fine} == {State.SUCCEEDED}
    assert store._turns.session.link.trips > trips
    await assert_clean(store)


@pytest.mark.parametrize("together", [TOGETHER])
async def test_grouped_signals_take_one_exclusive_step(
    place: Place, clock: FakeClock, together: int
) -> None:
    store = place.open(clock)
    slow = Held(store._turns)
    first = asyncio.ensure_future(store.lead("chores", "here", 1_000))
    await slow.until_it_came()
    before = store._shared.unfolded
    replies = [asyncio.ensure_future(store.signal(news(n))) for n in range(together)]
    await pause(0)
    slow.through.set()
    await asyncio.gather(first, *replies)
    # One for the call that was held, and one for all the others.
    assert store._shared.unfolded == before + 2


async def test_beats_and_enqueues_raise_the_stores_time(place: Place, clock: FakeClock) -> None:
    """They do so themselves, because no exclusive step may follow before a clock is set back."""
    store = place.open(clock)
    await store.enqueue([job(0)])
    await beat(store)
    # The first enqueue of a process reads; the ones after it do not.
    for step in (lambda: store.enqueue([job(1)]), lambda: beat(store)):
        clock.advance(5_000)
        await step()
        assert place.sql("SELECT n FROM @number WHERE key = -1") == [(clock(),)]
