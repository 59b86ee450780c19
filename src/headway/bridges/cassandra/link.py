"""Settings, tables, statements and connection of the calendar and the history in Cassandra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import AfterValidator, Field, SecretStr

from headway.core.job import DAY_MS
from headway.core.naming import check_host
from headway.runtime.settings_table import Span, Table, read_table

FARTHEST_MS = 5 * 365 * DAY_MS
"""Maximum TTL of any row: Cassandra's expiry times end in 2038 or 2106."""

_Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Factor = Annotated[int, Field(ge=1, le=99)]


class CassandraSettings(Table):
    """The table [cassandra]; durations are in milliseconds once parsed.

    Attributes:
        hosts: some nodes of the cluster.
        port: port of their native protocol.
        datacenter: data centre whose nodes are queried (default: that of the first host).
        username: role that may read and write the keyspace.
        password: password of the role.
        tls_ca: file with the certificates that sign those of the nodes; None for no TLS.
        keyspace: keyspace of the tables.
        replication: copies of each row, a number or one for each data centre. If set, the keyspace
            is created if it does not exist.
        calendar: name of the jobs' table; the names of other tables start with it.
        shards: number of partitions per minute, fixed when the calendar is created.
        consistency: consistency level of reads and writes; reads see all acknowledged writes.
        horizon: how far the leader reads ahead.
        margin: only jobs due later than the horizon by more than this are written to the calendar.
        every: how long the leader pauses between rounds.
        at_once: maximum number of concurrent requests in each process.
        history: whether timelines include notifications that the store has deleted.
        history_kept: how long after its intake a notification stays in the history.
    """

    hosts: Annotated[list[Annotated[str, AfterValidator(check_host)]], Field(min_length=1)]
    port: int = Field(default=9042, ge=1, le=65_535)
    datacenter: str | None = None
    username: str | None = None
    password: SecretStr | None = None
    tls_ca: str | None = None
    keyspace: _Name = "headway"
    replication: Factor | dict[str, Factor] | None = None
    calendar: _Name = "scheduled_notifications"
    shards: int = Field(default=16, ge=1, le=1_024)
    consistency: Literal["LOCAL_QUORUM", "QUORUM", "ALL"] = "LOCAL_QUORUM"
    horizon: Annotated[Span, Field(ge=60_000)] = 900_000
    margin: Annotated[Span, Field(ge=60_000)] = 120_000
    every: Annotated[Span, Field(ge=100)] = 15_000
    at_once: int = Field(default=64, ge=1, le=1_024)
    history: bool = False
    history_kept: Annotated[Span, Field(ge=DAY_MS, le=FARTHEST_MS)] = 365 * DAY_MS


def read_cassandra(written: Mapping[str, object]) -> CassandraSettings:
    """Read the table [cassandra]."""
    return read_table("cassandra", CassandraSettings, written)


HISTORY = "_history"
"""Suffix of the history table, which is created only if the history is enabled."""
TABLES = {
    "": """
        CREATE TABLE IF NOT EXISTS {t} (
            minute_bucket text, shard int, scheduled_at timestamp, id uuid, job blob,
            PRIMARY KEY ((minute_bucket, shard), scheduled_at, id)
        ) WITH CLUSTERING ORDER BY (scheduled_at ASC, id ASC)""",
    "_index": """
        CREATE TABLE IF NOT EXISTS {t}_index (
            name text PRIMARY KEY, id uuid, scheduled_at timestamp, body blob
        )""",
    "_refused": """
        CREATE TABLE IF NOT EXISTS {t}_refused (
            id uuid PRIMARY KEY, scheduled_at timestamp, job blob, reason text, refused_at timestamp
        )""",
    "_progress": """
        CREATE TABLE IF NOT EXISTS {t}_progress (
            name text PRIMARY KEY, shards int, done_through bigint, read_through bigint,
            rows_read bigint, enqueued bigint, late bigint, refused bigint,
            leader text, seen_at timestamp
        )""",
    HISTORY: """
        CREATE TABLE IF NOT EXISTS {t}_history (
            recipient text, month text, at timestamp, id text, status text, channel text,
            category text, template text, record text,
            PRIMARY KEY ((recipient, month), at, id)
        ) WITH CLUSTERING ORDER BY (at DESC, id DESC)""",
}
"""Tables by the suffix of their names. The index maps a job's id or key to its row."""


