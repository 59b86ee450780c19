"""Waiters are also woken by other processes; nothing is sent if there are no waiters."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from itertools import count

import psycopg
import pytest

from headway.contract.claims import Claimed, ClaimReply, ClaimRequest
from headway.core.job import JobPolicy
from headway.stores.postgres import listening
from headway.stores.postgres.arrays import DUMPERS
from headway.stores.postgres.listening import waiting_key
from headway.stores.postgres.options import PostgresOptions, parse_url
from headway.stores.postgres.wakes import NotifyingWakes
from headway.testing.clock import FakeClock
from tests.servers.fixtures import made
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.servers.proxy import Proxy

LIMIT = 120
LANE = "main"
FAR = 4_000_000_000_000
MOMENTS = count(FAR, -1)


@pytest.fixture
def options(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[PostgresOptions]:
    with fresh_database(fast_postgres_server.url) as url:
        yield parse_url(url)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def make(clock: FakeClock) -> AsyncIterator[Callable[[PostgresOptions], NotifyingWakes]]:
    """Return a function that creates the equivalent of a process."""
    made_here: list[NotifyingWakes] = []

    def one(options: PostgresOptions) -> NotifyingWakes:
        made_here.append(NotifyingWakes(options, clock))
        return made_here[-1]

    yield one
    for wakes in made_here:
        await asyncio.to_thread(wakes.close)


@pytest.fixture(autouse=True)
def slow_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the slow poll, so that only notifications wake a test, unless it enables the poll."""
    monkeypatch.setattr(listening, "CHECK_EVERY", 3600.0)
    monkeypatch.setattr(listening, "LINGER_IN_LANE", 3600.0)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():
            await asyncio.to_thread(threading.Event().wait, 0.005)


async def asleep(
    wakes: NotifyingWakes, *lanes: str, until_at: int | None = None
) -> asyncio.Task[None]:
    """Wait in lanes as a worker does: after an unrelated wake, claim and wait again.

    On a busy machine, listening may stop and start again before the task sleeps, which wakes it for
    no job.
    """
    wanted = lanes or (LANE,)

    def sleeps() -> bool:
        here = [one for one in wakes._waiters if one.lanes == frozenset(wanted)]
        # In this order: a waiter woken by the start of listening is woken before the lane is
        # listened for.
        return (
            wakes._listening.listens_for(wanted)
            and bool(here)
            and not any(one.awake for one in here)
        )

    while True:
        task = asyncio.ensure_future(wakes.wait(wanted, until_at, wakes.count))
        await until(lambda: task.done() or sleeps())  # noqa: B023  (awaited within the loop)
        if not task.done():
            return task


def is_listening(options: PostgresOptions) -> bool:
    """Return whether any process listens."""
    key = waiting_key(options.namespace)
    with psycopg.connect(options.conninfo, autocommit=True) as db:
        row = db.execute(
            "SELECT CASE WHEN pg_try_advisory_lock(%s) THEN NOT pg_advisory_unlock(%s)"
            " ELSE true END",
            (key, key),
        ).fetchone()
    assert row is not None
    return bool(row[0])


def say(db: psycopg.Connection, wakes: NotifyingWakes, lane: str = LANE) -> bool:
    """Send a notice in a statement, as a commit does; return whether any process listens."""
    notice = wakes.make_notice([(lane, None)])
    assert notice is not None
    cursor = psycopg.RawCursor(db)
    for kind, dumper in DUMPERS:
        cursor.adapters.register_dumper(kind, dumper)
    text, bound = notice
    row = cursor.execute(text.encode(), bound).fetchone()
    assert row is not None
    return row[1] == ""


async def test_first_waiter_claims_once_more_when_listening_starts(options, make):
    wakes = make(options)
    await asyncio.wait_for(wakes.wait([LANE], None, wakes.count), LIMIT)
    await until(lambda: wakes._listening._is_listening)


