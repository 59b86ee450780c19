"""Concurrent changes during a plain claim, or before this process knows of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest
from psycopg.errors import OperationalError

from headway import Slots
from headway.contract.claims import BeatRequest, ClaimRequest
from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DefineRequest,
    Item,
    LaneSpec,
    OpenGate,
    SetGate,
    SetLane,
)
from headway.contract.outcomes import SettleRequest, Snoozed, Verdict
from headway.contract.views import JobQuery
from headway.core.errors import StoreChanged
from headway.stores.postgres import low_water_marks
from headway.stores.postgres.link import BoundStatement, Link
from headway.stores.postgres.numbers import SUSPECT
from headway.stores.postgres.plain_claims import PlainClaims
from headway.stores.postgres.store import PostgresStore
from headway.stores.sql.statement import HIGH_WATER, IDENTITY, Rows
from headway.testing.clock import FakeClock
from headway.testing.jobs import use_of
from tests.plain_jobs import LANE, assert_clean, claim, count, job, jobs, succeed
from tests.postgres.places import Place
from tests.postgres.test_out_of_order import LIMIT, Held
from tests.postgres.test_plain_claims import learn, of, started, trips
from tests.servers.postgres import until_it_waits


async def define(store: PostgresStore, *items: Item) -> None:
    await store.define(DefineRequest(items=items, author="ann", reason="a test"))


@pytest.fixture
async def store(place: Place, clock: FakeClock) -> PostgresStore:
    """A store whose process knows that the lane is plain; request 1 of worker w is used."""
    opened = place.open(clock)
    await learn(opened, 9_000)
    return opened


@pytest.fixture
async def other(store: PostgresStore, place: Place, clock: FakeClock) -> PostgresStore:
    """A store of another process."""
    del store
    return place.open(clock)


class Paused:
    """Pauses the thread of plain claims once, before one of its methods.

    Args:
        store: store whose plain claims are paused.
        monkeypatch: fixture of the test.
        method: name of the method.
    """

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.came = threading.Event()
        self.through = threading.Event()
        plain: Callable[..., Any] = getattr(PlainClaims, method)

        def paused(claims: PlainClaims, *given: Any) -> Any:
            if claims is store._plain and not self.came.is_set():
                self.came.set()
                assert self.through.wait(LIMIT)
            return plain(claims, *given)

        monkeypatch.setattr(PlainClaims, method, paused)

    async def until_it_came(self) -> None:
        assert await asyncio.to_thread(self.came.wait, LIMIT)


@pytest.mark.parametrize("gate", ["all", f"lane:{LANE}", "tenant:acme", "kind:noop"])
async def test_closing_by_another_process_stops_the_next_plain_claim(
    store: PostgresStore, other: PostgresStore, clock: FakeClock, gate: str
) -> None:
    await store.enqueue([job(8_000, tenant="acme")])
    for request in (2, 3):
        # The first of these makes it known with its tenant, and the second is a plain claim.
        await store.enqueue([job(8_000 + request, tenant="acme")])
        assert (await claim(store, request=request)).jobs
    made = jobs(1, 3, tenant="acme")
    await store.enqueue(made)
    await define(other, CloseGate(name=gate, until_at=clock() + 5_000))
    before = trips(store)[0]
    assert not (await claim(store, request=4)).jobs
    assert trips(store)[0] == before + 1
    clock.advance(5_000)
    assert started(await claim(store, request=5)) == of(made)
    await assert_clean(store)


async def test_plain_claim_waits_for_a_closing_that_is_being_committed(
    store: PostgresStore, other: PostgresStore, place: Place
) -> None:
    await store.enqueue(jobs(1, 3))
    slow = Held(other._turns)
    closing = asyncio.ensure_future(define(other, CloseGate(name=f"lane:{LANE}")))
    await slow.until_it_came()
    late = asyncio.ensure_future(claim(store, request=2))
    await until_it_waits(place.database, late)
    slow.through.set()
    await closing
    assert not (await late).jobs
    assert await count(store, "running") == 0
    await assert_clean(store)


@pytest.mark.parametrize("gate", ["all", f"lane:{LANE}", "tenant:", "kind:noop"])
async def test_plain_claims_respect_a_capacity_set_by_another_process(
    store: PostgresStore, other: PostgresStore, gate: str
) -> None:
    await store.enqueue(jobs(1, 5))
    await define(other, SetGate(name=gate, capacity=2))
    reply = await claim(store, request=2)
    assert [one.gated for one in reply.jobs] == [True, True]
    assert not (await claim(store, request=3)).jobs
    await assert_clean(store)


@pytest.mark.parametrize("spec", [{"concurrency": 1}, {"fair": "tenant"}])
async def test_lane_made_fair_or_narrow_by_another_process_is_no_longer_plain(
    store: PostgresStore, other: PostgresStore, spec: dict[str, Any]
) -> None:
    await store.enqueue(jobs(1, 3))
    await define(other, SetLane(spec=LaneSpec(name=LANE, **spec)))
    reply = await claim(store, request=2)
    assert len(reply.jobs) == (1 if "concurrency" in spec else 3)
    assert not store._plain.may_claim(ClaimRequest(worker="w", request=3, lanes=((LANE, 1),)))
    await assert_clean(store)


async def test_lane_becomes_narrow_between_the_choice_of_path_and_the_claim(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue(jobs(1, 3))
    pause = Paused(store, monkeypatch, "_claim")
    late = asyncio.ensure_future(claim(store, request=2))
    await pause.until_it_came()
    await define(store, SetLane(spec=LaneSpec(name=LANE, concurrency=1)))
    # By now this process knows the new number of the lanes, but not the new spec of this one.
    lanes = (("other", 1),)
    await store.claim(ClaimRequest(worker="x", request=1, lanes=lanes))
    pause.through.set()
    assert len((await late).jobs) == 1
    await assert_clean(store)


async def test_gates_declared_by_another_process_apply_in_a_formerly_plain_lane(
    store: PostgresStore, other: PostgresStore
) -> None:
    seats, phone = Slots("seats", 1), Slots("phone:{phone}", 1)
    await define(other, DeclareGate(spec=seats), DeclareGate(spec=phone))
    made = [
        job(1),
        *(job(n, gates=(use_of(seats),)) for n in (2, 3)),
        *(job(n, gates=(use_of(phone, phone="7"),)) for n in (4, 5)),
    ]
    await other.enqueue(made)
    reply = await claim(store, request=2)
    assert started(reply) == [made[n].id for n in (0, 1, 3)]
    assert [one.gated for one in reply.jobs] == [False, True, True]
    assert not (await claim(store, request=3)).jobs
    await assert_clean(store)


@pytest.mark.parametrize("marked", [False, True])
async def test_plain_claim_starts_nothing_in_a_restored_store(
    store: PostgresStore, other: PostgresStore, place: Place, clock: FakeClock, *, marked: bool
) -> None:
    await store.enqueue(jobs(1, 3))
    assert started(await claim(store, request=2, n=1)) == of(jobs(1, 1))
    if marked:
        # Another process has detected it, and this one sees only the mark.
        place.sql("INSERT INTO @number VALUES (%s, 1)", SUSPECT)
    else:
        clock.advance(5_000)
        assert await store.lead("chores", "here", 1_000)
        # Like a failover to an older state that leaves the connections open.
        place.sql("UPDATE @number SET n = n - 4000 WHERE key = %s", HIGH_WATER)
    before = trips(store)[0]
    with pytest.raises(StoreChanged):
        await claim(store, request=3)
    assert trips(store)[0] == before + 1
    assert await count(other, "running") == 1


async def test_success_in_a_restored_store_is_settled_by_a_step_that_detects_it(
    store: PostgresStore, place: Place, clock: FakeClock
) -> None:
    await store.enqueue(jobs(1, 2))
    first, second = (await claim(store, request=2)).jobs
    assert await succeed(store, [(first.id, first.run)]) == [Verdict.DONE]
    clock.advance(5_000)
    assert await store.lead("chores", "here", 1_000)
    place.sql("UPDATE @number SET n = n - 4000 WHERE key = %s", HIGH_WATER)
    assert await succeed(store, [(second.id, second.run)]) == [Verdict.DONE]
    assert place.sql("SELECT n FROM @number WHERE key = %s", SUSPECT) == [(1,)]


async def test_plain_claim_starts_nothing_in_a_store_without_an_identity(
    store: PostgresStore, place: Place
) -> None:
    await store.enqueue(jobs(1, 3))
    place.sql("DELETE FROM @number WHERE key = %s", IDENTITY)
    before = trips(store)[0]
    with pytest.raises(StoreChanged):
        await claim(store, request=2)
    assert trips(store)[0] == before + 1


async def test_plain_claim_is_not_made_once_its_basis_is_forgotten(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue(jobs(1, 3))
    pause = Paused(store, monkeypatch, "_claim")
    late = asyncio.ensure_future(claim(store, request=2, n=1))
    await pause.until_it_came()
    store._shared.forget()
    # Another claim learns everything needed here, possibly from another store.
    lanes = ((LANE, 1), ("other", 1))
    assert (await store.claim(ClaimRequest(worker="x", request=1, lanes=lanes))).jobs
    before = trips(store)[0]
    pause.through.set()
    assert len((await late).jobs) == 1
    assert trips(store)[0] == before
    await assert_clean(store)


async def test_plain_claim_whose_connection_ends_while_it_waits_starts_each_job_once(
    store: PostgresStore, place: Place
) -> None:
    made = jobs(1, 4)
    await store.enqueue(made)
    assert started(await claim(store, request=2, n=1)) == of(made[:1])
    backend = store._plain.steps.session.link.connection.info.backend_pid
    with psycopg.connect(place.database) as holder:
        row = f"SELECT FROM {place.namespace}.worker WHERE id = 'w' FOR UPDATE"
        holder.execute(row.encode())
        late = asyncio.ensure_future(claim(store, request=3, n=2))
        await until_it_waits(place.database, late)
        place.sql("SELECT pg_terminate_backend(%s, 10000)", backend)
    assert started(await late) == of(made[1:3])
    assert started(await claim(store, request=4, n=2)) == of(made[3:])
    assert await count(store, "running") == 4
    assert [one.attempt for one in (await claim(store, request=4)).jobs] == [1]
    await assert_clean(store)


class Stray:
    """Holds the next plain claim back, as if its connection broke, and sends it later.

    Args:
        store: store that makes the claim.
    """

    def __init__(self, store: PostgresStore) -> None:
        link: Link = store._plain.steps.session.link
        self._run, self._close = link.run, link.close
        self._batch: Sequence[BoundStatement] = ()
        link.run = self._keep  # pyright: ignore[reportAttributeAccessIssue]
        link.close = lambda: None  # pyright: ignore[reportAttributeAccessIssue]

    def _keep(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        self._batch = batch
        message = "the server said nothing"
        raise OperationalError(message)

    def arrive(self) -> list[Rows]:
        assert self._batch
        try:
            return self._run(self._batch)
        finally:
            self._close()


async def test_plain_claim_that_arrives_after_its_repeat_starts_nothing(
    store: PostgresStore,
) -> None:
    made = jobs(1, 4)
    await store.enqueue(made)
    assert started(await claim(store, request=2, n=1)) == of(made[:1])
    stray = Stray(store)
    assert started(await claim(store, request=3, n=1)) == of(made[1:2])
    with pytest.raises(psycopg.errors.DivisionByZero):
        stray.arrive()
    assert await count(store, "running") == 2
    await assert_clean(store)


async def test_unclaimed_starts_of_a_plain_claim_are_released_by_a_beat(
    store: PostgresStore, place: Place
) -> None:
    await store.enqueue(jobs(1, 1))
    (one,) = (await claim(store, request=2)).jobs
    stray = Stray(store)
    assert not (await claim(store, request=3)).jobs
    await store.enqueue(jobs(2, 1))
    assert len(stray.arrive()[-2]) == 1
    running = ((one.id, one.run),)
    await store.beat(BeatRequest(worker="w", running=running, request=3))
    assert await count(store, "running") == 1
    (again,) = (await claim(store, request=4)).jobs
    assert (again.id, again.run, again.attempt) == (job(2).id, 2, 1)
    view = await store.read(JobQuery(id=job(2).id))
    assert view is not None
    assert [run.outcome for run in view.runs] == ["unused", ""]
    await assert_clean(store)


@pytest.mark.parametrize("n", [1, 2])
async def test_due_jobs_that_another_claim_changes_meanwhile_are_left_to_it(
    store: PostgresStore, other: PostgresStore, place: Place, clock: FakeClock, n: int
) -> None:
    await learn(other, 9_001, "v")
    due = [job(number, due_at=clock() + number) for number in range(1, 5)]
    await store.enqueue(due)
    clock.advance(5)
    before = trips(store), trips(other)
    with psycopg.connect(place.database) as holder:
        row = f"SELECT FROM {place.namespace}.worker WHERE id = 'w' FOR UPDATE"
        holder.execute(row.encode())
        # It has read all due jobs and started the first.
        late = asyncio.ensure_future(claim(store, request=2, n=n))
        await until_it_waits(place.database, late)
        assert started(await claim(other, "v", request=2, n=1)) == of(due[1:2])
        assert (await count(store, "scheduled"), await count(store, "waiting")) == (1, 2)
    assert started(await late) == of(due[:1])
    for one, (ahead, exclusive) in zip((store, other), before, strict=True):
        assert trips(one) == (ahead + 1, exclusive)
    assert started(await claim(store, request=3)) == of(due[2:])
    assert await count(store, "running") == 4
    await assert_clean(store)


# Marks: jobs that other threads of the process put back while a plain claim reads behind them


async def snooze(store: PostgresStore, clock: FakeClock, one: tuple[str, int]) -> None:
    """Put a running job back to its place in the queue."""
    outcome = Snoozed(*one, until_at=clock() - 1)
    await store.settle(SettleRequest(worker="w", outcomes=(outcome,)))


@pytest.mark.parametrize("before", ["_check_statement", "_rise"])
async def test_job_requeued_during_a_plain_claim_is_not_skipped(
    store: PostgresStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.setattr(low_water_marks, "LEAST", 1)
    made = jobs(1, 12)
    await store.enqueue(made)
    first = (await claim(store, request=2, n=2)).jobs[0]
    await claim(store, request=3, n=2)
    pause = Paused(store, monkeypatch, before)
    late = asyncio.ensure_future(claim(store, request=4, n=2))
    await pause.until_it_came()
    await snooze(store, clock, (first.id, first.run))
    pause.through.set()
    found = [started(await late), started(await claim(store, request=5, n=2))]
    # Found by the claim that reads after it was put back.
    assert first.id in found[0 if before == "_check_statement" else 1]
    await assert_clean(store)


async def test_workers_of_two_processes_start_each_job_once_and_none_behind_a_closing(
    place: Place, clock: FakeClock
) -> None:
    stores = [place.open(clock) for _ in range(2)]
    for number, one in enumerate(stores):
        await learn(one, 9_000 + number, f"w{number}")
    made = jobs(1, 120)
    await stores[0].enqueue(made)
    found: list[str] = []
    requests = [1, 1]
    some, shut = asyncio.Event(), asyncio.Event()

    async def work(number: int) -> None:
        while True:
            closed = shut.is_set()
            requests[number] += 1
            reply = await claim(stores[number], f"w{number}", requests[number], n=3)
            assert not (closed and reply.jobs)
            found.extend(started(reply))
            runs = [(one.id, one.run) for one in reply.jobs]
            if runs:
                some.set()
                await succeed(stores[number], runs, f"w{number}")
            elif closed or not await count(stores[number], "waiting"):
                return

    for _ in range(3):
        some.clear()
        working = asyncio.gather(*(work(number) for number in range(2)))
        await some.wait()
        await define(stores[1], CloseGate(name="all"))
        shut.set()
        await working
        await define(stores[0], OpenGate(name="all"))
        shut.clear()
        for one in stores:
            one._plain._lanes[LANE].pause = 0
    await asyncio.gather(*(work(number) for number in range(2)))
    assert sorted(found) == sorted(of(made))
    await assert_clean(stores[0])
