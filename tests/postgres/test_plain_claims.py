"""Claims of plain lanes: one trip, concurrent, and with all the rules of a claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psycopg
import pytest

from headway import Rate, Slots
from headway.contract.claims import BeatRequest, ClaimReply, ClaimRequest
from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DefineRequest,
    Item,
    LaneSpec,
    OpenGate,
    SetLane,
)
from headway.contract.outcomes import SettleRequest, Snoozed, Verdict
from headway.contract.views import JobQuery, StatsQuery, WorkersQuery
from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.core.job import JobPolicy, NewJob
from headway.core.state import State
from headway.stores.postgres import low_water_marks
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.plain_claims import (
    LONGEST_PAUSE,
    MOST_DUE,
    MOST_FLOWS,
    RETRY_MS,
)
from headway.stores.postgres.session import lock_key
from headway.stores.postgres.store import PostgresStore
from headway.testing.clock import FakeClock
from headway.testing.jobs import use_of
from tests.plain_jobs import LANE, assert_clean, claim, count, job, jobs, succeed
from tests.postgres.places import Place
from tests.servers.postgres import until_it_waits

MINUTE = 60_000


def trips(store: PostgresStore) -> tuple[int, int]:
    """Return the numbers of trips of plain claims and of exclusive steps."""
    link = store._plain.steps.session._link
    return (link.trips if link is not None else 0, store._turns.session.link.trips)


def started(reply: ClaimReply) -> list[str]:
    return [one.id for one in reply.jobs]


def of(made: Sequence[NewJob]) -> list[str]:
    return [one.id for one in made]


async def define(store: PostgresStore, *items: Item) -> None:
    await store.define(DefineRequest(items=items, author="ann", reason="a test"))


@pytest.fixture
async def store(place: Place, clock: FakeClock) -> PostgresStore:
    """A store whose process knows that the lane is plain; request 1 of worker w is used."""
    opened = place.open(clock)
    await learn(opened, 9_000)
    return opened


async def learn(store: PostgresStore, number: int, worker: str = "w") -> None:
    await store.enqueue([job(number)])
    reply = await claim(store, worker, request=1)
    assert len(reply.jobs) == 1
    await succeed(store, [(reply.jobs[0].id, reply.jobs[0].run)], worker)


async def learn_tenant(store: PostgresStore, tenant: str) -> None:
    """Let the process know a further flow of the lane; request 2 of worker w is used."""
    await store.enqueue([job(9_999, tenant=tenant)])
    reply = await claim(store, request=2)
    assert len(reply.jobs) == 1
    await succeed(store, [(reply.jobs[0].id, reply.jobs[0].run)])


@asynccontextmanager
async def locked(place: Place, made: Sequence[NewJob]) -> AsyncIterator[None]:
    """Hold row locks on these jobs, as another claim that is not committed yet."""
    with psycopg.connect(place.database) as other:
        query = f"SELECT seq FROM {place.namespace}.job WHERE id = ANY (%s::uuid[]) FOR UPDATE"  # noqa: S608  (our own names)
        assert len(other.execute(query.encode(), (of(made),)).fetchall()) == len(made)
        yield


async def test_plain_claim_is_one_trip_and_waits_for_no_other(
    store: PostgresStore, place: Place
) -> None:
    made = jobs(1, 5)
    await store.enqueue(made)
    options = parse_url(place.url)
    with psycopg.connect(options.conninfo) as other:
        # A shared lock does not block a plain claim; it would block an exclusive one.
        other.execute("SELECT pg_advisory_xact_lock_shared(%s)", (lock_key(options.namespace),))
        assert started(await claim(store, request=2, n=2)) == of(made[:2])
        before = trips(store)
        assert started(await claim(store, request=3, n=2)) == of(made[2:4])
        assert trips(store) == (before[0] + 1, before[1])
        last = await claim(store, request=4, n=2)
        assert (started(last), last.again) == (of(made[4:]), False)
        assert started(await claim(store, request=5, n=2)) == []
        assert trips(store) == (before[0] + 3, before[1])
    assert await count(store, "running") == 5
    await assert_clean(store)


async def test_jobs_locked_by_another_claim_are_skipped_and_none_is_lost(
    store: PostgresStore, place: Place, clock: FakeClock
) -> None:
    made = jobs(1, 5)
    await store.enqueue(made)
    async with locked(place, made[:2]):
        reply = await claim(store, request=2, n=2)
        assert started(reply) == of(made[2:4])
        reply = await claim(store, request=3, n=2)
        # One job started, and there are more: the worker must claim again at once.
        assert (started(reply), reply.again) == (of(made[4:]), True)
        reply = await claim(store, request=4, n=2)
        # All waiting jobs are locked; if the claim that locked them fails, no wake follows.
        assert (started(reply), reply.again) == ([], False)
        assert reply.next_at is not None
        assert reply.next_at <= clock() + 50
    assert started(await claim(store, request=5, n=2)) == of(made[:2])
    await assert_clean(store)


async def test_plain_claim_looks_further_if_all_first_jobs_are_locked(
    store: PostgresStore, place: Place
) -> None:
    made = jobs(1, 12)
    await store.enqueue(made)
    async with locked(place, made[:10]):
        reply = await claim(store, request=2, n=1)
        assert (started(reply), reply.again) == (of(made[10:11]), True)
    assert started(await claim(store, request=3, n=11)) == of([*made[:10], made[11]])
    await assert_clean(store)


async def test_due_job_behind_locked_ones_is_counted_though_nothing_starts_at_first(
    store: PostgresStore, place: Place, clock: FakeClock
) -> None:
    made = jobs(1, 10)
    due = job(20, priority=900, due_at=clock() + 1_000)
    await store.enqueue([*made, due])
    clock.advance(1_000)
    async with locked(place, made):
        assert started(await claim(store, request=2, n=1)) == [due.id]
    counts = (await store.read(StatsQuery())).counts
    assert counts == {"succeeded": 1, "waiting": 10, "running": 1}
    await assert_clean(store)


async def test_skipped_jobs_go_first_again_if_the_claim_that_locked_them_fails(
    store: PostgresStore, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_water_marks, "LEAST", 1)
    made = jobs(1, 12)
    await store.enqueue(made)
    assert started(await claim(store, request=2, n=2)) == of(made[:2])
    async with locked(place, made[3:5]):
        # The claim that locked them is rolled back at the end.
        assert started(await claim(store, request=3, n=3)) == of([made[2], *made[5:7]])
    assert started(await claim(store, request=4, n=3)) == of([*made[3:5], made[7]])
    await assert_clean(store)


async def test_job_with_an_old_due_time_goes_first_in_a_lane_that_a_claim_has_emptied(
    store: PostgresStore, place: Place, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_water_marks, "LEAST", 1)
    await store.enqueue(jobs(1, 3))
    assert started(await claim(store, request=2, n=2)) == of(jobs(1, 2))
    assert started(await claim(store, request=3, n=2)) == of(jobs(3, 1))
    late = job(8, due_at=clock() - 5_000)
    await place.open(clock).enqueue([*jobs(4, 2), late])
    before = trips(store)
    assert started(await claim(store, request=4, n=1)) == [late.id]
    assert trips(store) == (before[0] + 1, before[1])
    await assert_clean(store)


async def test_concurrent_claims_of_many_workers_start_each_job_once(
    place: Place, clock: FakeClock
) -> None:
    stores = [place.open(clock) for _ in range(4)]
    for number, one in enumerate(stores):
        await learn(one, 9_000 + number, f"w{number}")
    made = jobs(1, 400)
    await stores[0].enqueue(made)

    async def work(number: int) -> list[str]:
        found: list[str] = []
        for request in range(2, 102):
            reply = await claim(stores[number], f"w{number}", request, n=7)
            found += started(reply)
            if not reply.jobs and reply.next_at is None:
                break
        return found

    found = await asyncio.gather(*(work(number) for number in range(4)))
    assert sorted(one for each in found for one in each) == sorted(of(made))
    # The order of a single claim is the order of the queue.
    places = {one: place for place, one in enumerate(of(made))}
    assert all(
        [places[one] for one in each] == sorted(places[one] for one in each) for each in found
    )
    assert sum(trips(one)[0] for one in stores) > 0
    assert await count(stores[0], "running") == 400
    await assert_clean(stores[0])


async def test_flows_of_a_plain_lane_are_merged_by_priority_due_time_and_arrival(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    tenants = [f"t{n % 5}" for n in range(30)]
    made = [
        job(n, tenant=tenant, priority=n % 3, due_at=clock() - (n * 7 % 11))
        for n, tenant in enumerate(tenants)
    ]
    await store.enqueue([job(8_000 + n, tenant=f"t{n}") for n in range(5)])
    assert len((await claim(store, request=1)).jobs) == 5
    await store.enqueue(made)
    order = sorted(range(30), key=lambda n: (made[n].priority, made[n].due_at, n))
    found: list[str] = []
    for request in range(2, 7):
        found += started(await claim(store, request=request, n=6))
    assert found == [made[n].id for n in order]
    assert trips(store)[0] == 5
    await assert_clean(store)


async def test_first_job_is_started_though_many_of_another_flow_arrived_before_it(
    store: PostgresStore, clock: FakeClock
) -> None:
    await learn_tenant(store, "new")
    first = job(20, tenant="new", due_at=clock() - 1_000)
    await store.enqueue([*jobs(1, 10), first])
    before = trips(store)
    assert started(await claim(store, request=3, n=1)) == [first.id]
    assert trips(store) == (before[0] + 1, before[1])
    await assert_clean(store)


async def test_lane_is_plain_again_after_its_process_has_forgotten_the_store(
    store: PostgresStore,
) -> None:
    made = jobs(1, 3)
    await store.enqueue(made)
    store._shared.forget()
    assert started(await claim(store, request=2, n=1)) == of(made[:1])
    before = trips(store)
    assert started(await claim(store, request=3, n=1)) == of(made[1:2])
    assert trips(store) == (before[0] + 1, before[1])
    await assert_clean(store)


async def test_repeated_claim_gets_what_its_first_attempt_started(store: PostgresStore) -> None:
    made = jobs(1, 4)
    await store.enqueue(made)
    first = await claim(store, request=2, n=3)
    assert started(first) == of(made[:3])
    again = await claim(store, request=2, n=3)
    assert again.jobs == first.jobs
    assert started(await claim(store, request=3, n=3)) == of(made[3:])
    await assert_clean(store)


async def test_plain_claim_leaves_a_gate_a_closing_or_a_fair_lane_to_the_verb(
    store: PostgresStore, clock: FakeClock
) -> None:
    seats = Slots("seats", 1)
    await define(store, DeclareGate(spec=seats))
    made = [*jobs(1, 2), *(job(n, gates=(use_of(seats),)) for n in (3, 4))]
    await store.enqueue(made)
    reply = await claim(store, request=2)
    assert started(reply) == of(made[:3])
    assert [one.gated for one in reply.jobs] == [False, False, True]
    await define(store, CloseGate(name=f"lane:{LANE}", until_at=clock() + 5_000))
    more = jobs(5, 2)
    await store.enqueue(more)
    assert not (await claim(store, request=3)).jobs
    clock.advance(5_000)
    assert started(await claim(store, request=4)) == of(more)
    await define(store, SetLane(spec=LaneSpec(name=LANE, concurrency=1)))
    await store.enqueue(jobs(7, 3))
    assert not (await claim(store, request=5)).jobs
    await assert_clean(store)


async def test_lane_in_which_jobs_with_a_gate_wait_is_not_plain(store: PostgresStore) -> None:
    seats = Slots("seats", 1)
    await define(store, DeclareGate(spec=seats))
    await store.enqueue([job(1), *(job(n, gates=(use_of(seats),)) for n in (2, 3))])
    # An exclusive claim, which starts only the job without the gate.
    assert started(await claim(store, request=2, n=1)) == [job(1).id]
    reply = await claim(store, request=3)
    assert [(one.id, one.gated) for one in reply.jobs] == [(job(2).id, True)]
    await assert_clean(store)


async def test_plain_claim_leaves_jobs_with_keyed_gates_to_the_verb(store: PostgresStore) -> None:
    phone = Slots("phone:{phone}", 1)
    await define(store, DeclareGate(spec=phone))
    made = [job(1), *(job(n, gates=(use_of(phone, phone="7"),)) for n in (2, 3)), job(4)]
    await store.enqueue(made)
    assert started(await claim(store, request=2)) == [made[n].id for n in (0, 1, 3)]
    assert await count(store, "parked") == 1
    await assert_clean(store)


async def test_due_jobs_start_directly_in_order_among_the_waiting_ones(
    store: PostgresStore, clock: FakeClock
) -> None:
    due = [job(1, due_at=clock() + 5_000), job(2, due_at=clock() + 4_000, priority=600)]
    later = job(3, due_at=clock() + 9_000)
    waiting = jobs(4, 2, priority=600)
    await store.enqueue([*due, later, *waiting])
    reply = await claim(store, request=2, n=1)
    assert (started(reply), reply.next_at) == (of(waiting[:1]), due[1].due_at)
    clock.advance(5_000)
    before = trips(store)
    # The first by priority, then by due time.
    reply = await claim(store, request=3, n=2)
    assert (started(reply), reply.again) == (of([due[0], waiting[1]]), True)
    # The due job that did not start waits.
    assert (await count(store, "scheduled"), await count(store, "waiting")) == (1, 1)
    reply = await claim(store, request=4, n=2)
    assert (started(reply), reply.again, reply.next_at) == (of(due[1:]), False, later.due_at)
    assert trips(store) == (before[0] + 2, before[1])
    counts = (await store.read(StatsQuery())).counts
    assert counts == {"succeeded": 1, "running": 4, "scheduled": 1}
    await assert_clean(store)


async def test_due_job_locked_by_another_claim_is_skipped_and_not_lost(
    store: PostgresStore, place: Place, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_water_marks, "LEAST", 1)
    due = jobs(1, 4, due_at=clock() + 5)
    await store.enqueue([*due, job(5, due_at=clock() + 60_000)])
    clock.advance(5)
    async with locked(place, due[:1]):
        assert started(await claim(store, request=2, n=1)) == of(due[1:2])
        reply = await claim(store, request=3, n=5)
        assert (started(reply), reply.again) == (of(due[2:]), True)
        # If the other claim fails, no wake follows.
        reply = await claim(store, request=4, n=5)
        assert (started(reply), reply.again, reply.next_at) == ([], False, clock() + RETRY_MS)
    assert started(await claim(store, request=5, n=5)) == of(due[:1])
    await assert_clean(store)


async def test_many_due_jobs_are_made_waiting_by_an_exclusive_claim(
    store: PostgresStore, clock: FakeClock
) -> None:
    due = [job(number, due_at=clock() + number) for number in range(1, MOST_DUE + 3)]
    await store.enqueue(due)
    clock.advance(MOST_DUE + 1)
    before = trips(store)
    assert started(await claim(store, request=2, n=1)) == of(due[:1])
    assert trips(store)[1] > before[1]
    assert await count(store, "waiting") == MOST_DUE
    before = trips(store)
    clock.advance(1)
    assert started(await claim(store, request=3)) == of(due[1:])
    assert trips(store) == (before[0] + 1, before[1])
    await assert_clean(store)


async def test_first_run_of_a_fire_is_left_to_the_verb_and_its_retry_is_not(
    store: PostgresStore, clock: FakeClock
) -> None:
    fire = job(1, entry="daily", fired_at=clock(), due_at=clock() + 1_000)
    await store.enqueue([fire])
    clock.advance(1_000)
    before = trips(store)
    reply = await claim(store, request=2)
    assert started(reply) == of([fire])
    assert trips(store)[1] > before[1]
    put_back = Snoozed(fire.id, reply.jobs[0].run, until_at=clock() + 1_000)
    await store.settle(SettleRequest(worker="w", outcomes=(put_back,)))
    clock.advance(1_000)
    before = trips(store)
    assert started(await claim(store, request=3)) == of([fire])
    assert trips(store) == (before[0] + 1, before[1])
    await assert_clean(store)


@pytest.mark.parametrize("why", ["gate", "fire", "expired"])
async def test_job_committed_after_the_assumptions_were_checked_is_left_to_the_verb(
    store: PostgresStore, place: Place, clock: FakeClock, why: str
) -> None:
    line = Slots("line", 1)
    await define(store, DeclareGate(spec=line))
    gates = (use_of(line),)
    await store.enqueue([job(1, gates=gates, lane="other"), job(2)])
    request = ClaimRequest(worker="other", request=1, lanes=(("other", 1),), n=1, free=1)
    assert started(await store.claim(request)) == [job(1).id]
    # Learn about the gate.
    await claim(store, request=2)
    due_at = clock() + 1_000
    late = {
        "gate": job(3, due_at=due_at, gates=gates),
        "fire": job(3, due_at=due_at, entry="daily", fired_at=due_at),
        "expired": job(3, due_at=due_at, expires_at=due_at),
    }[why]
    plain = job(4)
    await store.enqueue([plain])
    before = trips(store)
    with psycopg.connect(place.database) as other:
        # The statement that starts jobs waits for this lock, the one that checks does not.
        other.execute(f"LOCK TABLE {place.namespace}.delta IN ACCESS EXCLUSIVE MODE".encode())
        assert store.enqueue_within(other, [late])[0].created
        clock.advance(1_000)
        call = asyncio.ensure_future(claim(store, request=3))
        await until_it_waits(place.database, call)
        other.commit()
        assert started(await call) == [plain.id]
    assert trips(store)[0] > before[0]
    assert await count(store, "running") == 3
    view = await store.read(JobQuery(id=late.id))
    assert view is not None
    if why == "expired":
        assert (view.state, view.reason) == (State.DEAD, "expired")
    else:
        assert view.state is State.SCHEDULED
    await assert_clean(store)


async def test_due_job_of_an_unknown_flow_is_left_to_the_verb_once(
    store: PostgresStore, clock: FakeClock
) -> None:
    await store.enqueue([job(n, tenant="new", due_at=clock() + n) for n in (1, 2)])
    clock.advance(1)
    before = trips(store)
    assert started(await claim(store, request=2)) == [job(1).id]
    assert trips(store)[1] > before[1]
    clock.advance(1)
    before = trips(store)
    assert started(await claim(store, request=3)) == [job(2).id]
    assert trips(store) == (before[0] + 1, before[1])
    await assert_clean(store)


async def test_plain_claim_leaves_expired_jobs_to_the_verb(
    store: PostgresStore, clock: FakeClock
) -> None:
    late = job(1, expires_at=clock() + 5_000)
    await store.enqueue([late, *jobs(3, 2, priority=1)])
    assert started(await claim(store, request=2, n=1)) == [job(3).id]
    clock.advance(5_000)
    reply = await claim(store, request=3, n=3)
    assert (started(reply), reply.dead) == ([job(4).id], (late.id,))
    await assert_clean(store)


async def test_retries_after_their_expiry_are_started_by_plain_claims(
    store: PostgresStore, clock: FakeClock
) -> None:
    made = jobs(1, 2, expires_at=clock() + 1_000)
    await store.enqueue(made)
    runs = (await claim(store, request=2)).jobs
    outcomes = tuple(Snoozed(one.id, one.run, until_at=clock() + 1_000) for one in runs)
    await store.settle(SettleRequest(worker="w", outcomes=outcomes))
    clock.advance(1_000)
    before = trips(store)
    # The second one becomes waiting.
    for request, one in enumerate(made, 3):
        assert started(await claim(store, request=request, n=1)) == [one.id]
    assert trips(store) == (before[0] + 2, before[1])
    await assert_clean(store)


async def test_plain_claim_starts_no_job_before_it_was_created(
    store: PostgresStore, place: Place, clock: FakeClock
) -> None:
    await store.enqueue([job(1)])
    before = trips(store)
    with psycopg.connect(place.database) as other:
        # The claim's time is fixed by its first statement, and its second waits for this lock.
        other.execute(f"LOCK TABLE {place.namespace}.delta IN ACCESS EXCLUSIVE MODE".encode())
        call = asyncio.ensure_future(claim(store, request=2))
        await until_it_waits(place.database, call)
        clock.advance(1_000)
        assert store.enqueue_within(other, [job(2)])[0].created
        other.commit()
        assert started(await call) == of([job(1), job(2)])
    assert trips(store)[0] == before[0] + 1
    view = await store.read(JobQuery(id=job(2).id))
    assert view is not None
    assert view.runs[0].claimed_at == view.created_at == clock()
    await assert_clean(store)


async def test_plain_claim_leaves_cascades_to_the_verb(store: PostgresStore) -> None:
    offered = job(1, candidates=("ann", "bob"), policy=JobPolicy(cascade=True))
    await store.enqueue([offered, job(2)])
    reply = await claim(store, request=2)
    assert [(one.id, one.candidate) for one in reply.jobs] == [(offered.id, "ann"), (job(2).id, "")]
    await assert_clean(store)


async def test_plain_claim_returns_the_next_gate_timer_and_leaves_it_to_the_verb(
    store: PostgresStore, clock: FakeClock
) -> None:
    pace, slower = Rate("pace:{phone}", 1, per="10s"), Rate("slower:{phone}", 1, per="20s")
    await define(store, DeclareGate(spec=pace), DeclareGate(spec=slower))
    uses = [use_of(spec, phone="7") for spec in (pace, pace, slower, slower)]
    await store.enqueue([job(10 + n, lane="slow", gates=(one,)) for n, one in enumerate(uses)])
    lanes = (("slow", 1),)
    request = ClaimRequest(worker="other", request=1, lanes=lanes, n=4, free=4)
    assert started(await store.claim(request)) == [job(10).id, job(12).id]
    await store.enqueue(jobs(3, 2))
    before = trips(store)
    reply = await claim(store, request=2, n=1)
    assert (len(reply.jobs), reply.next_at) == (1, clock() + 10_000)
    assert trips(store) == (before[0] + 1, before[1])
    clock.advance(10_000)
    # Now it becomes an exclusive claim, which runs the timer.
    reply = await claim(store, request=3, n=1)
    assert (len(reply.jobs), reply.next_at) == (1, clock() + 10_000)
    await assert_clean(store)


async def test_claim_whose_jobs_cannot_be_returned_has_an_unknown_outcome(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = jobs(1, 1)
    await store.enqueue(made)

    def fail(_: int) -> JobPolicy:
        message = "the policies cannot be read"
        raise StoreUnavailable(message)

    with monkeypatch.context() as patched:
        patched.setattr(store._plain.steps.shared.registry.policies, "value", fail)
        with pytest.raises(OutcomeUnknown):
            await claim(store, request=2)
    assert started(await claim(store, request=2)) == of(made)
    await assert_clean(store)


async def test_plain_claim_raises_the_stores_time(
    store: PostgresStore, place: Place, clock: FakeClock
) -> None:
    made = jobs(1, 2)
    await store.enqueue(made)
    clock.advance(5_000)
    before = trips(store)
    assert started(await claim(store, request=2, n=1)) == of(made[:1])
    assert trips(store) == (before[0] + 1, before[1])
    assert place.sql("SELECT n FROM @number WHERE key = -1") == [(clock(),)]


async def test_plain_claim_that_starts_nothing_writes_nothing(
    store: PostgresStore, place: Place, clock: FakeClock
) -> None:
    tables = ("number", "worker", "delta", "job")
    rows = " UNION ALL ".join(f"SELECT xmin::text FROM @{name}" for name in tables)  # noqa: S608  (constants only)
    before, written = trips(store), sorted(place.sql(rows))
    clock.advance(5_000)
    reply = await claim(store, request=2)
    assert (started(reply), reply.lease_until) == ([], clock() + 25_000)
    assert trips(store) == (before[0] + 1, before[1])
    assert sorted(place.sql(rows)) == written


async def test_plain_claim_extends_the_lease(store: PostgresStore, clock: FakeClock) -> None:
    clock.advance(5_000)
    await store.enqueue([job(1)])
    before = trips(store)
    assert (await claim(store, request=2)).lease_until == clock() + 30_000
    assert trips(store) == (before[0] + 1, before[1])
    clock.advance(29_999)
    assert (await store.sweep(10)).lost == 0


async def test_plain_claim_does_not_shorten_a_longer_lease(
    store: PostgresStore, clock: FakeClock
) -> None:
    await store.beat(BeatRequest(worker="w", lease_ms=90_000))
    await store.enqueue(jobs(1, 2))
    before = trips(store)
    assert (await claim(store, request=2)).lease_until == clock() + 90_000
    assert trips(store) == (before[0] + 1, before[1])
    clock.advance(60_000)
    assert (await store.sweep(10)).lost == 0
    assert await count(store, "running") == 2


async def test_plain_claim_whose_workers_row_a_beat_replaces_is_repeated(
    store: PostgresStore, place: Place, clock: FakeClock
) -> None:
    await store.enqueue(jobs(1, 2))
    with psycopg.connect(place.database) as other:
        name = place.namespace
        row = f"UPDATE {name}.worker SET no = no + 1, lease_until = %s WHERE id = 'w'"  # noqa: S608  (our own names)
        other.execute(row.encode(), (clock() + 90_000,))
        late = asyncio.ensure_future(claim(store, request=2, n=2))
        await until_it_waits(place.database, late)
        other.commit()
    assert started(await late) == of(jobs(1, 2))
    assert (await late).lease_until == clock() + 90_000
    assert place.sql("SELECT count(*) FROM @worker WHERE id = 'w'") == [(1,)]
    # Its request number was written with the jobs, so a repeat finds them, and starts no others.
    await store.enqueue(jobs(3, 2))
    assert started(await claim(store, request=2, n=2)) == of(jobs(1, 2))
    await assert_clean(store)


@pytest.mark.parametrize("found", [True, False])
async def test_claim_of_a_worker_with_a_half_expired_lease_extends_it(
    store: PostgresStore, clock: FakeClock, found: bool
) -> None:
    assert (await claim(store, request=2)).lease_until == clock() + 30_000
    clock.advance(15_001)
    if found:
        await store.enqueue(jobs(1, 1))
    before = trips(store)[0]
    reply = await claim(store, request=3)
    assert len(reply.jobs) == found
    assert reply.lease_until == clock() + 30_000
    assert trips(store)[0] == before + 1
    await assert_clean(store)


async def test_claim_of_a_worker_with_an_expired_lease_first_takes_its_runs_away(
    store: PostgresStore, clock: FakeClock
) -> None:
    await store.enqueue(jobs(1, 1))
    (lost,) = (await claim(store, request=2)).jobs
    clock.advance(30_000)
    more = job(2)
    await store.enqueue([more])
    reply = await claim(store, request=3)
    assert started(reply) == [more.id]
    assert reply.lease_until == clock() + 30_000
    (verdict,) = await succeed(store, [(lost.id, lost.run)])
    assert verdict is Verdict.LOST
    view = await store.read(JobQuery(id=lost.id))
    assert view is not None
    assert (view.state, view.runs[0].outcome) == (State.SCHEDULED, "lost")
    await assert_clean(store)


async def test_first_claim_of_a_worker_is_exclusive_and_its_second_plain(
    store: PostgresStore,
) -> None:
    await store.enqueue(jobs(1, 2))
    before = trips(store)
    assert started(await claim(store, "v", request=1, n=1)) == [job(1).id]
    assert trips(store)[0] == before[0]
    before = trips(store)
    assert started(await claim(store, "v", request=2, n=1)) == [job(2).id]
    assert trips(store) == (before[0] + 1, before[1])
    await assert_clean(store)


async def test_worker_without_named_lanes_serves_the_one_it_claims_from(
    store: PostgresStore,
) -> None:
    await store.beat(BeatRequest(worker="other"))
    # No job is found, so no row is written for the worker.
    assert not (await claim(store, "other", request=1)).jobs
    await store.enqueue(jobs(1, 2))
    before = trips(store)
    assert len((await claim(store, "other", request=2, n=1)).jobs) == 1
    assert trips(store) == (before[0] + 1, before[1])
    lanes = {one.id: one.lanes for one in await store.read(WorkersQuery())}
    assert lanes == {"w": (LANE,), "other": (LANE,)}
    # Lanes that the worker has named are kept.
    await store.beat(BeatRequest(worker="other", lanes=("a", "b")))
    assert len((await claim(store, "other", request=3, n=1)).jobs) == 1
    lanes = {one.id: one.lanes for one in await store.read(WorkersQuery())}
    assert lanes["other"] == ("a", "b")


@pytest.mark.parametrize("gate", ["all", f"lane:{LANE}", "tenant:", "kind:noop"])
@pytest.mark.parametrize("opened", [True, False])
async def test_reopened_lane_is_plain_again_and_its_wait_is_counted(
    store: PostgresStore, clock: FakeClock, gate: str, *, opened: bool
) -> None:
    await store.enqueue(jobs(1, 2))
    (first,) = (await claim(store, request=2, n=1)).jobs
    until_at = None if opened else clock() + 5_000
    await define(store, CloseGate(name=gate, until_at=until_at))
    assert not (await claim(store, request=3)).jobs
    clock.advance(5_000)
    if opened:
        await define(store, OpenGate(name=gate))
    assert len((await claim(store, request=4)).jobs) == 1
    # The end of the closing is known, and jobs that arrive now have not waited through it.
    await store.enqueue(jobs(3, 2))
    store._plain._lanes[LANE].pause = 0
    before = trips(store)
    assert started(await claim(store, request=5, n=1)) == of(jobs(3, 1))
    assert trips(store) == (before[0] + 1, before[1])
    # A job that has waited through it, and returns to its place, makes the claim exclusive.
    outcome = Snoozed(first.id, first.run, until_at=first.due_at)
    await store.settle(SettleRequest(worker="w", outcomes=(outcome,)))
    before = trips(store)
    assert started(await claim(store, request=6)) == [first.id, job(4).id]
    assert trips(store)[0] == before[0] + 1
    for number, blocked_ms in ((1, 5_000), (2, 5_000), (3, 0), (4, 0)):
        view = await store.read(JobQuery(id=job(number).id))
        assert view is not None
        assert view.runs[-1].blocked_ms == blocked_ms
    await assert_clean(store)


async def test_lane_that_is_often_not_plain_is_tried_less_and_less(
    store: PostgresStore, clock: FakeClock
) -> None:
    await store.enqueue(jobs(1, 200))
    before = trips(store)[0]
    for request in range(2, 102):
        fire = job(1_000 + request, entry="daily", fired_at=clock(), due_at=clock() + 1)
        await store.enqueue([fire])
        clock.advance(1)
        assert len((await claim(store, request=request, n=1)).jobs) == 1
    # Each plain claim fails because a fire is due.
    assert trips(store)[0] - before <= 2 * (100 // LONGEST_PAUSE + 6)
    await assert_clean(store)


async def test_jobs_with_keyed_gates_cost_the_others_no_exclusive_step(
    store: PostgresStore,
) -> None:
    phone = Slots("phone:{phone}", 100)
    await define(store, DeclareGate(spec=phone))
    keyed = use_of(phone, phone="7")
    await store.enqueue([job(n, gates=(keyed,) if n % 10 == 0 else ()) for n in range(1, 41)])
    before = store._turns.session.link.trips
    for request in range(2, 42):
        assert len((await claim(store, request=request, n=1)).jobs) == 1
    # A plain claim fails at each of the four, and works again after it.
    assert store._turns.session.link.trips - before <= 4 * 6
    await assert_clean(store)


async def test_lane_of_many_flows_is_left_to_the_verb(place: Place, clock: FakeClock) -> None:
    store = place.open(clock)
    made = [job(n, tenant=f"t{n}") for n in range(2 * (MOST_FLOWS + 1))]
    await store.enqueue(made)
    assert started(await claim(store, request=1, n=MOST_FLOWS + 1)) == of(made[: MOST_FLOWS + 1])
    assert started(await claim(store, request=2)) == of(made[MOST_FLOWS + 1 :])
    assert trips(store)[0] == 0


async def test_counts_of_plain_claims_are_folded_without_a_sweep(
    store: PostgresStore, place: Place
) -> None:
    await store.enqueue(jobs(1, 400))
    for request in range(2, 402):
        assert len((await claim(store, request=request, n=1)).jobs) == 1
    (rows,) = place.sql("SELECT count(*) FROM @delta")
    assert rows[0] < 300
    assert await count(store, "running") == 400
    await assert_clean(store)


async def test_sweep_folds_counts_so_that_no_claim_has_to(
    store: PostgresStore, place: Place
) -> None:
    await store.enqueue(jobs(1, 400))
    for first in range(2, 402, 100):
        before = store._turns.session.link.trips
        for request in range(first, first + 100):
            assert len((await claim(store, request=request, n=1)).jobs) == 1
        assert store._turns.session.link.trips == before
        await store.sweep(500)
        assert place.sql("SELECT count(*) FROM @delta") == [(0,)]
    assert await count(store, "running") == 400
    await assert_clean(store)