async def test_first_waiter_of_another_lane_claims_once_more(options, make):
    wakes = make(options)
    task = await asleep(wakes)
    # Commits there, before this process listened for the lane, notified only others.
    await asyncio.wait_for(wakes.wait(["other"], None, wakes.count), LIMIT)
    assert not task.done()
    task.cancel()


async def test_caller_is_registered_before_its_lane_is_listened_for(options, make, monkeypatch):
    # Otherwise the thread may look for lanes to listen for before the caller's is among them.
    wakes, registered = make(options), []
    attend = wakes._listening.listen_for

    def attending(lanes):
        registered.append(wakes.lanes.issuperset(lanes))
        attend(lanes)

    monkeypatch.setattr(wakes._listening, "listen_for", attending)
    (await asleep(wakes)).cancel()
    assert registered
    assert all(registered)


async def test_commit_of_another_process_wakes_only_the_waiter_of_its_lane(options, make):
    here, there = make(options), make(options)
    task, other = await asleep(here), await asleep(here, "other")
    there.announce([(LANE, None)])
    await asyncio.wait_for(task, LIMIT)
    assert not other.done()
    there.announce([("other", None)])
    await asyncio.wait_for(other, LIMIT)


async def woken(
    tasks: list[asyncio.Task[None]], there: NotifyingWakes, sleepers: list[NotifyingWakes]
) -> int:
    """Return how many of the sleepers were woken by the notices of `there` so far."""
    # A time in the future reaches every process, in the order of commits.
    moment = next(MOMENTS)
    there.announce([(LANE, moment)])

    def reached() -> bool:
        # A waiter that is awake is about to finish its task.
        return all(
            one.until_at == moment and not one.awake for wakes in sleepers for one in wakes._waiters
        )

    await until(reached)
    return sum(task.done() for task in tasks)


@pytest.mark.parametrize("with_its_commit", [False, True])
async def test_commit_wakes_two_of_many_processes_waiting_in_its_lane(
    options, make, with_its_commit
):
    there, sleepers = make(options), [make(options) for _ in range(6)]
    tasks = [await asleep(wakes) for wakes in sleepers]
    if with_its_commit:
        with psycopg.connect(options.conninfo, autocommit=True) as db:
            assert say(db, there)
    else:
        there.announce([(LANE, None), ("other", None)])
    assert await woken(tasks, there, sleepers) == 2


async def test_process_with_a_waiter_of_its_own_wakes_one_more(options, make):
    sleepers = [make(options) for _ in range(4)]
    tasks = [await asleep(wakes) for wakes in sleepers]
    there, *others = sleepers
    there.announce([(LANE, None)])
    await asyncio.wait_for(tasks[0], LIMIT)
    assert await woken(tasks[1:], there, others) == 1


async def test_wake_is_passed_on_by_processes_with_busy_callers(options, make, monkeypatch):
    monkeypatch.setattr(listening, "MOST_PICKED", 1)
    monkeypatch.setattr(listening, "LINGER", 3600.0)
    there, busy, idle = make(options), [make(options) for _ in range(3)], make(options)
    for wakes in busy:
        (await asleep(wakes)).cancel()
        await until(lambda: not wakes._waiters)  # noqa: B023  (awaited within the loop)
    # Each process is picked in turn. A random pick would wake the sleeping one first only once in
    # four times.
    for _ in range(12):
        task = await asleep(idle)
        there.announce([(LANE, None)])
        await asyncio.wait_for(task, LIMIT)


async def test_wake_passed_on_often_enough_reaches_everyone(options, make, monkeypatch):
    monkeypatch.setattr(listening, "MOST_PICKED", 1)
    monkeypatch.setattr(listening, "MOST_PASSED_ON", 0)
    monkeypatch.setattr(listening, "LINGER", 3600.0)
    there, busy, sleepers = make(options), make(options), [make(options) for _ in range(3)]
    (await asleep(busy)).cancel()
    for _ in range(100):
        tasks = [await asleep(wakes) for wakes in sleepers]
        seen = busy.count
        there.announce([(LANE, None)])
        async with asyncio.timeout(LIMIT):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if busy.count > seen:
            break
        for task in tasks:
            task.cancel()
    # At random, the busy process is picked once in four times, and then passes the wake on to all.
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*tasks)


