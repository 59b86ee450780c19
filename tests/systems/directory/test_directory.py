"""The directory's sessions: concurrent writes, and errors and recovery when it is unreachable."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from headway.core.errors import InvalidValue, StoreUnavailable
from headway.systems.directory import engines
from headway.systems.directory.database import Directory
from headway.systems.directory.records import MOST_FAULTS, RESERVED, ImportReport, id_from_name
from headway.systems.field_service import SCHEMAS
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.servers.process import LIMIT
from tests.servers.proxy import Proxy


def directory_of(url: str) -> Directory:
    directory = Directory(url)
    for schema in SCHEMAS:
        directory.needs(schema)
    return directory


@pytest.fixture
def proxy(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[Proxy]:
    with fresh_database(fast_postgres_server.url) as url, Proxy(url) as made:
        yield made


def test_refused_rows_of_an_import_are_all_counted_and_the_first_found_are_shown_by_row() -> None:
    whole, part = ImportReport(rows=900), ImportReport()
    whole.refuse(700, "late")
    for row in range(1, MOST_FAULTS + 51):
        part.refuse(row, "early")
    whole.add(part)
    assert whole.refused == MOST_FAULTS + 51
    assert [one.row for one in whole.faults] == [*range(1, MOST_FAULTS), 700]


@pytest.mark.parametrize("name", ["Nearby", "import", "李"])
def test_id_from_a_name_is_a_path_of_no_other_route(name: str) -> None:
    assert id_from_name(name) not in {"", *RESERVED}


async def names(directory: Directory) -> list[str]:
    async with directory.read() as session:
        rows = await session.execute(text("SELECT name FROM field_settings ORDER BY name"))
        return [str(row[0]) for row in rows]


async def write(directory: Directory, name: str) -> None:
    async with directory.change() as session:
        told = "INSERT INTO field_settings VALUES (:name, '{}', 1)"
        await session.execute(text(told), {"name": name})


async def test_concurrent_writers_wait_for_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/directory.db"
    each = [directory_of(url) for _ in range(2)]
    for one in each:
        await one.open()
    wanted = [f"{n:03}" for n in range(120)]
    await asyncio.gather(*(write(each[n % 2], name) for n, name in enumerate(wanted)))
    assert await names(each[0]) == wanted
    for one in each:
        await one.close()


async def test_reader_during_a_write_sees_the_previous_state_and_blocks_no_writer(
    tmp_path: Path,
) -> None:
    directory = directory_of(f"sqlite:///{tmp_path}/directory.db")
    await directory.open()
    async with directory.read() as session:
        asked = text("SELECT count(*) FROM field_settings")
        assert (await session.execute(asked)).scalar_one() == 0
        await write(directory, "a")
        assert (await session.execute(asked)).scalar_one() == 0
    assert await names(directory) == ["a"]
    await directory.close()


async def test_change_that_raises_writes_nothing(tmp_path: Path) -> None:
    directory = directory_of(f"sqlite:///{tmp_path}/directory.db")
    await directory.open()
    message = "on the way"
    with pytest.raises(RuntimeError, match=message):  # noqa: PT012  (the block is what is tested)
        async with directory.change() as session:
            await session.execute(text("INSERT INTO field_settings VALUES ('a', '{}', 1)"))
            raise RuntimeError(message)
    assert await names(directory) == []
    await directory.close()


async def test_unreachable_directory_is_reported_and_works_again_afterwards(
    proxy: Proxy,
) -> None:
    directory = directory_of(proxy.url)
    await directory.open()
    await write(directory, "before")
    proxy.refuse()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="the directory at postgresql"):
            await names(directory)
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await write(directory, "meanwhile")
    proxy.resume()
    await write(directory, "after")
    assert await names(directory) == ["after", "before"]
    await directory.close()


async def change_a(directory: Directory, changed: asyncio.Event, go_on: asyncio.Event) -> None:
    async with directory.change() as session:
        await session.execute(text("UPDATE field_settings SET version = 2 WHERE name = 'a'"))
        changed.set()
        await go_on.wait()


async def test_change_waits_for_a_stopped_process_only_for_a_limited_time(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.SESSION_LIMITS, "lock_timeout", "50ms")
    stopped, other = directory_of(proxy.url), directory_of(proxy.url)
    await stopped.open()
    await write(stopped, "a")
    await other.open()
    changed, go_on = asyncio.Event(), asyncio.Event()
    changing = asyncio.create_task(change_a(stopped, changed, go_on))
    await changed.wait()
    with pytest.raises(StoreUnavailable, match=r"locked by another change: .*lock timeout"):
        async with asyncio.timeout(LIMIT):
            await change_a(other, asyncio.Event(), go_on)
    go_on.set()
    await changing
    await change_a(other, changed, go_on)
    await other.close()
    await stopped.close()


async def test_change_of_a_stopped_process_is_ended_and_its_locks_released(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, other = directory_of(proxy.url), directory_of(proxy.url)
    await other.open()
    await write(other, "a")
    monkeypatch.setitem(engines.SESSION_LIMITS, "idle_in_transaction_session_timeout", "1s")
    await stopped.open()
    changed, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    done.set()
    changing = asyncio.create_task(change_a(stopped, changed, go_on))
    await changed.wait()
    async with asyncio.timeout(LIMIT):
        await change_a(other, changed, done)
    go_on.set()
    with pytest.raises(StoreUnavailable, match="idle-in-transaction"):
        await changing
    await other.close()
    await stopped.close()


async def test_postgresql_that_does_not_reply_is_given_up(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = directory_of(proxy.url)
    await directory.open()
    monkeypatch.setattr(engines, "SILENCE_S", 0.05)
    with pytest.raises(StoreUnavailable, match="does not answer"):  # noqa: PT012  (as above)
        async with asyncio.timeout(LIMIT), directory.change() as session:
            await session.connection()
            proxy.stall()
            await session.execute(text("INSERT INTO field_settings VALUES ('a', '{}', 1)"))
    proxy.resume()
    monkeypatch.undo()
    await write(directory, "after")
    assert await names(directory) == ["after"]
    await directory.close()


async def test_value_that_postgresql_cannot_store_is_refused_and_no_outage(
    proxy: Proxy,
) -> None:
    directory = directory_of(proxy.url)
    await directory.open()
    with pytest.raises(InvalidValue, match="cannot store such a value: PostgreSQL text fields"):
        await write(directory, "a\0b")
    await write(directory, "after")
    assert await names(directory) == ["after"]
    await directory.close()


async def test_unreachable_directory_does_not_open_and_opens_later(
    proxy: Proxy,
) -> None:
    directory = directory_of(proxy.url)
    proxy.refuse()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await directory.open()
    with pytest.raises(StoreUnavailable, match="not open"):
        await names(directory)
    proxy.resume()
    await directory.open()
    assert await names(directory) == []
    await directory.close()


async def test_directory_in_a_missing_folder_is_reported_as_configured(tmp_path: Path) -> None:
    directory = directory_of(f"sqlite:///{tmp_path}/nowhere/directory.db")
    with pytest.raises(StoreUnavailable) as refused:
        await directory.open()
    said = f"the directory at sqlite:///{tmp_path}/nowhere/directory.db does not answer: unable to"
    assert refused.value.message.startswith(said)
    assert "its folder must exist" in (refused.value.hint or "")
    for one in threading.enumerate():
        if "_connection_worker_thread" in one.name:
            one.join(30)  # the driver's thread: it still notifies the loop of its exit


async def test_directory_without_its_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    directory = directory_of("postgresql://127.0.0.1:1/headway")
    with pytest.raises(InvalidValue, match="psycopg, which is not installed") as refused:
        await directory.open()
    assert refused.value.hint == "pip install 'headway[postgres]'"


def test_location_is_shown_without_the_password() -> None:
    place = Directory("postgres://ada:secret@db.example/shop").place
    assert place == "postgresql://ada:***@db.example/shop"


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "nothing",
        "mysql://localhost/x",
        "postgresql://db..example/x",
        "postgresql://db.example/x?pooled=maybe",
    ],
)
def test_url_of_anything_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="directory"):
        Directory(url)


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def test_files_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    directory = directory_of(f"sqlite:///{tmp_path}/directory.db")
    await directory.open()
    await write(directory, "a")
    modes = modes_in(tmp_path)
    await directory.close()
    assert modes["directory.db"] == 0o600
    assert set(modes.values()) == {0o600}


async def test_full_device_is_reported_with_what_to_do(tmp_path: Path, proxy: Proxy) -> None:
    each = (
        (f"sqlite:///{tmp_path}/directory.db", "PRAGMA max_page_count = 1"),
        # The server reports a full device by this code.
        (proxy.url, "DO $$ BEGIN RAISE 'device full' USING ERRCODE = '53100'; END $$"),
    )
    for url, full in each:
        directory = directory_of(url)
        await directory.open()
        with pytest.raises(StoreUnavailable, match="cannot be written") as caught:  # noqa: PT012  (the device is full in the block)
            async with directory.change() as session:
                await session.execute(text(full))
                told = "INSERT INTO field_settings VALUES ('a', :value, 1)"
                await session.execute(text(told), {"value": "x" * 100_000})
        assert caught.value.hint == "free some space on its device"
        assert await names(directory) == []
        await directory.close()


async def test_several_hosts_are_tried_in_order(
    fast_postgres_server: PostgresServer | GivenPostgres,
) -> None:
    """The directory is by default in the store's database, whose URL may name several hosts."""
    with fresh_database(fast_postgres_server.url) as url:
        head, at, place = url.rpartition("@")
        mark = "&" if "?" in place else "?"
        directory = directory_of(
            f"{head}{at}127.0.0.1:1,{place}{mark}target_session_attrs=read-write"
        )
        await directory.open()
        await write(directory, "a")
        assert await names(directory) == ["a"]
        await directory.close()


