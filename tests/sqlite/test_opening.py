"""Which files are opened, which are refused, and that a refused file is left unchanged."""

from __future__ import annotations

import gzip
import os
import resource
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest

import headway as hw
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DefineRequest, SetToken
from headway.contract.views import (
    JobsQuery,
    SpecsQuery,
    StatsQuery,
    TimetableQuery,
    TokensQuery,
)
from headway.core.errors import (
    InvalidValue,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import DAY_MS, JobPolicy
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.stores.sqlite import SqliteOptions, SqliteStore, connection, parse_url
from headway.stores.sqlite.connection import migrate
from headway.testing.clock import FakeClock
from headway.testing.conformance.granting import SENDER
from headway.testing.conformance.rig import Rig
from headway.testing.jobs import use_of
from tests.plain_jobs import assert_clean, count, job, jobs
from tests.sqlite.rig import drive, options

NOBODY = 65_534
"""A user who cannot write another user's files, unlike root."""


@contextmanager
def open_files(free: int) -> Iterator[None]:
    """Open files until this process may open only `free` more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    held: list[int] = []
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(held.pop())
        yield
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


async def used(path: Path) -> None:
    """Open a file, read it and write to it."""
    store = SqliteStore(options(path))
    try:
        await store.sweep(10)
        await count(store, "waiting")
        await store.enqueue(jobs(1000, 200))
    finally:
        await store.close()


@pytest.mark.parametrize("free", [0, 1])
def test_too_many_open_files_are_no_wrong_configuration(path: Path, free: int) -> None:
    drive(SqliteStore(options(path)).close())
    with open_files(free), pytest.raises(StoreUnavailable) as caught:
        SqliteStore(options(path))
    assert not isinstance(caught.value, StoreMisconfigured)
    drive(SqliteStore(options(path)).close())


@pytest.mark.parametrize("dropped", ["TABLE job", "TABLE number", "INDEX job_expiry"])
async def test_file_without_a_table_or_an_index_is_reported_as_another_schema(
    path: Path, dropped: str
) -> None:
    await used(path)
    db = apsw.Connection(str(path))
    db.execute(f"DROP {dropped}")
    db.close()
    missing = f"no such {dropped.partition(' ')[0].lower()}"
    with pytest.raises(SchemaMismatch, match=missing) as raised:
        await used(path)
    assert "restore a backup" in raised.value.hint


async def test_file_is_readable_only_by_its_owner(path: Path) -> None:
    old = os.umask(0)
    try:
        store = SqliteStore(options(path))
        await store.enqueue([job(1)])
        modes = {
            one.name: stat.S_IMODE(one.stat().st_mode)
            for one in path.parent.iterdir()
            if one.is_file()
        }
    finally:
        os.umask(old)
    assert set(modes.values()) == {0o600}
    assert {"headway.db", "headway.db-wal"} <= set(modes)
    await store.close()


async def test_jobs_are_there_when_the_file_is_opened_again(path: Path) -> None:
    store = SqliteStore(options(path))
    await store.enqueue(jobs(0, 10))
    await store.close()
    again = SqliteStore(options(path))
    assert await count(again, "waiting") == 10
    await assert_clean(again)
    await again.close()


def open_and_close(given: SqliteOptions) -> None:
    drive(SqliteStore(given).close())


@pytest.mark.parametrize("intrude", [migrate, open_and_close])
def test_file_created_between_two_statements_of_an_opening_is_opened(
    tmp_path: Path, intrude: Callable[[SqliteOptions], object]
) -> None:
    place, reached = 0, True
    while reached:
        path = tmp_path / f"{place}.db"
        other = partial(intrude, options(path, patience_ms=0))
        with before_statement(place, other) as was_reached:
            open_and_close(options(path))
        reached = was_reached()
        place += 1
    assert place > 10, "the statements of an opening were not seen"


@contextmanager
def before_statement(place: int, intrude: Callable[[], object]) -> Iterator[Callable[[], bool]]:
    """Call `intrude` once, just before this thread runs its n-th statement in any connection."""
    left, here = place, threading.get_ident()

    def trace(*_: object) -> bool:
        nonlocal left
        if threading.get_ident() == here:
            left -= 1
            if left == -1:
                # The opening process may hold a lock at this point: the other one is then refused.
                with suppress(StoreUnavailable):
                    intrude()
        return True

    def attach(db: apsw.Connection) -> None:
        db.exec_trace = trace

    apsw.connection_hooks.append(attach)
    try:
        yield lambda: left < 0
    finally:
        apsw.connection_hooks.remove(attach)


def test_file_whose_creator_was_killed_in_its_commit_is_created_again(path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        db = apsw.Connection(str(path))
        # As in an interrupted commit: some pages are in the file, their journal is on disk.
        db.execute("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN IMMEDIATE")
        db.execute("".join(statements for _, statements in connection.migrations()))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert path.with_name("headway.db-journal").stat().st_size > 0
    assert path.stat().st_size > 0
    open_and_close(options(path))
    db = apsw.Connection(str(path))
    assert db.pragma("application_id") == connection.APPLICATION_ID
    assert db.execute("SELECT count(*) FROM number").get > 0
    db.close()


async def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be created") as error:
        SqliteStore(options(tmp_path / "nowhere" / "headway.db"))
    assert "folder" in error.value.hint


async def test_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        SqliteStore(options(tmp_path))


def test_unwritable_file_is_refused() -> None:
    # Not in tmp_path: if root runs this, the child below is another user, who has no access there.
    with TemporaryDirectory() as folder:
        path = Path(folder) / "headway.db"
        open_and_close(options(path))
        os.chmod(path, 0o400)
        if os.geteuid() == 0:
            for one in (folder, *path.parent.iterdir()):
                os.chown(one, NOBODY, NOBODY)
        pid = os.fork()
        if pid == 0:
            said = 1
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)
                SqliteStore(options(path))
            except StoreUnavailable as error:
                said = 0 if "read-only" in str(error) else 2
            finally:
                os._exit(said)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    "content",
    [b"not a database at all, but long enough to have a header" * 40, b"x", b"\0" * 4096],
    ids=["text", "one byte", "zeros"],
)
async def test_file_that_is_not_a_database_is_refused_and_not_changed(
    path: Path, content: bytes
) -> None:
    put(path, content)
    with pytest.raises(StoreCorrupt) as error:
        SqliteStore(options(path))
    assert error.value.hint
    assert content_of(path) == content


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_foreign_database_is_refused_and_not_changed(path: Path, mode: str) -> None:
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", mode)
    db.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    db.close()
    before = content_of(path)
    with pytest.raises(SchemaMismatch, match="not one of Headway"):
        SqliteStore(options(path))
    assert content_of(path) == before


async def test_damaged_database_is_refused_or_reported_never_served_silently(path: Path) -> None:
    store = SqliteStore(options(path))
    await store.enqueue(jobs(0, 500, args=b'{"n":"' + b"x" * 300 + b'"}'))
    await store.close()
    whole = content_of(path)
    put(path, whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreCorrupt):
        await used(path)


async def test_database_whose_first_table_is_damaged_is_refused(path: Path) -> None:
    """Opening the file reads that table."""
    await SqliteStore(options(path)).close()
    db = apsw.Connection(str(path))
    page: int = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'number'").get
    size: int = db.execute("PRAGMA page_size").get
    db.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(size))
    with pytest.raises(StoreCorrupt, match="malformed"):
        SqliteStore(options(path))


async def test_truncated_file_is_reported(path: Path) -> None:
    store = SqliteStore(options(path))
    await store.enqueue(jobs(0, 500, args=b'{"n":"' + b"x" * 300 + b'"}'))
    await store.close()
    whole = content_of(path)
    put(path, whole[: len(whole) // 2])
    with pytest.raises(StoreCorrupt):
        await used(path)


async def test_newer_schema_is_refused_and_not_changed(path: Path) -> None:
    await SqliteStore(options(path)).close()
    db = apsw.Connection(str(path))
    db.pragma("user_version", connection.latest() + 1)
    db.close()
    before = content_of(path)
    with pytest.raises(SchemaMismatch, match="this program only supports") as error:
        SqliteStore(options(path))
    assert "upgrade" in error.value.hint
    assert content_of(path) == before


NEXT = "CREATE TABLE added (x INTEGER) STRICT; INSERT INTO added VALUES (7);"


def with_next_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    now = connection.migrations()
    latest = now[-1][0] + 1
    monkeypatch.setattr(connection, "migrations", lambda: [*now, (latest, NEXT)])
    monkeypatch.setattr(connection, "latest", lambda: latest)


async def test_older_schema_is_refused_until_migrated_and_keeps_its_jobs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(options(path))
    await store.enqueue(jobs(0, 3))
    await store.close()
    before = connection.latest()
    with_next_migration(monkeypatch)
    with pytest.raises(SchemaMismatch) as error:
        SqliteStore(options(path))
    assert "headway migrate" in error.value.hint
    assert migrate(options(path)) == (before, before + 1)
    assert migrate(options(path)) == (before + 1, before + 1)
    db = apsw.Connection(str(path))
    assert db.execute("SELECT x FROM added").get == 7
    assert db.execute("SELECT count(*) FROM job").get == 3
    db.close()


@pytest.mark.parametrize("number", range(1, connection.latest()))
async def test_store_of_an_older_program_is_migrated_and_supports_everything_new(
    path: Path, number: int
) -> None:
    with pytest.MonkeyPatch.context() as older:
        shipped = connection.migrations()[:number]
        older.setattr(connection, "migrations", lambda: shipped)
        older.setattr(connection, "latest", lambda: number)
        older.setattr("headway.stores.sqlite.session.latest", lambda: number)
        store = SqliteStore(options(path))
        await store.enqueue(jobs(0, 3))
        await store.close()
    assert migrate(options(path)) == (number, connection.latest())
    store = SqliteStore(options(path))
    assert (await store.read(StatsQuery())).counts == {"waiting": 3}
    await store.define(DefineRequest(items=(SetToken(spec=SENDER),), author="ann"))
    assert [one.spec for one in await store.read(TokensQuery())] == [SENDER]
    await store.close()


@pytest.fixture
def written_by_schema_1(path: Path) -> Path:
    """A store of the first program: jobs in six states, three kinds of gates, three schedules.

    Its columns contain records as that program encoded them. A field that has another name since
    then would be read as its default.
    """
    packed = Path(__file__).with_name("schema_1.db.gz").read_bytes()
    path.write_bytes(gzip.decompress(packed))
    return path


async def test_records_written_by_the_first_program_are_read_unchanged(
    written_by_schema_1: Path,
) -> None:
    path = written_by_schema_1
    assert migrate(options(path)) == (1, connection.latest())
    store = SqliteStore(options(path))
    views = [one for one in (await store.read(JobsQuery(runs=True))).rows if one.entry is None]
    done, dead, awaiting, later, cancelled, waiting = views
    assert [one.state for one in views] == [
        State.SUCCEEDED,
        State.DEAD,
        State.AWAITING,
        State.SCHEDULED,
        State.CANCELLED,
        State.WAITING,
    ]
    assert (done.tenant, done.key, done.args, done.result) == (
        "acme",
        "call-1",
        b'{"n":1}',
        b'{"n":1}',
    )
    assert done.policy == JobPolicy(
        retry=RetryPolicy(attempts=7, base_ms=2_000, cap_ms=180_000, jitter="full"),
        timeout_ms=9_000,
        keep_ms=40 * DAY_MS,
    )
    assert done.gates == (
        GateUse(name="line", template="line", shared=True),
        GateUse(name="r", template="r", shared=True),
        GateUse(name="account:1", template="account:{n}"),
    )
    assert dict(done.runs[0].permits) == {"line": "", "r": "", "account:1": ""}
    assert (dead.reason, awaiting.subject, later.priority) == ("it is bad", "lead 7", 7)
    assert later.gates == (
        GateUse(name="open", template="open", shared=True, zone="Europe/Berlin"),
    )
    assert cancelled.reason == "not needed"
    assert set(await store.read(SpecsQuery())) == {
        hw.Slots("account:{n}", 1),
        hw.Slots("line", 2),
        hw.Hours("open", "09:00-17:00", days="mon-fri", tz="Europe/Berlin"),
        hw.Rate("r", 100, per="1m"),
    }
    entries = {one.spec.name: one.spec for one in await store.read(TimetableQuery())}
    assert {name: spec.schedule for name, spec in entries.items()} == {
        "nightly": hw.Cron("30 2 * * *", tz="Europe/Berlin"),
        "poll": hw.Every(1_800_000),
        "weekly": hw.At("09:00", tz="UTC", days="mon"),
    }
    assert (entries["nightly"].misfire, entries["nightly"].overlap) == ("skip", "skip")
    claim = ClaimRequest(worker="w", request=1, lanes=(("calls", 1),), n=9, free=9)
    assert [one.id for one in (await store.claim(claim)).jobs] == [waiting.id]
    await store.close()


async def test_job_that_an_older_program_parked_as_unfit_starts_when_the_capacity_is_raised(
    path: Path,
) -> None:
    clock, licence = FakeClock(), Slots("licence:{name}", 1)
    store = SqliteStore(options(path), clock=clock)
    rig = Rig(store, clock)
    await rig.declare(licence)
    jobs = [await rig.add(gates=(use_of(licence, n, name="cad"),)) for n in (9, 3, 2)]
    assert await rig.worker.take(9) == []
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("UPDATE job SET ticket_amount = 0")
    db.close()
    store = SqliteStore(options(path), clock=clock)
    rig = Rig(store, clock)
    await rig.cap("licence:cad", 2)
    assert await rig.worker.take_ids(9) == [jobs[2].id]
    await rig.cap("licence:cad", 5)
    assert await rig.worker.take_ids(9) == [jobs[1].id]
    await store.close()


async def test_running_store_stops_when_its_schema_is_replaced(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue([job(1)])
    with monkeypatch.context() as patch:
        with_next_migration(patch)
        migrate(options(path))
    with pytest.raises(SchemaMismatch) as error:
        await store.enqueue([job(2)])
    assert "restart" in error.value.hint


async def test_failed_migration_leaves_the_old_schema(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await SqliteStore(options(path)).close()
    now = connection.migrations()
    broken = (now[-1][0] + 1, "CREATE TABLE half (x); CREATE TABLE job (x);")
    with monkeypatch.context() as patch:
        patch.setattr(connection, "migrations", lambda: [*now, broken])
        patch.setattr(connection, "latest", lambda: broken[0])
        with pytest.raises(Exception, match="already exists"):
            migrate(options(path))
    db = apsw.Connection(str(path))
    assert not db.table_exists("main", "half")
    db.close()
    await used(path)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///headway.db", "headway.db"),
        ("sqlite:///folder/a%20b.db", "folder/a b.db"),
        ("sqlite:////var/lib/headway.db", "/var/lib/headway.db"),
    ],
)
def test_url_names_a_relative_or_an_absolute_path(url: str, expected: str) -> None:
    assert str(parse_url(url).path) == expected
    assert parse_url(url).synchronous == "full"


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://headway.db",
        "sqlite:///:memory:",
        "sqlite:///x.db?synchronous=off",
        "sqlite:///x.db?sync=full",
        "sqlite:///x.db?patience_ms=soon",
        "sqlite:///a%00b.db",
        "mysql://x",
        "headway.db",
        "",
        3,
    ],
)
def test_url_without_a_store_is_refused_with_a_hint(url: Any) -> None:
    with pytest.raises(InvalidValue) as error:
        open_store(url)
    assert error.value.hint


async def test_urls_open_their_stores(path: Path) -> None:
    memory = open_store("memory://")
    file = open_store(f"sqlite:///{path}?synchronous=NORMAL&reserve_bytes=0&patience_ms=500")
    assert isinstance(memory, MemoryStore)
    assert isinstance(file, SqliteStore)
    await memory.close()
    await file.close()


async def test_closed_store_refuses_and_a_second_close_does_nothing(store: SqliteStore) -> None:
    await store.enqueue([job(1)])
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.enqueue([job(2)])
    with pytest.raises(StoreError, match="closed"):
        await count(store, "waiting")