async def test_wake_in_a_lane_with_only_busy_callers_ends(options, make):
    there, busy = make(options), [make(options) for _ in range(3)]
    for wakes in busy:
        (await asleep(wakes)).cancel()
    before = [wakes.count for wakes in busy]
    there.announce([(LANE, None)])
    # Each process received it, and the next caller that waits in one claims once more.
    for wakes, seen in zip(busy, before, strict=True):
        await until(lambda: wakes.count > seen)  # noqa: B023  (awaited within the loop)
        await asyncio.wait_for(wakes.wait([LANE], None, seen), LIMIT)


@pytest.mark.parametrize(("taken", "more"), [(3, 2), (2, 0)])
async def test_full_claim_after_a_wake_wakes_two_more(options, make, monkeypatch, taken, more):
    there, sleepers = make(options), [make(options) for _ in range(6)]
    tasks = [await asleep(wakes) for wakes in sleepers]
    monkeypatch.setattr(listening, "MOST_PICKED", 1)
    there.announce([(LANE, None)])
    assert await woken(tasks, there, sleepers) == 1
    monkeypatch.setattr(listening, "MOST_PICKED", 2)
    (first,) = (wakes for wakes, task in zip(sleepers, tasks, strict=True) if task.done())
    claim = played(first, jobs=taken)
    first.follow(*claim)
    assert await woken(tasks, first, sleepers) == 1 + more
    # Once is enough: the woken waiters continue.
    first.follow(*claim)
    assert not first._listening._unsent


async def test_claim_started_before_a_wake_does_not_end_it(options, make):
    there, here, other = make(options), make(options), make(options)
    (await asleep(here)).cancel()
    earlier = played(here, jobs=0)
    there.announce([(LANE, None)])
    await until(lambda: here.count > earlier[1].seen)
    here.follow(*earlier)
    task = await asleep(other)
    here.follow(*played(here, jobs=3))
    await asyncio.wait_for(task, LIMIT)


async def test_waiter_of_many_lanes_is_woken_by_each(options, make):
    here, there = make(options), make(options)
    lanes = [f"lane {n}" for n in range(listening.MOST_LANES + 1)]
    for lane in (lanes[0], lanes[-1]):
        task = await asleep(here, *lanes)
        there.announce([(lane, None)])
        await asyncio.wait_for(task, LIMIT)
    assert locks(options) == 1


async def test_abandoned_lanes_are_no_longer_listened_for(options, make, monkeypatch):
    here, there = make(options), make(options)
    (await asleep(here, "left")).cancel()
    task = await asleep(here)
    assert locks(options) == 2
    monkeypatch.setattr(listening, "LINGER_IN_LANE", 0.0)
    there.announce([("any", FAR)])
    await until(lambda: locks(options) == 1)
    monkeypatch.setattr(listening, "LINGER_IN_LANE", 3600.0)
    assert not task.done()
    again = await asleep(here, "left")
    there.announce([("left", None)])
    await asyncio.wait_for(again, LIMIT)
    task.cancel()


def locks(options: PostgresOptions) -> int:
    """Return the number of lanes listened for, counted once for each process."""
    with psycopg.connect(options.conninfo, autocommit=True) as db:
        row = db.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).fetchone()
    assert row is not None
    return int(row[0])


def played(wakes: NotifyingWakes, *, jobs: int) -> tuple[ClaimRequest, ClaimReply]:
    """Return a claim of three jobs, and its reply."""
    request = ClaimRequest(worker="w", request=1, lanes=((LANE, 1),), n=3, free=3, lease_ms=30_000)
    blank = {"run": 1, "attempt": 1, "kind": "k", "stage": "", "lane": LANE, "tenant": ""}
    blank |= {"subject": None, "args": b"{}", "priority": 512, "due_at": 1, "candidate": ""}
    taken = [
        Claimed(id=str(n), policy=JobPolicy(), gated=False, members={}, **blank)
        for n in range(jobs)
    ]
    reply = ClaimReply(jobs=taken, now=1, lease_until=2, next_at=None, seen=wakes.count)
    return request, reply


