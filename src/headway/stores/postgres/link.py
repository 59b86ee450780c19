"""The link to the server: sends statements in one pipeline, and reads their results together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from operator import call
from select import POLLIN, POLLOUT, poll
from struct import Struct
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import RawCursor, adapt, errors
from psycopg.pq import ConnStatus, ExecStatus, Format, abc

from headway.stores.postgres.arrays import DUMPERS
from headway.stores.postgres.connection import ADAPTERS, Connection, connect, silence_ms
from headway.stores.postgres.numbers import SERVER
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.statement import resolve
from headway.stores.sql.statement import Row, Rows

_INT8 = Struct("!q").pack
_BINARY = Format.BINARY
_FAILED = frozenset({ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.NONFATAL_ERROR})

Pack = Callable[[Any], Any]
_pack = cast("Callable[[Pack, Any], Any]", call)


def _packs() -> dict[type, tuple[int, Pack]]:
    made: dict[type, tuple[int, Pack]] = {
        int: (20, _INT8),
        str: (25, str.encode),
        bytes: (17, bytes),
        bool: (16, {True: b"\1", False: b"\0"}.__getitem__),
        type(None): (0, {None: None}.__getitem__),
    }
    for kind, dumper in DUMPERS:
        made[kind] = (dumper.oid, dumper(kind, ADAPTERS).dump)
    return made


_PACKS = _packs()

BoundStatement = tuple[str, Sequence[Any]]
"""A statement and its parameters."""
SYNC = "SYNC"
"""Separates two steps in a batch."""


_Key = tuple[str, tuple[type, ...]]
"""A statement and the types of its parameters."""


class _Plan(NamedTuple):
    """How a statement is sent: its prepared name, and how its parameters are packed."""

    name: bytes
    text: bytes
    packs: list[Pack]
    types: list[int]
    formats: list[Format]


class Link:
    """A connection that pipelines the statements of a namespace.

    Args:
        connection: in autocommit mode; not used by another caller meanwhile.
        silence_ms: how long the server may send nothing; None for no limit.

    Attributes:
        trips: number of round trips.
    """

    def __init__(
        self, connection: Connection, namespace: str, silence_ms: int | None = None
    ) -> None:
        self.connection = connection
        self.trips = 0
        self._namespace = namespace
        self._silence_ms = silence_ms
        self._prepare = connection.prepare_threshold is not None
        self._pgconn: abc.PGconn = connection.pgconn
        self._plans: dict[_Key, _Plan] = {}
        self._numbers = count(1)
        self._reader = adapt.Transformer(ADAPTERS)
        self._poll = poll()
        self._fd = self._pgconn.socket
        self._fresh: list[_Key] = []
        # Expected results: one for each statement, and one more if it is prepared first.
        self._counted: list[bool] = []

    def run(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        """Execute statements in order, in one round trip, and return the rows of each.

        Statements that were sent ahead come first. Outside a transaction, each part of the batch,
        up to a SYNC or the end, is atomic.

        Raises:
            psycopg.Error: the first failure; the statements after it in its part were not executed.
        """
        self.trips += 1
        try:
            results = self._exchange(batch)
        except BaseException:
            # Results that are still to arrive could be read as those of another call.
            self.connection.close()
            raise
        found: list[Rows] = []
        reader = self._reader
        for result in results:
            if result.status in _FAILED:
                error: psycopg.Error = errors.error_from_result(result)
                raise error
            if size := result.ntuples:
                reader.set_pgresult(result, format=_BINARY)
                found.append(reader.load_rows(0, size, tuple))
            else:
                found.append([])
        return found

    def send_ahead(self, batch: Sequence[BoundStatement]) -> None:
        """Send statements of the next `run` without waiting for their results.

        Raises:
            psycopg.Error: the connection broke.
        """
        try:
            self._send(batch)
            self._pgconn.flush()
        except BaseException:
            self.connection.close()
            raise

    def _send(self, batch: Sequence[BoundStatement]) -> int:
        """Queue statements, and return the number of SYNCs among them."""
        pgconn, plans, fresh, counted = self._pgconn, self._plans, self._fresh, self._counted
        if not counted:
            pgconn.enter_pipeline_mode()
        syncs = 0
        for statement, bound in batch:
            if statement == SYNC:
                pgconn.pipeline_sync()
                syncs += 1
            else:
                key = (statement, tuple(map(type, bound)))
                plan = plans.get(key)
                if plan is None:
                    plan = plans[key] = self._plan(*key)
                    if self._prepare:
                        fresh.append(key)
                        pgconn.send_prepare(plan.name, plan.text, plan.types)
                        counted.append(False)
                values = list(map(_pack, plan.packs, bound))
                if self._prepare:
                    pgconn.send_query_prepared(plan.name, values, plan.formats, _BINARY)
                else:
                    pgconn.send_query_params(plan.text, values, plan.types, plan.formats, _BINARY)
            counted.append(True)
        return syncs

    def _exchange(self, batch: Sequence[BoundStatement]) -> list[abc.PGresult]:
        """Return the result of each statement, or only the first failure."""
        pgconn = self._pgconn
        syncs = self._send(batch) + 1
        pgconn.pipeline_sync()
        found = self._read(syncs)
        pgconn.exit_pipeline_mode()
        return self._of_statements(found)

    def _of_statements(self, found: Sequence[abc.PGresult]) -> list[abc.PGresult]:
        counted, self._counted = self._counted, []
        fresh, self._fresh = self._fresh, []
        kept: list[abc.PGresult] = []
        for one, counts in zip(found, (*counted, False), strict=True):
            if one.status in _FAILED:
                for key in fresh:
                    # It may not have been prepared.
                    self._plans.pop(key, None)
                return [one]
            if counts:
                kept.append(one)
        return kept

    def _plan(self, statement: str, kinds: tuple[type, ...]) -> _Plan:
        oids, packs = zip(*(_PACKS[kind] for kind in kinds), strict=True) if kinds else ((), ())
        return _Plan(
            b"headway_%d" % next(self._numbers),
            resolve(statement, self._namespace).encode(),
            list(packs),
            list(oids),
            [_BINARY] * len(kinds),
        )

    def _read(self, syncs: int) -> list[abc.PGresult]:
        pgconn, waiter = self._pgconn, self._poll
        unsent = pgconn.flush()
        waiter.register(self._fd, POLLIN | (POLLOUT if unsent else 0))
        found: list[abc.PGresult] = []
        ended = True
        while syncs:
            if not waiter.poll(self._silence_ms):
                message = f"the server sent nothing for {self._silence_ms} ms"
                raise errors.OperationalError(message)
            pgconn.consume_input()
            if unsent:
                unsent = pgconn.flush()
                waiter.modify(self._fd, POLLIN | (POLLOUT if unsent else 0))
            while syncs and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    if ended:
                        break
                    ended = True
                    continue
                ended = False
                found.append(result)
                if result.status == ExecStatus.PIPELINE_SYNC:
                    syncs -= 1
                    ended = True
        return found

    def alive(self) -> bool:
        """Return whether the connection is usable, as far as is known without a request."""
        if self.broken:
            return False
        self._poll.register(self._fd, POLLIN)
        try:
            # A notice is read once; a closed connection is reported by each read.
            while self._poll.poll(0):
                self._pgconn.consume_input()
        except psycopg.Error:
            return False
        return self._pgconn.status == ConnStatus.OK

    @property
    def broken(self) -> bool:
        """Whether the connection is closed or broken."""
        return self.connection.closed or self.connection.broken

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def open_link(options: PostgresOptions) -> Link:
    """Open a link on a new connection of the store.

    Raises:
        StoreError: the server is unreachable or refuses; nothing was written.
        InvariantBroken: the server's refusal means a bug.
    """
    return Link(connect(options), options.namespace, silence_ms(options))


class CallerLink(Link):
    """A link on a connection that the caller owns."""

    def run(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        """Execute statements in order through the driver; see `Link.run`."""
        with self.connection.pipeline():
            cursors = [self._execute(text, bound) for text, bound in batch]
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def _execute(self, text: str, bound: Sequence[Any]) -> RawCursor[Row]:
        cursor = RawCursor(self.connection)
        cursor.execute(resolve(text, self._namespace).encode(), bound or None, binary=True)
        return cursor

    def alive(self) -> bool:
        """Return True: the connection is the caller's responsibility."""
        return True

    def close(self) -> None:
        """Do nothing: the caller owns the connection."""


def leads_to_current_server(link: Link, connect: Callable[[], Link]) -> bool:
    """Return whether a link is to the same server as a new connection.

    After a failover, an old connection may still lead to the replaced server, whose replies prove
    nothing about the store.
    """
    (here,) = link.run([(SERVER, ())])
    fresh = connect()
    try:
        (there,) = fresh.run([(SERVER, ())])
    finally:
        fresh.close()
    return here == there
