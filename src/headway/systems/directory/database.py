"""The directory's database: its sessions, and its errors as Headway's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from sqlite3 import SQLITE_BUSY, SQLITE_FULL, SQLITE_READONLY
from threading import Thread
from typing import Any

import aiosqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from headway.core.errors import InvalidValue, StoreMisconfigured, StoreUnavailable
from headway.systems.directory.engines import BUSY_S, parse_url, postgres_engine, sqlite_engine
from headway.systems.directory.schemas import Migrated, Schema, migrate

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


class Directory:
    """The directory's database."""

    def __init__(self, url: str) -> None:
        """Parse the URL, "sqlite:///…" or "postgresql://…"; open nothing yet.

        Raises:
            InvalidValue: the URL is neither.
        """
        self._url = parse_url(url)
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
            return sqlite_engine(self._url, self._connect)
        return postgres_engine(self._url, lambda: self._engine is not None)

    async def _migrate(self, engine: AsyncEngine) -> list[Migrated]:
        async with _translate_errors(self.place):
            return [await migrate(engine, one) for one in self._schemas.values()]

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