async def test_future_time_from_another_process_shortens_the_sleep(options, make, clock):
    here, there = make(options), make(options)
    task = await asleep(here)
    (sleeper,) = here._waiters
    there.announce([(LANE, clock() + 3_600_000)])
    await until(lambda: sleeper.until_at == clock() + 3_600_000)
    there.announce([(LANE, clock() + 10)])
    await asyncio.wait_for(task, LIMIT)


async def test_commit_with_its_own_notification_wakes_waiters_elsewhere(options, make):
    here, there = make(options), make(options)
    task, other = await asleep(here), await asleep(here, "other")
    with psycopg.connect(options.conninfo, autocommit=True) as db:
        assert say(db, there)
    await asyncio.wait_for(task, LIMIT)
    assert not other.done()
    other.cancel()


async def test_nothing_is_notified_without_listeners(options, make):
    here, there = make(options), make(options)
    there.announce([(LANE, None)], notified=True)
    assert there._listening._thread is None
    with psycopg.connect(options.conninfo, autocommit=True) as db:
        db.execute("LISTEN headway_headway")
        assert not say(db, there)
        assert not list(db.notifies(timeout=0.01))
    task = await asleep(here)
    assert is_listening(options)
    await asyncio.to_thread(here.close)
    # A backend exits by itself, some time after its connection is closed.
    await until(lambda: not is_listening(options))
    task.cancel()


async def test_concurrent_notifying_commits_do_not_count_each_other_as_listeners(
    options, make, monkeypatch
):
    monkeypatch.setattr(listening, "NOTIFY_EVERY", 0.0)
    wakes, here = make(options), make(options)

    def tell() -> set[bool]:
        with psycopg.connect(options.conninfo, autocommit=True) as db:
            return {say(db, wakes, "nobody's") for _ in range(300)}

    # Occasionally two commits overlap, and one notifies for nothing. It must be the exception.
    answers = await asyncio.gather(*[asyncio.to_thread(tell) for _ in range(2)])
    assert all(False in one for one in answers)
    task = await asleep(here)
    answers = await asyncio.gather(*[asyncio.to_thread(tell) for _ in range(2)])
    assert answers == [{True}, {True}]
    task.cancel()


async def test_commit_does_not_notify_itself_shortly_after_another_or_beside_its_own_listener(
    options, make, monkeypatch
):
    here, there = make(options), make(options)
    monkeypatch.setattr(listening, "NOTIFY_EVERY", 3600.0)
    assert there.make_notice([(LANE, None)]) is not None
    assert there.make_notice([(LANE, None)]) is None
    task = await asleep(here)
    monkeypatch.setattr(listening, "NOTIFY_EVERY", 0.0)
    assert there.make_notice([(LANE, None)]) is not None
    assert here.make_notice([(LANE, None)]) is None
    task.cancel()


async def test_commits_in_quick_succession_are_notified_together(options, make, monkeypatch):
    monkeypatch.setattr(listening, "NOTIFY_EVERY", 3600.0)
    here, there = make(options), make(options)
    task = await asleep(here)
    with psycopg.connect(options.conninfo, autocommit=True) as ear:
        ear.execute("LISTEN headway_headway")
        there.announce([("first", None)])
        (told,) = await asyncio.to_thread(list, ear.notifies(timeout=LIMIT, stop_after=1))
        assert [lane for lane, _ in json.loads(told.payload)[1]] == ["first"]
        for n in range(5):
            there.announce([(f"lane {n}", None)])
            assert list(ear.notifies(timeout=0.01)) == []
        monkeypatch.setattr(listening, "NOTIFY_EVERY", 0.0)
        there.announce([(LANE, None)])
        # Its thread sleeps until the old pause ends, which is never.
        there._listening._wake_thread()
        await asyncio.wait_for(task, LIMIT)
        (told,) = ear.notifies(timeout=LIMIT, stop_after=1)
    assert [lane for lane, _ in json.loads(told.payload)[1]] == [
        *(f"lane {n}" for n in range(5)),
        LANE,
    ]