class Cql(Enum):
    """A statement with positional parameters."""

    PUT_ROW = """
        INSERT INTO {t} (minute_bucket, shard, scheduled_at, id, job) VALUES (?, ?, ?, ?, ?)
        USING TIMESTAMP ?"""
    GET_ROW = """
        SELECT job, writetime(job) FROM {t}
        WHERE minute_bucket = ? AND shard = ? AND scheduled_at = ? AND id = ?"""
    READ_BUCKET = """
        SELECT scheduled_at, id, job, writetime(job) FROM {t}
        WHERE minute_bucket = ? AND shard = ?"""
    DROP_ROW = """
        DELETE FROM {t} USING TIMESTAMP ?
        WHERE minute_bucket = ? AND shard = ? AND scheduled_at = ? AND id = ?"""
    DROP_BUCKET = "DELETE FROM {t} USING TIMESTAMP ? WHERE minute_bucket = ? AND shard = ?"

    PUT_INDEX = """
        INSERT INTO {t}_index (name, id, scheduled_at, body) VALUES (?, ?, ?, ?)
        USING TTL ? AND TIMESTAMP ?"""
    CLAIM_KEY = """
        INSERT INTO {t}_index (name, id, scheduled_at, body) VALUES (?, ?, ?, ?)
        IF NOT EXISTS USING TTL ?"""
    FREE_KEY = "DELETE FROM {t}_index WHERE name = ? IF id = ?"
    GET_INDEX = "SELECT name, scheduled_at, body FROM {t}_index WHERE name IN ?"

    PUT_REFUSED = """
        INSERT INTO {t}_refused (id, scheduled_at, job, reason, refused_at) VALUES (?, ?, ?, ?, ?)
        USING TIMESTAMP ?"""
    LIST_REFUSED = "SELECT id, scheduled_at, job, reason, writetime(reason) FROM {t}_refused"
    DROP_REFUSED = "DELETE FROM {t}_refused USING TIMESTAMP ? WHERE id = ?"

    MAKE_PROGRESS = """
        INSERT INTO {t}_progress
            (name, shards, done_through, read_through, rows_read, enqueued, late, refused)
        VALUES ('progress', ?, ?, ?, 0, 0, 0, 0) IF NOT EXISTS"""
    GET_PROGRESS = """
        SELECT shards, done_through, read_through, rows_read, enqueued, late, refused, leader,
            seen_at FROM {t}_progress WHERE name = 'progress'"""
    PUT_PROGRESS = """
        UPDATE {t}_progress USING TIMESTAMP ? SET done_through = ?, read_through = ?,
            rows_read = ?, enqueued = ?, late = ?, refused = ?, leader = ?, seen_at = ?
        WHERE name = 'progress'"""

    PUT_HISTORY = """
        INSERT INTO {t}_history
            (recipient, month, at, id, status, channel, category, template, record)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"""
    READ_HISTORY = """
        SELECT at, id, status, channel, category, template, record FROM {t}_history
        WHERE recipient = ? AND month = ? AND (at, id) < (?, ?) LIMIT ?"""

    @property
    def of_history(self) -> bool:
        """Whether it uses the history table."""
        return "{t}" + HISTORY in self.value

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return not self.value.lstrip().startswith("SELECT")

    @property
    def is_plain_write(self) -> bool:
        """Whether it writes without a condition, so that it can be part of a batch."""
        return self.writes and " IF " not in self.value


Values = Sequence[object]
Rows = Sequence[tuple[Any, ...]]

PAGE = 1_000
"""Rows per page; each page is enqueued in one step of the store."""


class RowPage(NamedTuple):
    """A page of rows, and the paging state of the next page; None after the last."""

    rows: Rows
    after: bytes | None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def ms_of(moment: datetime) -> int:
    """Convert a naive UTC datetime, as returned by the driver, to ms UTC."""
    return (moment.replace(tzinfo=UTC) - _EPOCH) // _MS


class Link(Protocol):
    """A connection for the calendar and the history.

    A failed read raises StoreUnavailable. A failed write raises OutcomeUnknown: it may have been
    applied, and can be repeated.
    """

    @property
    def settings(self) -> CassandraSettings:
        """The table [cassandra]."""
        ...

    async def run(self, statement: Cql, values: Values = (), after: bytes | None = None) -> RowPage:
        """Run a statement, and return the page of rows after a paging state."""
        ...

    async def run_many(self, statement: Cql, each: Sequence[Values]) -> list[Rows]:
        """Run a statement with each of these values, with bounded concurrency."""
        ...


class OpenLink(Link, Protocol):
    """A link that its creator opens and closes."""

    async def open(self) -> None:
        """Connect if the cluster responds; otherwise each use retries.

        Raises:
            InvalidValue: the keyspace does not exist.
        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
