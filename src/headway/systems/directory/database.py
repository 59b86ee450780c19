"""The directory's database: connections, sessions and migrations.

A new directory gets the current tables of each system. An older one is upgraded by the revisions of
each system, which are written with Alembic's operations.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from sqlite3 import SQLITE_BUSY, SQLITE_FULL, SQLITE_READONLY
from threading import Thread
from time import monotonic
from typing import Any

import aiosqlite
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    delete,
    event,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from headway.core.errors import InvalidValue, SchemaMismatch, StoreMisconfigured, StoreUnavailable
from headway.core.naming import check_host
from headway.runtime.timing import pause

DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}
BUSY_S = 10.0
"""How long a writer waits for SQLite's write lock, or for a lock of PostgreSQL."""
_HINTS = {
    True: "its folder must exist, and this user must be able to write to the folder and the file",
    False: "check that its server is running, and that the URL is correct",
}
_DISK_FULL = "53100"
"""SQLSTATE of PostgreSQL."""
_LOCKED = "55P03"
"""SQLSTATE of PostgreSQL."""
_NO_PRIVILEGE = "42501"
"""SQLSTATE of PostgreSQL. That a server is read-only is no such error: it may be failing over."""
_HOSTS = re.compile(r"^(postgres(?:ql)?://(?:[^/?]*@)?)([^/?@]*,[^/?@]*)(/[^?]*)?\??")
"""The start of a URL that names several hosts."""
_DEFAULTS = {
    # A server that has vanished must not hold up a job or a request for hours.
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Options of connections to PostgreSQL, as for a store; those in the URL take precedence."""
SESSION_LIMITS = {
    # A process that was stopped or lost in the middle of a change must not keep its locks, and no
    # other process may wait for them without a limit.
    "lock_timeout": f"{BUSY_S:.0f}s",
    "idle_in_transaction_session_timeout": "30s",
}
"""Settings of connections to PostgreSQL."""
SILENCE_S = 40.0
"""How long PostgreSQL may not reply to a statement, as for a store; migrations are not limited."""
CONNECTIONS = 10
"""Maximum number of open connections to SQLite."""
FIRST = "0001"
"""The first revision of every system."""
_LOCK = 0x6865_6164_7761_79
"""Key of the PostgreSQL advisory lock that makes processes migrate one at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """The tables of one system.

    Attributes:
        name: name of the system; the table `<name>_schema` contains the current revision.
        metadata: tables of a new directory.
        upgrades: upgrades of an older directory, by the revision they lead to, oldest first. One
            that creates a table from its definition must be written out when the definition
            changes.
    """

    name: str
    metadata: MetaData
    upgrades: Mapping[str, Callable[[], None]] = field(default_factory=dict[str, Any])

    @property
    def revisions(self) -> tuple[str, ...]:
        """All revisions, oldest first."""
        return (FIRST, *self.upgrades)


@dataclass(frozen=True, kw_only=True, slots=True)
class Migrated:
    """The result of migrating the tables of one system.

    Attributes:
        before: previous revision; None if there were no tables.
    """

    system: str
    before: str | None
    now: str | None


class Directory:
    """The directory's database."""

    def __init__(self, url: str) -> None:
        """Parse the URL, "sqlite:///…" or "postgresql://…"; open nothing yet.

        Raises:
            InvalidValue: the URL is neither.
        """
        self._url = _parse_url(url)
        self._engine: AsyncEngine | None = None
        self._schemas: dict[str, Schema] = {}
        self._threads: list[Thread] = []

    def needs(self, *schemas: Schema) -> None:
        """Add tables that `open` and `migrate` create or upgrade."""
        self._schemas |= {schema.name: schema for schema in schemas}

    @property
    def needed(self) -> tuple[Schema, ...]:
        """The required tables."""
        return tuple(self._schemas.values())

    async def open(self) -> None:
        """Connect, and migrate the required tables to this program's schema.

        Raises:
            SchemaMismatch: the tables are newer than this program, or it may not change them.
            InvalidValue: the driver of this database is not installed.
        """
        if self._engine is not None:
            return
        engine = self._make_engine()
        try:
            await self._migrate(engine)
        except BaseException:
            await self._dispose(engine)
            raise
        self._engine = engine

    async def migrate(self) -> list[Migrated]:
        """Migrate the required tables to this program's schema, and leave the database closed.

        Returns:
            The result for each system, in the order in which they were required.

        Raises:
            SchemaMismatch: the tables are newer than this program, or it may not change them.
            InvalidValue: the driver of this database is not installed.
        """
        engine = self._make_engine()
        try:
            return await self._migrate(engine)
        finally:
            await self._dispose(engine)

    def _make_engine(self) -> AsyncEngine:
        if self._url.get_backend_name() == "sqlite":
            return _sqlite_engine(self._url, self._connect)
        return _postgres_engine(self._url, lambda: self._engine is not None)

    async def _migrate(self, engine: AsyncEngine) -> list[Migrated]:
        async with _translate_errors(self.place):
            return [await _migrate(engine, one) for one in self._schemas.values()]

    async def close(self) -> None:
        """Close the connections; the directory can be opened again."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await self._dispose(engine)

    async def _dispose(self, engine: AsyncEngine) -> None:
        await engine.dispose()
        # Connections of cancelled tasks are in no pool. Their threads call back into this event
        # loop once more before they exit, so they must exit before the loop is closed.
        threads, self._threads = self._threads, []
        for thread in threads:
            if thread.is_alive():
                await asyncio.to_thread(thread.join, BUSY_S)

    def _connect(self, *args: Any, **options: Any) -> aiosqlite.Connection:  # noqa: ANN401
        """Connect to SQLite as SQLAlchemy does, and keep track of the connection's thread."""
        made = aiosqlite.connect(*args, **options)
        # The driver has no public attribute for it.
        thread = made._thread  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        thread.daemon = True
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        return made

    @property
    def place(self) -> str:
        """The URL as in the settings, without its password."""
        named = self._url.set(drivername=self._url.get_backend_name())
        return named.render_as_string(hide_password=True)

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        """Yield a session for reading; what it loaded stays usable afterwards."""
        async with (
            _translate_errors(self.place),
            AsyncSession(self._opened(), expire_on_commit=False) as one,
        ):
            yield one

    @asynccontextmanager
    async def change(self) -> AsyncGenerator[AsyncSession]:
        """Yield a session in its own transaction: committed at the end, rolled back on an error.

        Raises:
            StoreUnavailable: the database cannot be reached or changed; nothing was written, unless
                the connection broke during the commit.
        """
        # Take SQLite's write lock at the start: a transaction that reads first and writes later
        # fails if another one has written meanwhile.
        engine = self._opened().execution_options(headway_writes=True)
        made = AsyncSession(engine, expire_on_commit=False)
        async with _translate_errors(self.place), made as one, one.begin():
            yield one

    def _opened(self) -> AsyncEngine:
        if self._engine is None:
            message = "the directory is not open"
            raise StoreUnavailable(message, hint="it is opened with the server or worker")
        return self._engine


def _parse_url(url: str) -> URL:
    try:
        found = make_url(_HOSTS.sub(_hosts_as_options, url))
        check_host(found.host or "")
    except (ArgumentError, ValueError):
        message = "the directory's URL is not valid"
        raise InvalidValue(message, hint="use for example sqlite:///headway-directory.db") from None
    driver = DRIVERS.get(found.get_backend_name())
    if driver is None:
        message = f"the directory cannot be stored in {found.get_backend_name()}"
        raise InvalidValue(message, hint="use sqlite:///… or postgresql://…")
    made = found.set(drivername=driver)
    _is_pooled(made)
    return made


def _is_pooled(url: URL) -> bool:
    """Return the option `pooled`, as of a store's URL.

    Raises:
        InvalidValue: it is neither on nor off.
    """
    given = str(url.query.get("pooled", "off")).lower()
    if given not in {"on", "off"}:
        message = f"pooled is {given!r:.80} in the directory's URL"
        raise InvalidValue(message, hint="on or off")
    return given == "on"


def _hosts_as_options(url: re.Match[str]) -> str:
    """Return the start of a libpq URL with several hosts as SQLAlchemy reads it.

    Raises:
        ValueError: the port of one of them is not a number.
    """
    start, hosts, database = url.groups()
    for one in hosts.split(","):
        make_url(f"postgresql://{one}")
    return f"{start}{database or ''}?{'&'.join(f'host={one}' for one in hosts.split(','))}&"


def _postgres_engine(url: URL, is_limited: Callable[[], bool]) -> AsyncEngine:
    """Return an engine whose statements are limited to `SILENCE_S` while `is_limited` returns true.

    Raises:
        InvalidValue: the driver is not installed.
    """
    try:
        from psycopg import AsyncConnection  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        message = f"the directory needs the package {error.name}, which is not installed"
        raise InvalidValue(message, hint="pip install 'headway[postgres]'") from None

    class LimitedConnection(AsyncConnection[Any]):
        """A connection that is closed if the server does not reply."""

        async def wait(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401  (any statement's)
            if not is_limited():
                return await super().wait(*args, **options)
            # Not by cancelling this: the driver would then wait for the server again.
            timer = asyncio.get_running_loop().call_later(SILENCE_S, self._shut_down)
            try:
                return await super().wait(*args, **options)
            finally:
                timer.cancel()

        def _shut_down(self) -> None:
            with suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as own:
                own.shutdown(socket.SHUT_RDWR)

    pooled = _is_pooled(url)
    engine = create_async_engine(
        url.difference_update_query(["pooled"]),
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",
        connect_args={
            "async_creator_fn": LimitedConnection.connect,
            # Texts are sent as UTF-8, whatever PGCLIENTENCODING, the role or the URL says.
            "client_encoding": "UTF8",
            # A pooler gives each transaction another connection: prepare and set nothing.
            **({"prepare_threshold": None} if pooled else {}),
            **{name: n for name, n in _DEFAULTS.items() if name not in url.query},
        },
    )
    if not pooled:
        event.listen(engine.sync_engine, "connect", _limit)
    return engine


def _sqlite_engine(url: URL, connect: Callable[..., aiosqlite.Connection]) -> AsyncEngine:
    # Each connection is a thread, so overflow connections would start and stop threads all the
    # time. A database in memory has only one connection, and its pool has no size.
    in_memory = url.database in {None, "", ":memory:"}
    size = {} if in_memory else {"pool_size": CONNECTIONS, "max_overflow": 0}
    if not in_memory:
        _make_private(str(url.database))
    options = {"timeout": BUSY_S, "async_creator_fn": connect}
    engine = create_async_engine(url, connect_args=options, **size)
    event.listen(engine.sync_engine, "connect", _prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    event.listen(engine.sync_engine, "invalidate", _roll_back)
    return engine


def _make_private(path: str) -> None:
    """Create the file for its owner only, if it does not exist: it contains phone numbers."""
    with suppress(OSError):  # SQLite reports a wrong path next
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _limit(connection: Any, record: object) -> None:  # noqa: ANN401  (the driver's own type)
    del record
    cursor = connection.cursor()
    for name, value in SESSION_LIMITS.items():
        cursor.execute(f"SET {name} = '{value}'")
    cursor.close()
    connection.commit()


def _prepare(connection: Any, record: object) -> None:  # noqa: ANN401  (the driver's own type)
    del record
    try:
        # `_begin` starts the transactions, not the driver.
        connection.isolation_level = None
        connection.run_async(_use_wal)
        cursor = connection.cursor()
        for line in ("synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {line}")
        cursor.close()
    except BaseException:
        # If the task is cancelled here, the connection is not in a pool yet.
        connection.terminate()
        raise


async def _use_wal(connection: aiosqlite.Connection) -> None:
    # The first change of a file's mode ignores the busy timeout, so processes that open a new file
    # at the same time retry here.
    end = monotonic() + BUSY_S
    while True:
        try:
            await connection.execute("PRAGMA journal_mode=WAL")
        except aiosqlite.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != SQLITE_BUSY or monotonic() >= end:
                raise
            await pause(0.005)
        else:
            return


def _roll_back(connection: Any, record: object, error: object) -> None:  # noqa: ANN401  (as above)
    """Roll back the transaction of an invalidated connection, such as one of a cancelled task.

    SQLite keeps the locks of a closed connection until its last statement is gone. A cancelled task
    can refer to one until it is garbage collected, and meanwhile no other task could write.
    """
    del record, error
    with suppress(Exception):  # the connection is closed next, whatever its state
        connection.rollback()


def _begin(connection: Any) -> None:  # noqa: ANN401  (as above)
    writes = connection.get_execution_options().get("headway_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@asynccontextmanager
async def _translate_errors(place: str) -> AsyncGenerator[None]:
    """Translate database errors into Headway's.

    Raises:
        StoreUnavailable: the database does not answer, or its device is full.
        StoreMisconfigured: it does not permit this.
        InvalidValue: the database cannot store a value, so a retry would fail too.
        IntegrityError: a constraint was violated; only the caller of the block knows why.
    """
    try:
        yield
    except IntegrityError:
        raise
    except DataError as error:
        message = f"the directory cannot store such a value: {error.orig}"[:300]
        hint = "remove NUL characters, and numbers beyond 64 bits"
        raise InvalidValue(message, hint=hint) from error
    except (DBAPIError, PoolTimeout, OSError) as error:
        origin = getattr(error, "orig", error)
        reason = str(origin)[:200]
        state = getattr(origin, "sqlstate", None)
        code = getattr(origin, "sqlite_errorcode", 0) & 0xFF
        if state == _NO_PRIVILEGE or code == SQLITE_READONLY:
            message = f"the directory at {place} refused this: {reason}"
            hint = "its user must be able to read and change the tables"
            raise StoreMisconfigured(message, hint=hint) from error
        if state == _DISK_FULL or code == SQLITE_FULL:
            # Not StoreFull: it can still be read, and callers wait as for any other outage.
            message = f"the directory at {place} cannot be written: {reason}"
            raise StoreUnavailable(message, hint="free some space on its device") from error
        if state == _LOCKED or code == SQLITE_BUSY:
            message = f"the directory at {place} is locked by another change: {reason}"
            raise StoreUnavailable(message, hint="try again") from error
        message = f"the directory at {place} does not answer: {reason}"
        raise StoreUnavailable(message, hint=_HINTS[place.startswith("sqlite")]) from error


async def _migrate(engine: AsyncEngine, schema: Schema) -> Migrated:
    """Migrate the tables of a system to the newest revision.

    Raises:
        SchemaMismatch: the tables are newer than this program, or it may not change them; nothing
            was written.
    """
    try:
        async with engine.execution_options(headway_writes=True).begin() as connection:
            return await connection.run_sync(_upgrade, schema)
    except ProgrammingError as error:
        message = (
            f"the tables of {schema.name} in the directory are missing, outdated or not accessible"
        )
        hint = "run `headway migrate --system …` for each system, as a role that may alter tables"
        raise SchemaMismatch(message, hint=f"{hint}: {error.orig}") from error


def _upgrade(connection: Connection, schema: Schema) -> Migrated:
    if connection.dialect.name == "postgresql":
        # A migration may take longer than other changes, and one that was stopped is ended.
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    # The layout of Alembic's own version table.
    versions = Table(
        f"{schema.name}_schema",
        MetaData(),
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name=f"{schema.name}_schema_pkc"),
    )
    there = inspect(connection).has_table(versions.name)
    before = connection.execute(select(versions.c.version_num)).scalar() if there else None
    if before is not None and before not in schema.revisions:
        message = (
            f"the tables of {schema.name} in the directory are at {before!r}, which is unknown here"
        )
        raise SchemaMismatch(message, hint="they are newer: upgrade Headway")
    now = schema.revisions[-1]
    if before is None:
        schema.metadata.create_all(connection, checkfirst=False)
    else:
        pending = schema.revisions[schema.revisions.index(before) + 1 :]
        with Operations.context(MigrationContext.configure(connection)):
            for revision in pending:
                schema.upgrades[revision]()
    if before != now:
        versions.create(connection, checkfirst=True)
        connection.execute(delete(versions))
        connection.execute(insert(versions).values(version_num=now))
    return Migrated(system=schema.name, before=before, now=now)


def collated(length: int) -> String:
    """Return a text type that is compared by code point, as in Python."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def naming() -> MetaData:
    """Return metadata whose constraints have names, so that migrations can name them too."""
    return MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def tally_table(name: str, metadata: MetaData) -> None:
    """Add the table of a `tally.Tally`."""
    Table(
        name,
        metadata,
        Column("event", String(40), primary_key=True),
        Column("label", String(64), primary_key=True),
        Column("times", BigInteger, nullable=False),
    )


def tally_schema(name: str, table: str) -> Schema:
    """Return the schema of a tally whose table has its own revisions."""
    metadata = naming()
    tally_table(table, metadata)
    return Schema(name=name, metadata=metadata)
