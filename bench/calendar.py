"""The calendar in Cassandra: rows written per second, bytes on disk, rows read ahead per second.

    python -m bench.calendar                          5,000,000 rows, and a minute of 300,000
    python -m bench.calendar --rows 20000 --hot 5000  fewer
    python -m bench.calendar --store postgres         read ahead into another store

It starts its own Cassandra node and its own store: a SQLite file, or a server.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from cassandra.cluster import Cluster

import headway as hw
from bench.costs import cpu_s, own_cpu_s
from headway.bridges.cassandra.calendar import Calendar
from headway.bridges.cassandra.driver import CassandraLink
from headway.bridges.cassandra.link import CassandraSettings
from headway.bridges.cassandra.reader import Reader
from headway.contract.views import StatsQuery
from headway.core.instant import format_instant
from headway.core.job import NewJob
from headway.runtime.timing import REAL
from tests.servers.brokers.cassandra import CassandraServer
from tests.torture.site import KINDS, site_of

ROWS, HOT, PROCESSES, BATCH, SHOWN = 5_000_000, 300_000, 2, 1_000, 250_000
MINUTE_MS = 60_000
HOT_MIN, FIRST_MIN, LAST_MIN = 30, 720, 2_160
"""When the rows of the hot minute and all others are due, in minutes after they are written."""
QUIET_S, FLUSH_S = 10.0, 300.0
"""Seconds without a change in the files after which all is flushed, and the limit for that."""


@dataclass(frozen=True, slots=True)
class Share:
    """The rows that one process writes, due between two minutes."""

    number: int
    rows: int
    port: int
    store: str
    minutes: tuple[int, int]


def settings(port: int, horizon_min: int = 15) -> CassandraSettings:
    return CassandraSettings(
        hosts=["127.0.0.1"], port=port, replication=1, horizon=f"{horizon_min}m"
    )


def declared(store: str) -> tuple[hw.App, hw.Kind]:
    """Return an app whose jobs have the size and the gates of a notification."""
    app = hw.App(store)
    gates = [hw.Slots("notify.push.sends", 50), hw.Rate("notify.push.rate", 5_000, per="1s")]

    @app.job(name="notification", gates=gates)
    async def send(job: hw.Job, **values: object) -> None: ...

    return app, send


def jobs_of(share: Share, kind: hw.Kind) -> Iterator[NewJob]:
    draw = random.Random(f"calendar {share.number}")
    for n in range(share.rows):
        at = draw.randrange(share.minutes[0] * MINUTE_MS, share.minutes[1] * MINUTE_MS)
        yield kind.make(
            due=format_instant(at),
            subject=f"r{draw.randrange(1_000_000)}",
            channels=["push"],
            category="news",
            level="normal",
            title="Your order is on its way",
            text=f"Order {share.number}-{n} leaves our warehouse today, and is with you tomorrow.",
        )


def write(share: Share) -> float:
    """Write a share as producers do; return the CPU seconds it took."""
    return asyncio.run(_write(share))


async def _write(share: Share) -> float:
    app, kind = declared(share.store)
    link = CassandraLink(settings(share.port))
    async with app:
        calendar = Calendar(link, app.store)
        begun, written = own_cpu_s(), 0
        jobs = jobs_of(share, kind)
        while batch := list(islice(jobs, BATCH)):
            await calendar.enqueue(batch)
            written += len(batch)
            if not written % SHOWN:
                print(f"process {share.number}: {written:,} of {share.rows:,}", flush=True)
        taken_s = own_cpu_s() - begun
    await link.close()
    return taken_s


def write_all(
    rows: int, processes: int, minutes: tuple[int, int], store: str, server: CassandraServer
) -> int:
    """Write rows from several processes; return their number."""
    now = int(time.time() // 60)
    due = now + minutes[0], now + minutes[1]
    each = rows // processes
    shares = [Share(n, each, server.port, store, due) for n in range(processes)]
    written = each * processes
    node_s, begun = cpu_s(server.pid), time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        clients_s = sum(pool.map(write, shares))
    seconds = time.monotonic() - begun
    node_s = cpu_s(server.pid) - node_s
    print(
        f"written: {written:,} rows by {processes} processes in {seconds:,.0f} s, "
        f"{written / seconds:,.0f} a second; of a processor {clients_s / written * 1e3:.2f} ms "
        f"a row in the clients, {node_s / written * 1e3:.2f} in the node",
        flush=True,
    )
    return written


def flushed(server: CassandraServer) -> dict[str, int]:
    """Flush all tables to disk; return their sizes in bytes, by name."""
    wanted = settings(server.port)
    names = [f"{wanted.calendar}{suffix}" for suffix in ("", "_index")]
    host, port = wanted.hosts[0], wanted.port
    with Cluster([host], port=port) as cluster:
        session = cluster.connect(wanted.keyspace)
        _flush_each(session, names, 1_000)
        seen, since = {}, time.monotonic()
        begun = since
        while time.monotonic() - since < QUIET_S and time.monotonic() - begun < FLUSH_S:
            time.sleep(1)
            sizes = {name: _bytes(server, name) for name in names}
            if sizes != seen:
                seen, since = sizes, time.monotonic()
        _flush_each(session, names, 0)
    return seen


def _flush_each(session: Any, names: list[str], ms: int) -> None:
    for name in names:
        session.execute(f"ALTER TABLE {name} WITH memtable_flush_period_in_ms = {ms}")


def _bytes(server: CassandraServer, table: str) -> int:
    folder = Path(server.folder) / "data"
    files = folder.glob(f"*/{table}-*/**/*-Data.db")
    return sum(_size(one) for one in files)


def _size(file: Path) -> int:
    """Return the bytes of all parts of a table's file."""
    stem = file.name.removesuffix("Data.db")
    total = 0
    for part in file.parent.glob(f"{stem}*"):
        try:
            total += part.stat().st_size
        except FileNotFoundError:
            continue  # replaced by a compaction
    return total


