"""Connections to the directory: its URL, and SQLAlchemy's engines for SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from sqlite3 import SQLITE_BUSY
from time import monotonic
from typing import Any

import aiosqlite
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from headway.core.errors import InvalidValue
from headway.core.naming import check_host
from headway.runtime.timing import pause

DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}
BUSY_S = 10.0
"""How long a writer waits for SQLite's write lock, or for a lock of PostgreSQL."""
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


def parse_url(url: str) -> URL:
    """Parse the URL of a directory, "sqlite:///…" or "postgresql://…".

    Raises:
        InvalidValue: the URL is neither.
    """
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


def postgres_engine(url: URL, is_limited: Callable[[], bool]) -> AsyncEngine:
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


def sqlite_engine(url: URL, connect: Callable[..., aiosqlite.Connection]) -> AsyncEngine:
    """Return an engine whose connections are made by `connect`."""
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
