"""Enqueue within a caller's transaction: the jobs exist if and only if it commits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from headway.contract.store import Sent
from headway.core.errors import InvalidValue
from headway.core.job import NewJob
from headway.stores.ledger.calls import in_thread
from headway.stores.postgres.connection import ADAPTERS, Connection
from headway.stores.postgres.failures import DriverError, explain
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.shared import Woken

Driver = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
AfterCommit = Callable[[Callable[[], None]], None]
"""Registers a function to be called after the caller's transaction has committed."""

_HINT = (
    "pass a connection of psycopg 3, a Session or Connection of SQLAlchemy on psycopg 3, or"
    " Django's connection"
)
_AWAITED = "the connection is one that is awaited"
_AWAIT = "await app.send_async(..., connection=...)"
_pending: WeakKeyDictionary[object, list[Callable[[], None]]] = WeakKeyDictionary()
"""Callbacks for the next commit, by SQLAlchemy session."""
_NAMES = {1: "READ UNCOMMITTED", 2: "READ COMMITTED", 3: "REPEATABLE READ", 4: "SERIALIZABLE"}


class CallerConnection(psycopg.Connection[tuple[Any, ...]]):
    """The caller's connection with the store's types and rows, without prepared statements.

    It starts and ends no transaction on its own, and is never closed, because the caller owns it.
    """

    def __init__(self, pgconn: psycopg.pq.abc.PGconn) -> None:
        super().__init__(pgconn, tuple_row)
        self._autocommit = True
        # Names of prepared statements would conflict with the caller's.
        self.prepare_threshold = None

    def __del__(self, *_: object) -> None:
        """Leave the connection open, without a warning."""

    @property
    def adapters(self) -> AdaptersMap:
        """Return the store's adapters."""
        return ADAPTERS


def find_driver(given: object) -> Driver:
    """Return the driver's connection behind an object passed by the caller.

    Args:
        given: an object of psycopg, SQLAlchemy (a transaction is started if none is open) or
            Django.

    Raises:
        InvalidValue: it contains no psycopg 3 connection.
    """
    found: Any = _unscoped(given)
    if hasattr(found, "sync_session") or hasattr(found, "get_raw_connection"):
        raise InvalidValue(_AWAITED, hint=_AWAIT)
    for _ in range(4):
        if isinstance(found, psycopg.Connection | psycopg.AsyncConnection):
            return cast("Driver", found)
        if hasattr(found, "ensure_connection"):
            found.ensure_connection()
        if hasattr(found, "driver_connection"):
            found = found.driver_connection
        elif callable(getattr(found, "in_transaction", None)):
            found = _of_sqlalchemy(found)
        else:
            found = getattr(found, "connection", cast("Any", None))
    kind = type(given)
    message = f"a {kind.__module__}.{kind.__qualname__} is not a connection to the store's database"
    raise InvalidValue(message, hint=_HINT)


def _unscoped(given: Any) -> Any:  # noqa: ANN401  (known by its shape alone)
    """Return the session of this thread or task if given a scoped SQLAlchemy session."""
    registry = getattr(given, "registry", None)
    return registry() if callable(registry) else given


def _of_sqlalchemy(found: Any) -> Any:  # noqa: ANN401  (known by its shape alone)
    inner = found.connection
    if callable(inner):
        # A Session: this starts its transaction.
        return inner()
    if not found.in_transaction():
        # Its `commit` does nothing unless it knows of a transaction.
        found.begin()
    return inner


async def find_driver_async(given: object) -> Driver:
    """Like `find_driver`, but also accept async connections and sessions.

    Raises:
        InvalidValue: it contains no psycopg 3 connection.
    """
    found = _unscoped(given)
    if hasattr(found, "sync_session") and callable(getattr(found, "connection", None)):
        found = await found.connection()
    if hasattr(found, "get_raw_connection"):
        if not found.in_transaction():
            await found.begin()
        found = await found.get_raw_connection()
    return find_driver(found)


def after_commit(given: object) -> AfterCommit | None:
    """Return how to register a commit callback; None except for Django and SQLAlchemy sessions."""
    found: Any = given
    hook = getattr(found, "on_commit", None)
    if callable(hook):
        return cast("AfterCommit", hook)
    found = _unscoped(found)
    session = getattr(found, "sync_session", found)
    events: Any = sys.modules.get("sqlalchemy.event")
    if events is None or not callable(getattr(session, "get_bind", None)):
        return None
    pending = _pending.get(session)
    if pending is None:
        # A session lives for many transactions; attach the listeners once.
        pending = _pending[session] = []
        events.listen(session, "after_commit", partial(_committed, pending))
        events.listen(session, "after_rollback", partial(_rolled_back, pending))
    return pending.append


# SQLAlchemy also reports the ends of savepoints.