async def read_ahead(store: str, server: CassandraServer, hot: int) -> None:
    """Read the calendar through the hot minute into the store."""
    async with AsyncExitStack() as stack:
        app, _ = declared(store)
        await stack.enter_async_context(app)
        link = CassandraLink(settings(server.port, HOT_MIN + 2))
        stack.push_async_callback(link.close)
        reader = Reader(link, app.store, REAL)
        await link.open()
        own_s, node_s, begun = own_cpu_s(), cpu_s(server.pid), time.monotonic()
        assert await reader.round()
        seconds = time.monotonic() - begun
        own_s, node_s = own_cpu_s() - own_s, cpu_s(server.pid) - node_s
        made = (await app.store.read(StatsQuery())).totals.get("enqueued", 0)
        assert made == hot, f"{made} jobs of {hot}"
        begun = time.monotonic()
        assert await reader.round()
        again_s = time.monotonic() - begun
    print(
        f"read ahead: {hot:,} rows of one minute in {seconds:,.1f} s, {hot / seconds:,.0f} a "
        f"second; of a processor {own_s / hot * 1e3:.3f} ms a row in the leader, "
        f"{node_s / hot * 1e3:.3f} in the node; a round that finds nothing {again_s:.1f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.calendar", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--hot", type=int, default=HOT, help="additional rows in one minute")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="number of writers")
    parser.add_argument("--store", choices=KINDS, default="sqlite")
    parser.add_argument("--dir", type=Path, help="parent folder of the SQLite file's folder")
    wanted = parser.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(CassandraServer())
        # A new folder for each run, so that jobs of an earlier run are not counted.
        folder = Path(stack.enter_context(TemporaryDirectory(dir=wanted.dir or server.folder)))
        url = stack.enter_context(site_of(wanted.store, folder)).url
        many = FIRST_MIN, LAST_MIN
        rows = write_all(wanted.rows, wanted.processes, many, url, server)
        for name, size in flushed(server).items():
            print(f"on disk: {name} {size:,} bytes, {size / rows:.0f} a row", flush=True)
        one = HOT_MIN, HOT_MIN + 1
        hot = write_all(wanted.hot, wanted.processes, one, url, server)
        asyncio.run(read_ahead(url, server, hot))
        node = psutil.Process(server.pid).memory_info().rss
        print(f"the node had {node / 2**20:,.0f} MiB of memory")


if __name__ == "__main__":
    main()
