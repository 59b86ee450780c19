"""Transactions left open on PostgreSQL: no other process waits for them or gets slow."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.queues import SimpleQueue

import psycopg

import headway as hw
from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.contract.store import Store
from headway.contract.views import AuditQuery
from headway.core.errors import StoreUnavailable
from headway.core.job import NewJob
from headway.stores import open_store
from tests.torture.file_flag import Flag

LANE = "calls"
LOOK_S = 0.05
ROUND = 1_000
"""Jobs that are enqueued before they are claimed."""
AT_ONCE = 50
"""Jobs per claim."""
ENDS = 10
"""The first and the last claims compared are each one in this many of all claims."""

_WAITING = """
SELECT pid, left(query, 100) FROM pg_stat_activity
WHERE datname = current_database() AND %s = ANY (pg_blocking_pids(pid))
"""


def declared(url: str) -> hw.App:
    """Declare an app whose jobs pass a shared gate, a keyed one and a rate."""
    app = hw.App(url, name="open")
    lines, pace = hw.Slots("lines", 200), hw.Rate("pace", 100_000, per="1s")
    phone = hw.Slots("phone:{phone}", 1)

    @app.job(lane=LANE, gates=[lines, pace, phone])
    def call(phone: int) -> None: ...

    @app.job(lane=LANE)
    def note(phone: int) -> None: ...

    return app


# ----------------------------------------------------------------------------------- an open send


@dataclass(slots=True)
class BesideSend:
    """Observations beside an open transaction in which a job was sent.

    Attributes:
        looks: number of checks for waiting backends.
        waited: statements that waited for the open transaction; must be empty.
        claims: claims of the other processes, by process.
        longest_ms: longest time between two claims of a process.
        kept: whether the job appeared once its transaction was committed, and not before.
        differences: differences found by the final audit.
    """

    looks: int = 0
    waited: list[str] = field(default_factory=list[str])
    claims: list[int] = field(default_factory=list[int])
    longest_ms: float = 0.0
    kept: bool = False
    differences: int = 0


def beside_open_send(
    url: str,
    stop: Flag,
    seconds: float,
    *,
    processes: int = 2,
    plant: str = "",
    patience_ms: int = 10_000,
) -> BesideSend:
    """Leave a caller's transaction open after a send, while others work in the same lane.

    Args:
        url: URL of an empty namespace.
        stop: a flag that is down.
        seconds: how long to leave it open.
        processes: number of processes that enqueue, claim and settle.
        plant: an extra action of the open transaction, to check that it is detected.
        patience_ms: timeout of those processes.

    Returns:
        The observations.
    """
    seen = BesideSend()
    patient = f"{url}?patience_ms={patience_ms}"
    asyncio.run(_declare(url))
    context = multiprocessing.get_context("spawn")
    app = declared(url)
    with psycopg.connect(url) as caller:
        sent = app.send("call", phone=-1, connection=caller)
        if plant:
            caller.execute(plant.encode())
        pipe: SimpleQueue[tuple[int, float, bool]] = context.SimpleQueue()
        crew = [
            context.Process(target=_work, args=(patient, stop, n, sent.id, pipe), daemon=True)
            for n in range(processes)
        ]
        for one in crew:
            one.start()
        for _ in crew:
            pipe.get()
        _look_on(url, caller.info.backend_pid, seconds, seen)
        stop.hoist()
        told = [pipe.get() for _ in crew]
        for one in crew:
            one.join()
        caller.commit()
    seen.claims = [claims for claims, _, _ in told]
    seen.longest_ms = max(longest for _, longest, _ in told)
    asyncio.run(_end(app, url, sent.id, seen, early=any(early for _, _, early in told)))
    return seen


def _look_on(url: str, pid: int, seconds: float, seen: BesideSend) -> None:
    end = time.monotonic() + seconds
    with psycopg.connect(url, autocommit=True) as looker:
        while time.monotonic() < end:
            found = looker.execute(_WAITING.encode(), (pid,)).fetchall()
            seen.waited += [query for _, query in found]
            seen.looks += 1
            time.sleep(LOOK_S)


def _work(
    url: str, stop: Flag, number: int, hidden: str, pipe: SimpleQueue[tuple[int, float, bool]]
) -> None:
    def begun() -> None:
        pipe.put((0, 0.0, False))

    pipe.put(asyncio.run(_work_until(url, stop, number, hidden, begun)))


async def _work_until(
    url: str, stop: Flag, number: int, hidden: str, begun: Callable[[], None]
) -> tuple[int, float, bool]:
    """Enqueue, claim and settle until the flag is up; call `begun` after the first attempt."""
    app = declared(url)
    store = open_store(url)
    claims, longest, last, early = 0, 0.0, time.monotonic(), False
    worker = f"worker {number}"
    for turn in count():
        if stop.up:
            break
        if turn == 1:
            begun()
        calls = [app.kind("call").make(phone=number * 1000 + n) for n in range(10)]
        try:
            await store.enqueue(calls)
            jobs = await _claim(store, worker, claims + 1, AT_ONCE)
        except StoreUnavailable:
            continue
        now = time.monotonic()
        longest, last, claims = max(longest, now - last), now, claims + 1
        early = early or any(job == hidden for job, _ in jobs)
        await _settle(store, worker, jobs)
    await store.close()
    return claims, longest * 1000, early


async def _end(app: hw.App, url: str, sent: str, seen: BesideSend, *, early: bool) -> None:
    store = open_store(url)
    found: list[str] = []
    for request in count(1):
        jobs = await _claim(store, "last", request, 1_000)
        if not jobs:
            break
        found += [job for job, _ in jobs]
        await _settle(store, "last", jobs)
    seen.kept = sent in found and not early
    seen.differences = len((await store.read(AuditQuery(limit=10_000))).differences)
    await store.close()
    await app.close_async()


# ------------------------------------------------------------------------------ an open snapshot


@dataclass(slots=True)
class BesideSnapshot:
    """Duration of claims beside a snapshot that was held open.

    Attributes:
        jobs: number of jobs that passed.
        seconds: time that it took.
        first_ms: the median claim at the start.
        last_ms: the median claim at the end.
        other_first_ms: the same, in a database without an open snapshot.
        other_last_ms: the same there at the end.
        dead: rows that cannot be vacuumed, by table, largest first.
        differences: differences found by the final audit.
    """

    jobs: int
    seconds: float = 0.0
    first_ms: float = 0.0
    last_ms: float = 0.0
    other_first_ms: float = 0.0
    other_last_ms: float = 0.0
    dead: dict[str, int] = field(default_factory=dict[str, int])
    differences: int = 0

    @property
    def growth(self) -> float:
        """Return how many times longer a claim took in the end."""
        return self.last_ms / self.first_ms

    @property
    def own_growth(self) -> float:
        """Return the growth relative to that of the other database."""
        return self.growth / (self.other_last_ms / self.other_first_ms)


@contextmanager
def open_snapshot(url: str) -> Generator[None]:
    """Open a read transaction and leave it open."""
    with psycopg.connect(url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM pg_class")
        yield
        reader.rollback()


async def beside_open_snapshot(
    url: str, other: str, jobs: int, *, gated: bool, say: Callable[[str], None]
) -> BesideSnapshot:
    """Pass jobs through a store while a snapshot is held open.

    Args:
        url: URL of an empty namespace.
        other: URL of an empty namespace in another database of the server, for comparison.
        jobs: number of jobs that pass.
        gated: whether they pass gates.
        say: prints a line.

    Returns:
        The durations of claims.
    """
    await _declare(url)
    await _declare(other)
    seen = BesideSnapshot(jobs)
    one, two = Passage(url, gated=gated), Passage(other, gated=gated)
    begin = time.monotonic()
    await one.round()
    await two.round()
    rounds = max(jobs // ROUND, 2 * ENDS)
    with open_snapshot(url):
        firsts = await _some_rounds(one, two, rounds // ENDS)
        seen.first_ms, seen.other_first_ms = firsts
        say(f"a claim of {AT_ONCE} takes {firsts[0]:.2f} ms at first")
        for n in range(rounds - 2 * (rounds // ENDS)):
            spans = await one.round()
            if n % max(1, rounds // ENDS) == 0:
                say(f"{one.passed} jobs have passed; {statistics.median(spans):.2f} ms")
        seen.last_ms, seen.other_last_ms = await _some_rounds(one, two, rounds // ENDS)
        seen.dead = dead_rows(url)
    seen.seconds = time.monotonic() - begin
    seen.jobs = one.passed
    seen.differences = len((await one.store.read(AuditQuery(limit=10_000))).differences)
    await one.store.close()
    await two.store.close()
    return seen


async def _some_rounds(one: Passage, two: Passage, rounds: int) -> tuple[float, float]:
    mine: list[float] = []
    others: list[float] = []
    for _ in range(rounds):
        mine += await one.round()
        others += await two.round()
    return statistics.median(mine), statistics.median(others)


class Passage:
    """A process through which jobs pass.

    Args:
        url: URL of its store.
        gated: whether the jobs pass gates.
        number: number of earlier such processes.
    """

    def __init__(self, url: str, *, gated: bool, number: int = 0) -> None:
        self.store = open_store(url)
        self.passed = number * ROUND
        self._kind = declared(url).kind("call" if gated else "note")
        self._request = number * ROUND

    async def round(self) -> list[float]:
        """Pass a thousand jobs; return the duration of each claim, ms."""
        spans: list[float] = []
        await self.store.enqueue([self._job(n) for n in range(ROUND)])
        left = ROUND
        while left:
            self._request += 1
            begin = time.perf_counter()
            jobs = await _claim(self.store, "w", self._request, AT_ONCE)
            spans.append((time.perf_counter() - begin) * 1000)
            await _settle(self.store, "w", jobs)
            left -= len(jobs)
        self.passed += ROUND
        return spans

    def _job(self, n: int) -> NewJob:
        # No phone number is called a thousand times while a transaction is open.
        return self._kind.make(phone=self.passed + n)


def dead_rows(url: str) -> dict[str, int]:
    """Return each table's dead rows, as the server counts them; largest first."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("ANALYZE")
        rows = db.execute(
            "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 0"
            " ORDER BY n_dead_tup DESC, relname"
        ).fetchall()
    return dict(rows)


# ---------------------------------------------------------------------------------- shared helpers


async def _declare(url: str) -> None:
    async with declared(url):
        pass


async def _claim(store: Store, worker: str, request: int, n: int) -> list[tuple[str, int]]:
    reply = await store.claim(
        ClaimRequest(worker=worker, request=request, lanes=((LANE, 1),), n=n, free=n)
    )
    return [(job.id, job.run) for job in reply.jobs]


async def _settle(store: Store, worker: str, jobs: list[tuple[str, int]]) -> None:
    if jobs:
        outcomes = tuple(Succeeded(job, run) for job, run in jobs)
        await store.settle(SettleRequest(worker=worker, outcomes=outcomes))
