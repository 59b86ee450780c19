"""The connection to Cassandra, by the official driver on a thread pool."""

# The driver has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from cassandra import ConsistencyLevel, DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.concurrent import execute_concurrent, execute_concurrent_with_args
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, tuple_factory

from headway.bridges.cassandra.link import (
    HISTORY,
    PAGE,
    TABLES,
    CassandraSettings,
    Cql,
    RowPage,
    Rows,
    Values,
)
from headway.core.errors import InvalidValue, OutcomeUnknown, StoreUnavailable

THREADS = 8
BATCH_ROWS = 10
BATCH_BYTES = 3_584
"""Limits of one batch. Cassandra warns above ten partitions or 5 KiB, and its count adds up to 140
bytes per row to the values.
"""
TIMEOUT_S = 10.0
"""Timeout of a statement; after it, the outcome is unknown."""

Reply = TypeVar("Reply")

_log = logging.getLogger("headway.cassandra")


class CassandraLink:
    """A session with a cluster, opened at first use.

    Blocking calls of the driver run on threads. The driver reconnects automatically.
    """

    def __init__(self, settings: CassandraSettings) -> None:
        self.settings = settings
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="headway-cassandra")
        self._opening = asyncio.Lock()
        self._session: Any = None
        self._prepared: Mapping[Cql, Any] = {}

    async def open(self) -> None:
        """Connect; if the cluster is unavailable, only log it, and retry at first use.

        Raises:
            InvalidValue: the keyspace does not exist.
        """
        try:
            await self._ready()
        except StoreUnavailable as error:
            _log.warning("cassandra unavailable, jobs due far ahead are refused: %s", error)

    async def close(self) -> None:
        """Disconnect after running statements have finished."""
        if self._session is not None:
            await self._on_thread(self._session.cluster.shutdown)
            self._session = None
        self._threads.shutdown(wait=False)

    async def run(self, statement: Cql, values: Values = (), after: bytes | None = None) -> RowPage:
        """See `Link.run`."""
        await self._ready()

        def work() -> RowPage:
            found = self._session.execute(self._prepared[statement], values, paging_state=after)
            return RowPage(found.current_rows or (), found.paging_state)

        return await self._guarded(work, writes=statement.writes)

    async def run_many(self, statement: Cql, each: Sequence[Values]) -> list[Rows]:
        """See `Link.run_many`."""
        if not each:
            return []
        await self._ready()

        def work() -> list[Rows]:
            prepared = self._prepared[statement]
            if statement.is_plain_write:
                execute_concurrent(
                    self._session, batches(prepared, each), concurrency=self.settings.at_once
                )
                return [()] * len(each)
            done: Any = execute_concurrent_with_args(
                self._session, prepared, each, concurrency=self.settings.at_once
            )
            return [found.current_rows or () for _, found in done]

        return await self._guarded(work, writes=statement.writes)

    # ------------------------------------------------------------------------------- opening

    async def _ready(self) -> None:
        if self._session is not None:
            return
        async with self._opening:
            if self._session is None:
                self._session = await self._guarded(self._connect, writes=False)

    def _connect(self) -> Any:  # noqa: ANN401  (the driver has no types)
        session: Any = _cluster(self.settings).connect()
        try:
            self._make_tables(session)
            table = f"{self.settings.keyspace}.{self.settings.calendar}"
            wanted = [one for one in Cql if self.settings.history or not one.of_history]
            self._prepared = {one: session.prepare(one.value.format(t=table)) for one in wanted}
            for prepared in self._prepared.values():
                prepared.is_idempotent = True
                prepared.fetch_size = PAGE
        except BaseException:
            session.cluster.shutdown()
            raise
        return session

    def _make_tables(self, session: Any) -> None:  # noqa: ANN401  (as above)
        """Create missing tables; check first, because concurrent creations of a table may conflict.

        Raises:
            InvalidValue: the keyspace does not exist, and `replication` is not set.
        """
        wanted = self.settings
        known: Any = session.cluster.metadata.keyspaces
        if wanted.keyspace not in known:
            if wanted.replication is None:
                message = f"cassandra.keyspace: there is no keyspace {wanted.keyspace!r}"
                raise InvalidValue(message, hint="create it, or set `replication`, such as to 3")
            session.execute(
                f"CREATE KEYSPACE IF NOT EXISTS {wanted.keyspace}"
                f" WITH replication = {_replication(wanted.replication)}"
            )
        there = known[wanted.keyspace].tables if wanted.keyspace in known else {}
        for suffix, statement in TABLES.items():
            # A role without permission to create tables must not fail on one that is not needed.
            needed = wanted.history or suffix != HISTORY
            if needed and wanted.calendar + suffix not in there:
                session.execute(statement.format(t=f"{wanted.keyspace}.{wanted.calendar}"))

    async def _guarded(self, work: Callable[[], Reply], *, writes: bool) -> Reply:
        """Run a call on a thread, and convert its errors.

        Raises:
            StoreUnavailable: a read failed.
            OutcomeUnknown: a write failed, and may have been applied.
        """
        try:
            return await self._on_thread(work)
        except (DriverException, NoHostAvailable, OSError) as error:
            kind = OutcomeUnknown if writes else StoreUnavailable
            message = f"cassandra: {type(error).__name__}: {error!s:.300}"
            raise kind(message, hint="see `headway doctor`; the call can be repeated") from error

    async def _on_thread(self, work: Callable[[], Reply]) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def batches(prepared: Any, each: Sequence[Values]) -> list[tuple[Any, None]]:  # noqa: ANN401  (the driver has no types)
    """Group rows into unlogged batches that stay below Cassandra's warning thresholds.

    Requests cost the driver and the node more than rows. A batch is not atomic: each partition is
    written separately, and if one fails, the outcome of every row is unknown.

    Args:
        prepared: a statement that writes without a condition.

    Returns:
        Arguments of `execute_concurrent`.
    """
    made: list[tuple[Any, None]] = []
    left = rows = 0
    for values in each:
        bound: Any = prepared.bind(values)
        size = sum(len(value) for value in bound.values if value)
        if not made or size > left or rows >= BATCH_ROWS:
            batch: Any = BatchStatement(batch_type=BatchType.UNLOGGED)
            batch.is_idempotent = True
            made.append((batch, None))
            left, rows = BATCH_BYTES, 0
        made[-1][0].add(bound)
        left, rows = left - size, rows + 1
    return made