async def test_too_many_lanes_for_a_payload_wake_all_waiters(options, make):
    here, there = make(options), make(options)
    task = await asleep(here, "quiet")
    there.announce([(f"{n:0500}", None) for n in range(40)])
    await asyncio.wait_for(task, LIMIT)


async def test_own_notification_does_not_wake_twice(options, make):
    here, there = make(options), make(options)
    task, other = await asleep(here), await asleep(there)
    before = here.count
    here.announce([(LANE, None)])
    await asyncio.wait_for(asyncio.gather(task, other), LIMIT)
    assert here.count == before + 1


async def test_lone_process_sends_no_notices(options, make):
    wakes = make(options)
    with psycopg.connect(options.conninfo, autocommit=True) as ear:
        ear.execute("LISTEN headway_headway")
        task = await asleep(wakes)
        wakes.announce([(LANE, None)])
        await asyncio.wait_for(task, LIMIT)
        await until(lambda: not wakes._listening._unsent)
        # If it is sent at all, it is sent before the next poll.
        ear.execute("SELECT 1")
        assert not list(ear.notifies(timeout=0.1))


async def test_listening_ends_some_time_after_the_last_waiter(options, make, monkeypatch):
    monkeypatch.setattr(listening, "LINGER", 0.05)
    wakes = make(options)
    task = await asleep(wakes)
    assert is_listening(options)
    task.cancel()
    await until(lambda: not wakes._listening._is_listening)
    await until(lambda: not is_listening(options))
    again = await asleep(wakes)
    assert is_listening(options)
    again.cancel()


@pytest.mark.parametrize("change", [{"listen": False}, {"pooled": True}])
async def test_commits_are_polled_for_without_notifications(options, make, change):
    here = make(replace(options, **change))
    tasks = [await asleep(here), await asleep(here)]
    assert not is_listening(options)
    with psycopg.connect(options.conninfo) as db:
        db.execute("CREATE TABLE anything (n int)")
    await asyncio.wait_for(asyncio.gather(*tasks), LIMIT)


async def test_checks_find_nothing_without_writes(options, make, monkeypatch):
    monkeypatch.setattr(listening, "CHECK_EVERY_ALONE", 0.005)
    here = make(replace(options, listen=False))
    checks: list[str] = []
    check = here._listening._check_for_writes
    monkeypatch.setattr(
        here._listening, "_check_for_writes", lambda db: (check(db), checks.append(""))
    )
    task = await asleep(here)
    count = here.count
    seen = len(checks)
    await until(lambda: len(checks) > seen + 20)
    # Other tests may write on the same server; each of them causes at most one wake per poll.
    assert here.count - count < 20
    task.cancel()


async def test_missed_notification_is_found_by_the_slow_poll(options, make, monkeypatch):
    monkeypatch.setattr(listening, "CHECK_EVERY", 0.05)
    here = make(options)
    task = await asleep(here)
    all_woken: list[None] = []
    monkeypatch.setattr(here._listening, "_on_missed", lambda: all_woken.append(here.wake_all()))
    with psycopg.connect(options.conninfo) as db:
        db.execute("CREATE TABLE anything (n int)")
    await asyncio.wait_for(task, LIMIT)
    # A single waiter of the lane is enough.
    assert not all_woken


