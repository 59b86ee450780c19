"""The cost of one job on each store: bytes kept and written, round trips, CPU time.

None of these depends on how fast the machine is, so they can be multiplied by a planned load.

Run: `python -m bench.costs [JOBS]`; about a minute for 20,000.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import psycopg
from redis import Redis
from rich.console import Console
from rich.table import Table

import headway as hw
from bench.places import postgres, redis, sqlite
from bench.places.place import Place
from headway.contract.views import StatsQuery
from tests.scale.trips import counting

BATCH = 100
ARGS = 200
FAR = timedelta(days=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Counters at one time.

    Attributes:
        kept: Bytes stored.
        written: Bytes written to the device: to the write-ahead log or append-only file, or in
            total.
        trips: Requests to the server.
        cpu_s: CPU seconds of this process and of the server.
    """

    kept: int
    written: int
    trips: int
    cpu_s: tuple[float, float]


Read = Callable[[Place], Reading]


def cpu_s(pid: int | None) -> float:
    """Return the CPU seconds of a process and its children, including those that have exited."""
    if pid is None:
        return 0.0
    total = 0.0
    root = psutil.Process(pid)
    for one in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
            total += times.children_user + times.children_system
    return total


def own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system


@contextmanager
def on_sqlite() -> Generator[tuple[Place, Read]]:
    def read(place: Place) -> Reading:
        written = int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])
        return Reading(kept=place.size(), written=written, trips=0, cpu_s=(own_cpu_s(), 0.0))

    with (
        tempfile.TemporaryDirectory() as folder,
        sqlite.opened() as ground,
        ground.fresh(Path(folder)) as place,
    ):
        yield place, read


@contextmanager
def on_postgres() -> Generator[tuple[Place, Read]]:
    with (
        postgres.opened() as ground,
        ground.fresh(Path()) as place,
        counting() as trips,
        psycopg.connect(place.url, autocommit=True) as db,
    ):
        backend = psutil.Process(int(_value(db, "SELECT pg_backend_pid()")))
        server = backend.ppid()

        def read(place: Place) -> Reading:
            return Reading(
                kept=place.size(),
                written=int(_value(db, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")),
                trips=trips.n,
                cpu_s=(own_cpu_s(), cpu_s(server)),
            )

        yield place, read


def _value(db: psycopg.Connection, query: str) -> str:
    row = db.execute(query).fetchone()  # type: ignore[arg-type]  # our own words
    return str(row[0]) if row else ""


@contextmanager
def on_redis() -> Generator[tuple[Place, Read]]:
    with (
        redis.opened_with_log() as ground,
        ground.fresh(Path()) as place,
        Redis.from_url(place.url, decode_responses=True) as db,
    ):
        # A rewrite would shrink the log between two readings.
        db.config_set("auto-aof-rewrite-percentage", 0)

        def read(place: Place) -> Reading:
            stats = db.info("commandstats")
            scripts = [one for name, one in stats.items() if name.startswith("cmdstat_eval")]
            return Reading(
                kept=place.size(),
                written=int(db.info("persistence")["aof_current_size"]),
                trips=sum(int(one["calls"]) for one in scripts),
                cpu_s=(own_cpu_s(), cpu_s(int(db.info("server")["process_id"]))),
            )

        yield place, read


def app_at(url: str) -> tuple[hw.App, hw.Kind, hw.Kind]:
    """Return an app with a kind without gates, and a kind with two."""
    app = hw.App(url, name="costs")

    async def remind(job: hw.Job, text: str) -> None:
        del job, text

    gates = [hw.Slots("senders", 1_000), hw.Rate("pace", 1_000_000, per="1s")]
    plain = app.job(name="remind", lane="reminders")(remind)
    return app, plain, app.job(name="gated", lane="gated", gates=gates)(remind)


async def enqueue(
    app: hw.App, kind: hw.Kind, count: int, *, due: datetime | None = None, batch: int = BATCH
) -> None:
    text = "x" * (ARGS - len('{"text":""}'))
    for begin in range(0, count, batch):
        size = min(batch, count - begin)
        await app.send_many_async(kind.make(text=text, due=due) for _ in range(size))


async def drain(app: hw.App, count: int) -> None:
    worker = app.worker(concurrency=BATCH)
    running = asyncio.create_task(worker.run())
    # Polls the store, which costs the same on every store.
    while (await app.store.read(StatsQuery())).counts.get("succeeded", 0) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    worker.stop()
    await running


async def measure(
    place: Place, read: Read, count: int
) -> AsyncGenerator[tuple[str, int, Reading, Reading]]:
    """Yield each step's name, its number of jobs, and the counters before and after it."""
    app, plain, gated = app_at(place.url)
    few, done = count // 10, 0
    async with app:

        async def run(size: int) -> None:
            nonlocal done
            done += size
            await drain(app, done)

        # Warm up: declare the app, and let every connection prepare its statements.
        for kind in (plain, gated):
            await enqueue(app, kind, 10)
        await run(20)
        far = datetime.now(UTC) + FAR
        steps: list[tuple[str, int, Callable[[], Awaitable[None]]]] = [
            ("schedule", count, lambda: enqueue(app, plain, count, due=far)),
            ("enqueue", count, lambda: enqueue(app, plain, count)),
            ("claim, run, settle", count, lambda: run(count)),
            ("enqueue, two gates", count, lambda: enqueue(app, gated, count)),
            ("claim, run, settle, two gates", count, lambda: run(count)),
            ("enqueue, each alone", few, lambda: enqueue(app, plain, few, batch=1)),
        ]
        before = read(place)
        for name, size, work in steps:
            await work()
            yield name, size, before, (before := read(place))


async def add_rows(table: Table, store: str, place: Place, read: Read, count: int) -> None:
    async for step, size, before, after in measure(place, read, count):
        spent = zip(before.cpu_s, after.cpu_s, strict=True)
        client, server = (f"{1e6 * (two - one) / size:,.0f}" for one, two in spent)
        kept, written = after.kept - before.kept, after.written - before.written
        trips = f"{(after.trips - before.trips) / size:.3f}" if after.trips else "-"
        table.add_row(
            store, step, f"{kept / size:,.0f}", f"{written / size:,.0f}", trips, client, server
        )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    table = Table(title=f"A job of {ARGS} bytes, {BATCH} at a time; {count:,} of each")
    for name in ("store", "step"):
        table.add_column(name)
    for name in ("bytes kept", "bytes written", "trips", "client us", "server us"):
        table.add_column(name, justify="right")
    for name, opened in (("SQLite", on_sqlite), ("PostgreSQL", on_postgres), ("Redis", on_redis)):
        with opened() as (place, read):
            asyncio.run(add_rows(table, name, place, read, count))
    Console().print(table)


if __name__ == "__main__":
    main()