def _cluster(settings: CassandraSettings) -> Any:  # noqa: ANN401  (the driver has no types)
    level = settings.consistency
    serial = "SERIAL" if level == "QUORUM" else "LOCAL_SERIAL"
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(settings.datacenter or "")),
        consistency_level=getattr(ConsistencyLevel, level),
        serial_consistency_level=getattr(ConsistencyLevel, serial),
        request_timeout=TIMEOUT_S,
        row_factory=tuple_factory,
    )
    more: dict[str, Any] = {}
    if settings.username is not None and settings.password is not None:
        secret = settings.password.get_secret_value()
        more["auth_provider"] = PlainTextAuthProvider(settings.username, secret)
    if settings.tls_ca is not None:
        context = ssl.create_default_context(cafile=settings.tls_ca)
        # The driver connects to IP addresses, which certificates rarely name.
        context.check_hostname = False
        more["ssl_context"] = context
    return Cluster(
        settings.hosts,
        port=settings.port,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(1.0, max_attempts=None),  # pyright: ignore[reportArgumentType]  (forever)
        **more,
    )


def _replication(wanted: int | dict[str, int]) -> dict[str, object]:
    if isinstance(wanted, int):
        return {"class": "SimpleStrategy", "replication_factor": wanted}
    return {"class": "NetworkTopologyStrategy", **wanted}