@pytest.mark.parametrize("taken", [3, 2])
async def test_check_wakes_one_waiter_of_each_lane_and_a_full_claim_wakes_the_others(
    options, make, taken
):
    here = make(options)
    tasks = [await asleep(here, *lanes) for lanes in (3 * [(LANE,)] + 2 * [("other",)])]
    await until(lambda: len(here._waiters) == len(tasks))
    waiters = list(here._waiters)

    def awake() -> list[str]:
        return sorted(lane for one in waiters if one.awake for lane in one.lanes)

    here._check()
    assert awake() == [LANE, "other"]
    claim = played(here, jobs=taken)
    here.follow(*claim)
    full = [LANE, LANE, LANE, "other"]
    assert awake() == (full if taken == 3 else [LANE, "other"])
    # Once is enough: the woken waiters continue.
    count = here.count
    here.follow(*played(here, jobs=3))
    assert here.count == count
    for task in tasks:
        task.cancel()


async def test_waiter_of_two_lanes_suffices_to_check_both(options, make):
    here = make(options)
    tasks = [await asleep(here, LANE, "other"), await asleep(here, "other", LANE)]
    await until(lambda: len(here._waiters) == len(tasks))
    waiters = list(here._waiters)
    here._check()
    assert sorted(one.awake for one in waiters) == [False, True]
    for task in tasks:
        task.cancel()


async def test_broken_connection_makes_all_waiters_check_and_is_reopened(options, make):
    with Proxy(_url(options)) as proxy:
        here, there = make(parse_url(proxy.url)), make(options)
        task = await asleep(here)
        proxy.reset()
        await asyncio.wait_for(task, LIMIT)
        await until(lambda: here._listening._is_listening)
        task = await asleep(here)
        there.announce([(LANE, None)])
        await asyncio.wait_for(task, LIMIT)


async def test_waiters_check_now_and_then_while_the_server_is_unreachable(make, monkeypatch):
    monkeypatch.setattr(listening, "FIRST_PAUSE", 0.01)
    server = made(lambda: PostgresServer({"fsync": "off"}))
    with server:
        here = make(parse_url(server.url))
        task = await asleep(here)
        server.kill()
        await asyncio.wait_for(task, LIMIT)
        await asyncio.wait_for(here.wait([LANE], None, here.count), LIMIT)
        await asyncio.wait_for(here.wait([LANE], None, here.count), LIMIT)
        server.start()
        await until(lambda: here._listening._is_listening)
        there = make(parse_url(server.url))
        task = await asleep(here)
        there.announce([(LANE, None)])
        await asyncio.wait_for(task, LIMIT)


async def test_foreign_notification_only_causes_a_check(options, make):
    here = make(options)
    task = await asleep(here)
    with psycopg.connect(options.conninfo, autocommit=True) as db:
        db.execute("NOTIFY headway_headway, 'hello'")
    await asyncio.wait_for(task, LIMIT)


async def test_namespaces_do_not_wake_each_other(options, make, monkeypatch):
    here, beside = make(options), make(options)
    told: list[str | None] = []
    on_wake = here._listening._on_wake
    monkeypatch.setattr(
        here._listening,
        "_on_wake",
        lambda lanes: (on_wake(lanes), told.extend(lane for lane, _ in lanes)),
    )
    elsewhere = replace(options, namespace="other")
    there, away = make(elsewhere), make(elsewhere)
    task = await asleep(here)
    assert not is_listening(elsewhere)
    other = await asleep(away)
    there.announce([(LANE, None)])
    await asyncio.wait_for(other, LIMIT)
    # The server delivers in the order of commits, so an earlier notice would arrive before this
    # one.
    beside.announce([("last", FAR)])
    await until(lambda: "last" in told)
    assert told == ["last"]
    task.cancel()


def test_closing_without_ever_waiting_opens_nothing(options):
    wakes = NotifyingWakes(options, FakeClock())
    wakes.close()
    assert wakes._listening._db is None


def _url(options: PostgresOptions) -> str:
    given = psycopg.conninfo.conninfo_to_dict(options.conninfo)  # pyright: ignore[reportAttributeAccessIssue]
    return f"postgresql://{given['user']}@{given['host']}:{given['port']}/{given['dbname']}"
