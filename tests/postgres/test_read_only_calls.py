"""Read-only calls take no lock and a single trip, and never miss what has become due."""

from __future__ import annotations

import psycopg

from headway.contract.claims import BeatRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.stores.postgres.arrays import Texts
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.prefetch import whether_any
from headway.stores.postgres.session import lock_key
from headway.stores.postgres.store import PostgresStore
from headway.stores.sql.statement import Select, of
from headway.testing.clock import FakeClock
from headway.testing.jobs import use_of
from tests.plain_jobs import assert_clean, claim, job
from tests.postgres.places import Place

MINUTE = 60_000


def beat(worker: str = "w") -> BeatRequest:
    return BeatRequest(worker=worker, name="", lanes=("lane",), running=(), lease_ms=MINUTE)


def trips(store: PostgresStore) -> int:
    return store._turns.session.link.trips


async def test_idle_sweep_is_one_trip_and_does_not_wait_for_an_exclusive_step(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue([job(1, due_at=clock() + MINUTE)])
    await store.beat(beat())
    first = await store.sweep(100)
    assert first.next_at is not None
    before = trips(store)
    with psycopg.connect(parse_url(place.url).conninfo) as other:
        other.execute(
            "SELECT pg_advisory_xact_lock(%s)", (lock_key(parse_url(place.url).namespace),)
        )
        assert await store.sweep(100) == first
    assert trips(store) == before + 1


async def test_sweep_after_a_look_finds_newly_due_jobs(place: Place, clock: FakeClock) -> None:
    store, other = place.open(clock), place.open(clock)
    await store.enqueue([job(1, due_at=clock() + MINUTE)])
    await other.enqueue([job(2, expires_at=clock() + 2 * MINUTE)])
    await store.beat(beat())
    for _ in range(2):
        assert (await store.sweep(100)).promoted == 0
    clock.advance(MINUTE)
    assert (await store.sweep(100)).promoted == 1
    for _ in range(2):
        assert (await store.sweep(100)).expired == 0
    clock.advance(MINUTE)
    assert (await store.sweep(100)).expired == 1
    await assert_clean(store)


async def test_claim_after_a_look_finds_newly_due_jobs(place: Place, clock: FakeClock) -> None:
    store = place.open(clock)
    due = job(1, due_at=clock() + MINUTE)
    await store.enqueue([due])
    for request in range(1, 4):
        assert not (await claim(store, request=request, n=1)).jobs
    clock.advance(MINUTE)
    assert [one.id for one in (await claim(store, request=4, n=1)).jobs] == [due.id]
    await assert_clean(store)


async def test_claim_that_sets_a_gates_timer_returns_its_time(
    place: Place, clock: FakeClock
) -> None:
    """Although the first timer was read ahead, in the trip that started the transaction."""
    store = place.open(clock)
    pace = Rate("pace:{phone}", 1, per="10s")
    await store.define(DefineRequest(items=(DeclareGate(spec=pace),), author="ann"))

    for request in (1, 2, 3):
        gates = (use_of(pace, phone=f"{request}"),)
        await store.enqueue([job(10 * request + n, gates=gates) for n in range(2)])
        # The second job waits for the gate; that of the previous claim has waited long enough.
        reply = await claim(store, request=request)
        assert (len(reply.jobs), reply.next_at) == (min(request, 2), clock() + 10_000)
        clock.advance(20_000)


def test_merged_queries_keep_their_own_parameters(place: Place) -> None:
    ask = Select("SELECT $2::text WHERE $1::bigint = ANY (SELECT length(unnest($3::text[])))", of())
    never, ever = (ask, (9, "a", Texts(("b",)))), (ask, (1, "a", Texts(("b",))))
    one, bound = whether_any([never, ever, never])
    with psycopg.connect(parse_url(place.url).conninfo) as db:
        plain = [list(value) if isinstance(value, Texts) else value for value in bound]
        row = psycopg.RawCursor(db).execute(one.text.encode(), plain).fetchone()
    assert row == (False, True, False)


async def test_job_may_need_a_gate_just_declared_by_another_process(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    await store.enqueue([job(1)])
    line = Slots("line", 1)
    await other.define(DefineRequest(items=(DeclareGate(spec=line),), author="ann"))
    (sent,) = await store.enqueue([job(2, gates=(use_of(line),))])
    assert sent.created
