"""Failures between the store and its server: nothing acknowledged is lost, and work continues."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TypeVar, cast

import psycopg
import pytest

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.contract.store import Sent
from headway.contract.views import AuditQuery, StatsQuery
from headway.core.errors import OutcomeUnknown, StoreError, StoreUnavailable
from headway.core.job import NewJob, derived_id
from headway.stores.postgres import call_queue
from headway.stores.postgres import store as postgres_store
from headway.stores.postgres.call_queue import AnyCall, Call, CallQueue, serve
from headway.stores.postgres.enqueueing import Enqueues
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.shared import Done
from headway.stores.postgres.steps import Steps
from headway.stores.postgres.store import PostgresStore
from headway.testing.clock import FakeClock
from tests.postgres.places import Place
from tests.servers.fixtures import made
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database, until_it_waits
from tests.servers.proxy import Proxy

Answer = TypeVar("Answer")

LANE = "main"


@pytest.fixture
def url(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as database:
        yield database


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(url) as through:
        yield through


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A store whose connections have all been used."""
    opened = PostgresStore(parse_url(proxy.url))
    await opened.enqueue([job(0), job(1)])
    reply = await claim(opened, 1, n=1)
    await succeed(opened, reply)
    await opened.read(StatsQuery())
    yield opened
    await opened.close()


def job(number: int) -> NewJob:
    return NewJob(id=derived_id("breaking", number), kind="noop", args=b'{"mark":"m%d"}' % number)


PLAIN = ((LANE, 1),)
BOTH = ((LANE, 1), ("other", 1))
"""A claim of several lanes takes the lock."""


async def claim(
    store: PostgresStore, request: int, n: int = 100, lanes: tuple[tuple[str, int], ...] = BOTH
) -> ClaimReply:
    return await store.claim(ClaimRequest(worker="w", request=request, lanes=lanes, n=n, free=n))


async def succeed(store: PostgresStore, reply: ClaimReply) -> None:
    outcomes = tuple(Succeeded(one.id, one.run) for one in reply.jobs)
    await store.settle(SettleRequest(worker="w", outcomes=outcomes))


async def counts(store: PostgresStore) -> dict[str, int]:
    found = (await store.read(StatsQuery())).counts
    return {str(state): n for state, n in found.items() if n}


