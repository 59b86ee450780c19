"""Several connections learn facts in any order; no order of replies makes the store suspect."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import psycopg
import pytest

from headway.contract.claims import BeatRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.outcomes import Failed, SettleRequest
from headway.contract.store import Store
from headway.contract.views import JobQuery, TrailQuery, WhyQuery
from headway.core.errors import OutcomeUnknown, StoreChanged, StoreUnavailable
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.instant import format_instant
from headway.stores.postgres.link import BoundStatement, Link, open_link
from headway.stores.postgres.numbers import SUSPECT
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.statement import StepKind
from headway.stores.postgres.step_cache import StepCache
from headway.stores.postgres.steps import Steps
from headway.stores.postgres.store import PostgresStore
from headway.stores.sql.statement import Rows
from headway.testing.clock import FakeClock
from headway.testing.jobs import use_of
from tests.plain_jobs import LANE, claim, count, job, jobs, succeed
from tests.postgres.places import Place
from tests.servers.postgres import fresh_database

LIMIT = 120
"""Time limit in seconds for events that must happen."""


class Held:
    """Holds back the next reply on a connection, until it is let through.

    Args:
        steps: the connection.
        before: hold back the request instead.
    """

    def __init__(self, steps: Steps, *, before: bool = False) -> None:
        self._before = before
        self.came = threading.Event()
        self.through = threading.Event()
        link = steps.session.link
        self._run: Callable[[Sequence[BoundStatement]], list[Rows]] = link.run
        self._link = link
        link.run = self._hold  # pyright: ignore[reportAttributeAccessIssue]

    def _hold(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        self._link.run = self._run  # pyright: ignore[reportAttributeAccessIssue]
        rows = [] if self._before else self._run(batch)
        self.came.set()
        assert self.through.wait(LIMIT)
        return self._run(batch) if self._before else rows

    async def until_it_came(self) -> None:
        assert await asyncio.to_thread(self.came.wait, LIMIT)


def prefetch_nothing(store: PostgresStore) -> None:
    """Let the next claim take the lock at once, and read its jobs only after that."""
    store._shared.learn(StepKind(("claim", (LANE,), True)), StepCache())


def end_all_backends(place: Place) -> int:
    rows = place.sql(
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    return rows[0][0]


async def fail(store: PostgresStore, one: Any) -> None:
    """Settle a failure, which takes the lock on the connection of settlements."""
    outcome = Failed(one.id, one.run, error="no", after_ms=0)
    await store.settle(SettleRequest(worker="w", outcomes=(outcome,)))


async def test_reply_read_before_the_backends_ended_and_handled_later_is_no_proof(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    line = Slots("line", 1)
    await store.define(DefineRequest(items=(DeclareGate(spec=line),), author="ann"))
    await store.enqueue(jobs(0, 2, gates=(use_of(line),)))
    (one,) = (await claim(store)).jobs
    clock.advance(10)
    # One connection has read its facts under the lock; its process is paused before handling them.
    held = Held(store._turns)
    slow = asyncio.ensure_future(store.lead("chores", "here", 60_000))
    await held.until_it_came()
    assert end_all_backends(place) >= 2
    # A success that frees a gate takes the lock meanwhile, on the connection of settlements, and
    # time advances there.
    clock.advance(5_000)
    await succeed(store, [(one.id, one.run)])
    assert not slow.done()
    held.through.set()
    await asyncio.gather(slow, return_exceptions=True)
    assert await store.suspicion() is None
    clock.advance(1_000)
    assert len((await claim(store, request=2)).jobs) == 1
    assert await place.open(clock).suspicion() is None


@pytest.mark.slow
async def test_ended_backends_under_many_calls_never_make_the_store_suspect(place: Place) -> None:
    store = place.open()
    raised: list[BaseException] = []
    stop = asyncio.Event()

    async def again(call: Callable[[int], Coroutine[Any, Any, object]]) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                await call(number)
            except (OutcomeUnknown, StoreUnavailable):
                continue
            except Exception as error:  # noqa: BLE001  (the test reports any error)
                raised.append(error)
                return

    async def work(number: int) -> None:
        await store.enqueue(jobs(number * 10, 10))
        reply = await claim(store, request=number, n=8)
        if reply.jobs:
            await fail(store, reply.jobs[0])
            await succeed(store, [(one.id, one.run) for one in reply.jobs[1:]])

    callers = [
        again(work),
        again(lambda n: store.lead("chores", "here", 1_000 + n)),
        again(lambda n: store.beat(BeatRequest(worker=f"b{n % 7}", running=(), request=0))),
        again(lambda _: store.sweep(100)),
    ]
    tasks = [asyncio.ensure_future(one) for one in callers]
    ended = 0
    for _ in range(12):
        ended += await asyncio.to_thread(end_all_backends, place)
        await store.enqueue([job(1)])
    stop.set()
    await asyncio.wait_for(asyncio.gather(*tasks), LIMIT)
    assert ended >= 12
    assert raised == []
    assert await store.suspicion() is None


async def test_settlement_of_plain_jobs_detects_a_restored_store(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 2))
    first, second = (await claim(store)).jobs
    await succeed(store, [(first.id, first.run)])
    assert await store.suspicion() is None
    # As in a backup that lacks the last ten seconds.
    place.sql("UPDATE @number SET n = n - 10000 WHERE key = -1")
    await succeed(store, [(second.id, second.run)])
    assert place.sql("SELECT n FROM @number WHERE key = -13") == [(1,)]


async def test_enqueue_on_an_open_connection_detects_a_restored_store(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    for number in (1, 2):
        clock.advance(10_000)
        await store.enqueue([job(number)])
    # As if a pooler had moved the connection to a server that lacks the last ten seconds.
    place.sql("UPDATE @number SET n = n - 10000 WHERE key = -1")
    clock.advance(10_000)
    await store.enqueue([job(3)])
    assert place.sql("SELECT n FROM @number WHERE key = -13") == [(1,)]
    # Once it is known, enqueues take one trip again.
    link = store._enqueues._steps.session.link
    trips = link.trips
    for number in (4, 5):
        await store.enqueue([job(number)])
    assert link.trips == trips + 2


async def test_high_water_mark_raised_by_an_enqueue_is_not_lowered_by_an_exclusive_step(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    await store.enqueue([job(1)])
    await store.lead("chores", "here", 1_000)
    clock.advance(10)
    held = Held(store._turns)
    slow = asyncio.ensure_future(store.lead("chores", "here", 60_000))
    await held.until_it_came()
    clock.advance(60_000)
    await other.enqueue([job(2)])
    held.through.set()
    await slow
    assert place.sql("SELECT n FROM @number WHERE key = -1") == [(clock(),)]


async def test_enqueue_by_a_process_with_a_slow_clock_uses_the_stores_time(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    for number in (1, 2):
        # The second enqueue assumes what the first one has read.
        await store.enqueue([job(number)])
    began_at = clock()
    clock.advance(60_000)
    await other.lead("chores", "here", 1_000)
    clock.jump_to(began_at)
    await store.enqueue([job(3)])
    view = await store.read(JobQuery(id=job(3).id))
    assert view is not None
    assert view.created_at == view.due_at == began_at + 60_000


async def test_enqueue_after_another_process_reset_the_stores_time_uses_that_time(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    began_at = clock()
    clock.advance(60_000)
    for number in (1, 2):
        # The second takes for granted what the first has read.
        await store.enqueue([job(number)])
    clock.jump_to(began_at)
    await other.reset_clock("ann", "it was ahead")
    await store.enqueue([job(3)])
    view = await store.read(JobQuery(id=job(3).id))
    assert view is not None
    assert view.created_at == view.due_at == began_at


async def test_plain_claim_in_a_store_found_changed_by_another_process_is_refused(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 9))
    for request in (1, 2):
        assert len((await claim(store, request=request, n=1)).jobs) == 1
    place.sql("INSERT INTO @number VALUES (%s, 1)", SUSPECT)
    with pytest.raises(StoreChanged):
        await claim(store, request=3, n=1)


@pytest.mark.parametrize("gated", [False, True])
async def test_job_enqueued_during_a_claim_is_not_claimed_before_its_creation(
    place: Place, clock: FakeClock, gated: bool
) -> None:
    store, other = place.open(clock), place.open(clock)
    line = Slots("line", 1)
    items = (DeclareGate(spec=line),)
    await other.define(DefineRequest(items=items, author="ann", reason="a test"))
    await store.lead("chores", "here", 1_000)
    clock.advance(10)
    prefetch_nothing(store)
    held = Held(store._turns)
    slow = asyncio.ensure_future(claim(store))
    await held.until_it_came()
    began_at = clock()
    clock.advance(500)
    await other.enqueue([job(1, gates=(use_of(line),) if gated else ())])
    held.through.set()
    reply = await slow
    assert (reply.now, [one.id for one in reply.jobs]) == (began_at, [job(1).id])
    view = await store.read(JobQuery(id=job(1).id))
    assert view is not None
    assert view.created_at == view.runs[0].claimed_at == began_at + 500


async def test_rate_counts_a_job_enqueued_during_a_claim_from_its_recorded_claim(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    pace = Rate("pace", 1, per="1s")
    await other.define(DefineRequest(items=(DeclareGate(spec=pace),), author="ann"))
    await store.lead("chores", "here", 1_000)
    prefetch_nothing(store)
    held = Held(store._turns)
    slow = asyncio.ensure_future(claim(store))
    await held.until_it_came()
    clock.advance(500)
    await other.enqueue([job(n, gates=(use_of(pace),)) for n in (1, 2)])
    held.through.set()
    assert [one.id for one in (await slow).jobs] == [job(1).id]
    clock.advance(999)
    assert (await claim(store, request=2)).jobs == []
    clock.advance(1)
    assert [one.id for one in (await claim(store, request=3)).jobs] == [job(2).id]


async def test_beat_that_read_its_worker_before_a_sweep_took_jobs_extends_no_lease(
    place: Place, clock: FakeClock
) -> None:
    store, other = place.open(clock), place.open(clock)
    await store.enqueue(jobs(0, 2))
    runs = tuple((one.id, one.run) for one in (await claim(store)).jobs)
    beat = BeatRequest(worker="w", running=runs)
    # The next beat prefetches what this one read.
    clock.jump_to((await store.beat(beat)).lease_until - 1)
    held = Held(store._beats._steps)
    slow = asyncio.ensure_future(store.beat(beat))
    await held.until_it_came()
    clock.advance(1)
    assert (await other.sweep(1)).lost == 1
    held.through.set()
    assert (await slow).lost == runs
    assert await count(store, "running") == 0


def _leads_to(steps: Steps, link: Link) -> None:
    steps.session.drop()
    steps.session._link = link


async def test_connection_to_a_replaced_server_proves_nothing(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 2))
    await store.lead("chores", "here", 1)
    place.back_up()
    clock.advance(60_000)
    await store.lead("chores", "here", 2)
    with fresh_database(place.database) as elsewhere:
        # The older state is in another database, which only an old connection reaches.
        old = Place(elsewhere)
        old.namespace = place.namespace
        await old.open(clock).close()
        names = old.tables()
        for name in names:
            kept = place.sql(f"SELECT * FROM {place.namespace}_kept.{name}")  # noqa: S608  (our own tables)
            old.sql(f"TRUNCATE @{name}")
            with psycopg.connect(elsewhere) as db:
                for row in kept:
                    marks = ", ".join(["%s"] * len(row))
                    into = f"{place.namespace}.{name}"
                    db.execute(f"INSERT INTO {into} OVERRIDING SYSTEM VALUE VALUES ({marks})", row)  # noqa: S608  # pyright: ignore[reportArgumentType]
        _leads_to(store._turns, open_link(parse_url(old.url)))
        assert len((await claim(store)).jobs) == 2
        assert await store.suspicion() is None
        assert old.sql("SELECT n FROM @number WHERE key = -13 AND n <> 0") == []


async def test_claim_that_is_refused_counts_the_jobs_that_have_become_due(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue([*jobs(0, 2), *jobs(2, 3, due_at=clock() + 5_000)])
    await store.lead("chores", "here", 1)
    place.back_up()
    clock.advance(10_000)
    await store.lead("chores", "here", 2)
    place.restore()
    with pytest.raises(StoreChanged):
        await claim(store)
    queued = [await count(store, state) for state in ("scheduled", "waiting")]
    listed = place.sql("SELECT count(*) FILTER (WHERE state = 0), count(*) FROM @job")
    assert [(queued[0], sum(queued))] == listed


async def test_mark_says_who_found_what_when_and_every_process_repeats_it(
    place: Place, clock: FakeClock
) -> None:
    store = place.open(clock)
    await store.enqueue(jobs(0, 2))
    await store.lead("chores", "here", 1)
    place.back_up()
    kept_at = clock()
    clock.advance(10_000)
    await store.lead("chores", "here", 2)
    place.restore()
    with pytest.raises(StoreChanged) as refused:
        await claim(store)
    other: Store = place.open(clock)
    assert isinstance(other, PostgresStore)
    found = await other.suspicion()
    assert found is not None
    assert found.at == clock()
    assert found.by.startswith("process ")
    assert format_instant(kept_at) in found.reason
    assert format_instant(clock()) in found.reason
    assert refused.value.message == found.message
    assert "--new-epoch" in refused.value.hint
    why = await other.read(WhyQuery(id=job(0).id))
    assert why is not None
    assert found.reason in why.sentence
    assert "--new-epoch" in why.sentence
    assert [row.verb for row in (await other.read(TrailQuery())).rows] == ["store changed"]