def _committed(pending: list[Callable[[], None]], session: Any) -> None:  # noqa: ANN401
    if session.in_nested_transaction():
        return
    calls = pending[:]
    pending.clear()
    for call in calls:
        call()


def _rolled_back(pending: list[Callable[[], None]], session: Any) -> None:  # noqa: ANN401
    if not session.in_nested_transaction():
        pending.clear()


def check_usable(connection: Driver) -> None:
    """Validate the state of a connection.

    Raises:
        InvalidValue: it is closed, its transaction has failed, or it is in pipeline mode.
    """
    status = connection.pgconn.transaction_status
    if status == TransactionStatus.INERROR:
        message = "the transaction of the caller's connection has failed already"
        raise InvalidValue(message, hint="roll it back, to a savepoint or whole; nothing was sent")
    if status == TransactionStatus.UNKNOWN:
        message = "the caller's connection is closed"
        raise InvalidValue(message, hint="open another one; nothing was sent")
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        message = "the caller's connection is in pipeline mode"
        raise InvalidValue(message, hint="send the job before or after the pipeline")


@contextmanager
def as_caller_connection(connection: Driver) -> Generator[Connection]:
    """Use the caller's connection, in its open transaction.

    If no transaction is open, start one as the driver would; on an autocommit connection, it is
    committed on exit.

    Args:
        connection: usable, and locked by the caller.

    Yields:
        The connection with the store's types and rows.
    """
    pgconn = connection.pgconn
    handlers = pgconn.notice_handler, pgconn.notify_handler
    borrowed = CallerConnection(pgconn)
    try:
        if pgconn.transaction_status != TransactionStatus.IDLE:
            yield borrowed
        elif not connection.autocommit:
            borrowed.execute(_begin(connection).encode())
            yield borrowed
        else:
            with borrowed.transaction():
                yield borrowed
    finally:
        pgconn.notice_handler, pgconn.notify_handler = handlers


def _begin(connection: Driver) -> str:
    words = ["BEGIN"]
    if connection.isolation_level is not None:
        words.append(f"ISOLATION LEVEL {_NAMES[connection.isolation_level.value]}")
    if connection.read_only is not None:
        words.append("READ ONLY" if connection.read_only else "READ WRITE")
    if connection.deferrable is not None:
        words.append("DEFERRABLE" if connection.deferrable else "NOT DEFERRABLE")
    return " ".join(words)


Insert = Callable[[Connection, Sequence[NewJob]], tuple[list[Sent], Woken]]
"""Insert in a savepoint of the open transaction; return the replies and the lanes to wake."""


class Inserting:
    """Transactional enqueue.

    Args:
        announce: wakes lanes; called after the commit.
    """

    def __init__(
        self, options: PostgresOptions, insert: Insert, announce: Callable[[Woken], None]
    ) -> None:
        self._options = options
        self._insert = insert
        self._announce = announce

    def enqueue(self, given: object, jobs: Sequence[NewJob]) -> list[Sent]:
        """See `InsertsWithin.enqueue_within`.

        Raises:
            InvalidValue: it is no connection that can be used here.
            StoreError: the database refused; the transaction is as it was before.
        """
        driver = find_driver(given)
        if not isinstance(driver, psycopg.Connection):
            raise InvalidValue(_AWAITED, hint=_AWAIT)
        with driver.lock:
            replies, woken = self._within(driver, jobs)
        self._notify(given, driver, woken)
        return replies

    async def enqueue_async(self, given: object, jobs: Sequence[NewJob]) -> list[Sent]:
        """See `InsertsWithin.enqueue_within_async`.

        Raises:
            InvalidValue: it is no connection that can be used here.
            StoreError: the database refused; the transaction is as it was before.
        """
        driver = await find_driver_async(given)
        if isinstance(driver, psycopg.Connection):
            with_lock = driver

            def locked() -> tuple[list[Sent], Woken]:
                with with_lock.lock:
                    return self._within(with_lock, jobs)

            # The owner must not use the connection while the thread still uses it.
            replies, woken = await in_thread(locked)
        else:
            async with driver.lock:
                replies, woken = await in_thread(lambda: self._within(driver, jobs))
        self._notify(given, driver, woken)
        return replies

    def _within(self, driver: Driver, jobs: Sequence[NewJob]) -> tuple[list[Sent], Woken]:
        check_usable(driver)
        try:
            with as_caller_connection(driver) as borrowed:
                return self._insert(borrowed, jobs)
        except DriverError as error:
            raise explain(error, self._options) from error

    def _notify(self, given: object, driver: Driver, woken: Woken) -> None:
        if not woken:
            return
        if driver.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            # The enqueue had its own transaction, which is committed.
            self._announce(woken)
        elif (register := after_commit(given)) is not None:
            register(lambda: self._announce(woken))