async def again(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Repeat a call that a broken connection refused, as a worker does. Each breaks only once."""
    for _ in range(4):
        try:
            return await call()
        except (StoreUnavailable, OutcomeUnknown):
            continue
    return await call()


async def test_lost_enqueue_reply_is_unknown_and_the_repeat_finds_the_job(
    store: PostgresStore, proxy: Proxy
):
    proxy.lose_reply_to(b'"m7"')
    with pytest.raises(OutcomeUnknown):
        await store.enqueue([job(7)])
    assert proxy.cut.is_set()
    (repeated,) = await store.enqueue([job(7)])
    assert (repeated.id, repeated.created) == (job(7).id, False)
    assert await counts(store) == {"waiting": 2, "succeeded": 1}
    assert (await store.read(AuditQuery())).differences == ()


async def losing_each_reply(proxy: Proxy, call: Callable[[], Awaitable[object]]) -> list[type]:
    """Call until no reply is lost; lose one reply each time: the first, the second, and so on.

    Returns:
        The type of the error raised each time.
    """
    raised: list[type] = []
    while len(raised) < 12:
        left = count(-len(raised))
        proxy.lose_reply_to(lambda _sent: next(left) == 0)  # noqa: B023  (used within this round)
        try:
            await call()
        except (StoreUnavailable, OutcomeUnknown) as error:
            raised.append(type(error))
            continue
        if not proxy.cut.is_set():
            break
        raised.append(type(None))
    proxy.resume()
    return raised


async def test_claim_with_any_lost_reply_is_returned_again(store: PostgresStore, proxy: Proxy):
    raised = await losing_each_reply(proxy, lambda: claim(store, 2))
    assert OutcomeUnknown in raised
    assert [one.id for one in (await claim(store, 2)).jobs] == [job(1).id]
    assert await counts(store) == {"running": 1, "succeeded": 1}
    assert (await store.read(AuditQuery())).differences == ()


async def test_plain_claim_with_any_lost_reply_is_found_by_the_claim_itself(
    store: PostgresStore, proxy: Proxy
) -> None:
    await succeed(store, await claim(store, 2, lanes=PLAIN))
    for request, numbers in ((3, (50, 51)), (4, (52, 53))):
        await store.enqueue([job(number) for number in numbers])
        raised = await losing_each_reply(proxy, lambda: claim(store, request, lanes=PLAIN))  # noqa: B023  (used within this round)
        assert type(None) in raised
        again = await claim(store, request, lanes=PLAIN)
        assert [one.id for one in again.jobs] == [job(number).id for number in numbers]
    assert (await counts(store))["running"] == 4
    assert (await store.read(AuditQuery())).differences == ()


async def test_settlement_with_any_lost_reply_settles_once(store: PostgresStore, proxy: Proxy):
    reply = await claim(store, 2)
    raised = await losing_each_reply(proxy, lambda: succeed(store, reply))
    assert OutcomeUnknown in raised
    assert await counts(store) == {"succeeded": 2}
    assert (await store.read(StatsQuery())).totals.get("succeeded") == 2
    assert (await store.read(AuditQuery())).differences == ()


async def test_enqueue_with_any_lost_reply_creates_the_job_once(store: PostgresStore, proxy: Proxy):
    raised = await losing_each_reply(proxy, lambda: store.enqueue([job(7), job(8)]))
    assert OutcomeUnknown in raised
    assert [one.created for one in await store.enqueue([job(7), job(8)])] == [False, False]
    assert await counts(store) == {"waiting": 3, "succeeded": 1}
    assert (await store.read(AuditQuery())).differences == ()


async def test_replies_cut_anywhere_lose_and_duplicate_nothing(store: PostgresStore, proxy: Proxy):
    for number, size in enumerate((1, 10, 100, 300), 2):
        proxy.cut_after(size)
        await again(lambda: store.enqueue([job(number)]))  # noqa: B023  (awaited within the loop)
        proxy.cut_after(size)
        reply = await again(lambda: claim(store, number))  # noqa: B023  (awaited within the loop)
        proxy.cut_after(size)
        await again(lambda: succeed(store, reply))  # noqa: B023  (awaited within the loop)
        proxy.resume()
    assert await counts(store) == {"succeeded": 6}
    assert (await store.read(AuditQuery())).differences == ()


async def test_reply_with_a_lanes_number_may_be_lost(store: PostgresStore, proxy: Proxy):
    """Values that repeat in many rows are read on a separate connection; that can be retried."""
    proxy.lose_reply_to(b"fresh lane")
    fresh = NewJob(id=derived_id("breaking", 90), kind="noop", lane="fresh lane")
    assert (await store.enqueue([fresh]))[0].created
    assert proxy.cut.is_set()
    proxy.refuse()
    other = NewJob(id=derived_id("breaking", 91), kind="noop", lane="another lane")
    with pytest.raises(StoreUnavailable):
        await store.enqueue([other])
    proxy.resume()
    assert (await again(lambda: store.enqueue([other])))[0].created


async def test_reset_of_all_connections_costs_each_at_most_one_call(
    store: PostgresStore, proxy: Proxy
):
    for round_ in range(3):
        proxy.reset()
        await again(lambda: store.enqueue([job(10 + round_)]))  # noqa: B023  (awaited within the loop)
        reply = await again(lambda: claim(store, 2 + round_))  # noqa: B023  (awaited within the loop)
        assert reply.jobs
        await again(lambda: succeed(store, reply))  # noqa: B023  (awaited within the loop)
    assert await again(lambda: counts(store)) == {"succeeded": 5}


async def test_killed_backends_are_replaced(store: PostgresStore, url: str):
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await again(lambda: store.enqueue([job(10)]))
    reply = await again(lambda: claim(store, 2))
    assert len(reply.jobs) == 2
    await again(lambda: succeed(store, reply))
    assert await again(lambda: counts(store)) == {"succeeded": 3}


async def test_killed_server_keeps_acknowledged_work_and_work_continues():
    with made(PostgresServer) as server:
        store = PostgresStore(parse_url(server.url))
        await store.enqueue([job(n) for n in range(200)])
        reply = await claim(store, 1, n=50)
        server.kill()
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):
            await succeed(store, reply)
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):
            await store.enqueue([job(500)])
        server.start()
        await again(lambda: succeed(store, reply))
        assert len((await again(lambda: claim(store, 2, n=1000))).jobs) == 150
        assert await again(lambda: counts(store)) == {"running": 150, "succeeded": 50}
        assert (await store.read(AuditQuery())).differences == ()
        await store.close()


async def test_hanging_transaction_delays_no_call_beyond_its_limit(
    url: str,
):
    """Another session has locked the table of jobs; calls that need it are refused in time."""
    store = PostgresStore(parse_url(f"{url}?patience_ms=200"))
    await store.enqueue([job(0)])
    with psycopg.connect(url) as db:
        db.execute("LOCK TABLE headway.job")
        with pytest.raises(StoreUnavailable, match=r"lock timeout|statement timeout"):
            await claim(store, 1)
        db.rollback()
    assert len((await claim(store, 2)).jobs) == 1
    await store.close()


def test_group_with_an_unknown_outcome_is_not_split_and_repeated() -> None:
    made: list[list[object]] = []

    def together(items: Sequence[object]) -> tuple[list[object], Done]:
        made.append(list(items))
        message = "the connection broke"
        raise OutcomeUnknown(message, hint="repeat the call")

    calls: list[Call[object]] = [Call(item=n, together=together, own_thread=True) for n in range(4)]
    serve(calls, lambda _: None)
    assert made == [[0, 1, 2, 3]]
    assert all(isinstance(call.error, OutcomeUnknown) for call in calls)


def test_group_is_not_split_while_the_server_is_unavailable() -> None:
    """Each attempt may last as long as the server's timeouts."""
    made: list[list[object]] = []

    def together(items: Sequence[object]) -> tuple[list[object], Done]:
        made.append(list(items))
        message = "the server is unreachable"
        raise StoreUnavailable(message, hint="nothing was written")

    calls: list[Call[object]] = [Call(item=n, together=together, own_thread=True) for n in range(4)]
    serve(calls, lambda _: None)
    assert made == [[0, 1, 2, 3]]
    assert all(isinstance(call.error, StoreUnavailable) for call in calls)


class ScriptedSteps:
    """Steps that fail as scripted."""

    def __init__(self, failures: Sequence[StoreError]) -> None:
        self._failures = list(failures)
        self.runs = 0

    def run_part(self, *_: object) -> tuple[list[Sent], Done]:
        self.runs += 1
        raise self._failures.pop(0)


LOST = OutcomeUnknown("the connection broke at the commit", hint="repeat the call")
AWAY = StoreUnavailable("the server is unreachable", hint="nothing was written")


@pytest.mark.parametrize(
    ("failures", "expected"), [([AWAY], AWAY), ([LOST, AWAY], LOST)], ids=["refused", "lost"]
)
def test_enqueues_sent_together_fail_together_while_the_server_is_unavailable(
    failures: Sequence[StoreError], expected: StoreError
) -> None:
    """After a lost reply, no later refusal proves that nothing was written."""
    steps = ScriptedSteps(failures)
    enqueues = Enqueues(cast("Steps", steps))
    batches = [[job(n)] for n in range(3)]
    calls: list[AnyCall] = [
        Call(partial(enqueues.enqueue, jobs), jobs, own_thread=True) for jobs in batches
    ]
    enqueues.serve(calls, lambda _: None)
    assert [call.error for call in calls] == [expected] * 3
    assert steps.runs == len(failures)


class Seconds:
    """A clock in seconds that stands still."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_calls_that_waited_for_their_patience_are_refused_with_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attempt may last for ten seconds, and the hundredth call must not wait for them all."""
    clock = Seconds()
    monkeypatch.setattr(call_queue, "monotonic", clock)
    served: list[AnyCall] = []

    def fail(calls: Sequence[AnyCall]) -> None:
        for call in calls:
            served.append(call)
            call.error = AWAY
        clock.now += 10

    queue = CallQueue("of-a-test", 1, fail, lambda: None, patience=10)
    first, second, third = (Call[None]() for _ in range(3))
    third.at += 1  # so it has waited for nine seconds when the first one fails
    for call in (first, second, third):
        queue.submit(call)
    async with asyncio.timeout(240):
        errors = await asyncio.gather(
            *(call.future for call in (first, second, third) if call.future is not None),
            return_exceptions=True,
        )
    assert errors == [AWAY] * 3
    assert served == [first, third]
    queue.close()


class StuckThread:
    """The thread of a queue, and the lock that it holds, while the server does not reply."""

    def __init__(self, clock: Seconds) -> None:
        self._clock = clock

    def join(self, timeout: float) -> None:
        self._clock.now += timeout

    def acquire(self, timeout: float) -> bool:
        self._clock.now += timeout
        return False


async def test_close_waits_for_the_queues_together_no_longer_than_the_patience(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a server that does not reply, each of them could wait for as long."""
    store = place.open(patience_ms="7000")
    queues = [one for one in vars(store).values() if isinstance(one, CallQueue)]
    assert len(queues) == 6
    clock = Seconds()
    began = clock.now
    for module in (call_queue, postgres_store):
        monkeypatch.setattr(module, "monotonic", clock)
    for queue in queues:
        stuck = StuckThread(clock)
        vars(queue).update(_thread=stuck, _turn=stuck, _started=True)
    await store.close()
    assert clock.now == began + 7


async def test_numbers_are_forgotten_when_the_connection_breaks_within_a_step(
    place: Place, clock: FakeClock
) -> None:
    """The next connection may lead to a backup, in which the numbers have other meanings."""

    def of(number: int, tenant: str) -> NewJob:
        return NewJob(id=derived_id("tenants", number), kind="noop", lane=LANE, tenant=tenant)

    breaks = place.open(clock)
    await breaks.enqueue([of(1, "a")])
    place.back_up()
    # The backup does not contain this flow.
    await breaks.enqueue([of(2, "b")])
    other = psycopg.connect(place.database)
    other.execute(f"LOCK TABLE {place.namespace}.delta")  # pyright: ignore[reportArgumentType]
    late = asyncio.ensure_future(breaks.enqueue([of(3, "b")]))
    # The first attempt waits for 20 ms only; restore while the second one waits.
    await until_it_waits(place.database, late, seconds=1)
    place.restore()
    # On a busy machine another attempt may have stored it: before the restore, or in the backup.
    with suppress(OutcomeUnknown, StoreUnavailable):
        await late
    other.close()
    await breaks.enqueue([of(4, "b")])
    found = {one.id: one.tenant for one in (await claim(place.open(clock), 1)).jobs}
    assert found.pop(of(3, "b").id, "b") == "b"
    assert found == {of(1, "a").id: "a", of(4, "b").id: "b"}


class ClosedMeanwhile(deque[AnyCall]):
    """Calls of a queue that another thread closes just before one is appended."""

    queue: CallQueue

    def append(self, call: AnyCall, /) -> None:
        closing = threading.Thread(target=self.queue.close)
        closing.start()
        closing.join()
        super().append(call)


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
async def test_call_made_while_another_thread_closes_the_store_is_refused(
    monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    def answer_all(calls: Sequence[AnyCall]) -> None:
        for call in calls:
            call.answer = 1

    queue = CallQueue("of-a-test", 8, answer_all, lambda: None)
    if used:
        first = Call(lambda: None)
        queue.submit(first)
        assert await first.future == 1
    calls = ClosedMeanwhile()
    calls.queue = queue
    monkeypatch.setattr(queue, "_calls", calls)
    late = Call(lambda: None)
    queue.submit(late)
    async with asyncio.timeout(240):
        with pytest.raises(StoreUnavailable, match="closed before this call started"):
            await late.future


async def test_thread_of_a_closed_queue_ends_though_a_caller_served_itself_meanwhile() -> None:
    def answer_all(calls: Sequence[AnyCall]) -> None:
        for call in calls:
            call.answer = 1

    queue = CallQueue("of-a-test", 8, answer_all, lambda: None)
    first, own = Call(lambda: None), Call(lambda: None, own_thread=True)
    queue.submit(first)
    assert await first.future == 1
    # As `serve_here` does, before it has the lock that serves it: the thread is not woken for it.
    queue._accept(own, urgent=False)
    queue.close(10)
    assert not queue._thread.is_alive()
    assert own.answer == 1
