"""Programs and schemas of different versions work together, in the range that each supports.

`tests/conformance/test_repeated.py` runs the whole suite on the schema of a later program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import headway as hw
from headway.contract.views import AuditQuery, StatsQuery
from headway.runtime.timing import pause
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.schema import NEEDED, latest
from tests.postgres.other_schemas import folder_of, migrate_to
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database

LIMIT = 240.0
EACH = 100


@pytest.fixture(scope="module")
def database(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as url:
        yield url


_NUMBERS = count(1)


@pytest.fixture
def url(database: str) -> str:
    return f"{database}{'&' if '?' in database else '?'}namespace=version_{next(_NUMBERS)}"


def declared(url: str) -> hw.App:
    """Return an App that uses a little of everything."""
    app = hw.App(url)

    @app.job(key="{n}", gates=[hw.Slots("line", 3), hw.Slots("phone:{phone}", 1)])
    async def call(job: hw.Job, n: int, phone: str) -> None:
        if n % 10 == 0 and job.attempt == 1:
            raise hw.Retry(after="1ms")

    @app.job(gates=[hw.Slots("page:{phone}", 1)])
    async def report(job: hw.Job, n: int, phone: str) -> None: ...

    app.timetable("nightly", report, schedule="at 03:00", args={"n": -1, "phone": "x"})
    return app


async def worked(app: hw.App, total: int) -> None:
    """Wait until this many jobs have succeeded.

    Raises:
        TimeoutError: fewer have succeeded in time.
    """
    async with asyncio.timeout(LIMIT):
        while (await app.store.read(StatsQuery())).counts.get("succeeded") != total:
            await pause(0.02)


async def send(app: hw.App, numbers: range) -> None:
    for n in numbers:
        await app.send_async("call", n=n, phone=str(n % 7))


async def day(app: hw.App, between: Any = None) -> None:
    """Send and run jobs; halfway, while workers are busy, call `between`."""
    async with app:
        worker = app.worker(concurrency=4)
        running = asyncio.create_task(worker.run())
        await send(app, range(EACH))
        later = asyncio.create_task(send(app, range(EACH, 2 * EACH)))
        if between is not None:
            await asyncio.to_thread(between)
        await later
        await send(app, range(2 * EACH, 3 * EACH))
        await worked(app, 3 * EACH)
        worker.stop()
        await running
        assert (await app.store.read(AuditQuery())).differences == ()


async def test_program_continues_while_a_later_one_migrates_the_schema(
    url: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, later=True)
    numbers: list[int] = []
    await day(declared(url), lambda: numbers.append(migrate_to(url, folder)))
    assert numbers == [latest() + 1]


async def test_program_starts_on_the_schema_of_a_later_one(url: str, tmp_path: Path) -> None:
    assert migrate_to(url, folder_of(tmp_path, later=True)) == latest() + 1
    await day(declared(url))


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(NEEDED, latest() + 1))
async def test_program_works_on_every_older_schema_it_claims_to_support(
    url: str, tmp_path: Path, number: int
) -> None:
    assert migrate_to(url, folder_of(tmp_path, until=number)) == number
    await day(declared(f"{url}&migrate=off"))


def test_migration_undone_by_a_deadlock_is_run_again(url: str, tmp_path: Path) -> None:
    options = parse_url(url)
    migrate_to(url, folder_of(tmp_path))
    step = tmp_path / f"{latest() + 1:04}_two_tables.sql"
    step.write_text(
        "SET LOCAL deadlock_timeout = '1s';\n"
        "ALTER TABLE gate ADD COLUMN later_number bigint;\n"
        "ALTER TABLE lane ADD COLUMN later_number bigint;\n"
    )
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
    lane, gate = (
        sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(options.namespace, table))
        for table in ("lane", "gate")
    )
    with (
        psycopg.connect(options.conninfo) as reader,
        psycopg.connect(options.conninfo, autocommit=True) as watch,
        ThreadPoolExecutor() as pool,
    ):
        # The migration, not the reader, is the one that checks for a deadlock.
        reader.execute("SET deadlock_timeout = '1h'")
        reader.execute(lane)
        migrated = pool.submit(migrate_to, url, tmp_path)
        while watch.execute(waits, (f"{options.namespace}.lane",)).fetchone() == (0,):
            assert not migrated.done()
        reader.execute(gate)
        reader.commit()
        assert migrated.result(LIMIT) == latest() + 1