def test_password_is_not_shown_if_there_are_several_hosts() -> None:
    place = Directory("postgres://ada:s3cret,@db-1,db-2:5433/shop?connect_timeout=3").place
    assert "s3cret" not in place
    assert "db-1" in place
    assert "db-2" in place


@pytest.mark.parametrize("url", ["postgresql://db:port/shop", "postgresql://db:1,db:port/shop"])
def test_url_with_an_invalid_port_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="URL is not valid"):
        Directory(url)


async def test_settings_of_the_role_or_url_change_neither_encoding_nor_isolation(
    fast_postgres_server: PostgresServer | GivenPostgres,
) -> None:
    with fresh_database(fast_postgres_server.url) as url:
        mark = "&" if "?" in url else "?"
        # What a role's settings do, too.
        strict = "options=-cdefault_transaction_isolation%3Dserializable&client_encoding=LATIN1"
        directory = directory_of(f"{url}{mark}{strict}")
        await directory.open()
        await write(directory, "Łódź")
        assert await names(directory) == ["Łódź"]
        async with directory.change() as session:
            level = await session.execute(text("SHOW transaction_isolation"))
            assert level.scalar_one() == "read committed"
        await directory.close()


@pytest.mark.parametrize(
    ("option", "prepared", "lock_timeout"), [("", True, "10s"), ("?pooled=on", False, "0")]
)
async def test_nothing_is_prepared_and_set_behind_a_pooler(
    fast_postgres_server: PostgresServer | GivenPostgres,
    option: str,
    prepared: bool,
    lock_timeout: str,
) -> None:
    with fresh_database(fast_postgres_server.url) as url:
        directory = directory_of(url + option)
        await directory.open()
        async with directory.read() as session:
            for _ in range(10):
                await session.execute(text("SELECT 1"))
            found = await session.scalar(text("SELECT count(*) FROM pg_prepared_statements"))
            limit = await session.scalar(text("SHOW lock_timeout"))
        await directory.close()
    assert bool(found) is prepared
    assert limit == lock_timeout


async def test_vanished_postgresql_is_detected_by_keepalives(
    fast_postgres_server: PostgresServer | GivenPostgres,
) -> None:
    with fresh_database(fast_postgres_server.url) as url:
        mark = "&" if "?" in url else "?"
        directory = directory_of(f"{url}{mark}keepalives_idle=7")
        await directory.open()
        async with directory.read() as session:
            connection = await (await session.connection()).get_raw_connection()
            driver = connection.driver_connection
            assert driver is not None
            given = driver.info.get_parameters()
            assert given["keepalives_idle"] == "7"  # the URL takes precedence
            assert int(given["tcp_user_timeout"]) > 0
            assert int(given["connect_timeout"]) > 0
        await directory.close()
