"""Connections to the server, with the store's settings."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import adapters
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.bool import BoolBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper, StrBinaryDumper

from headway.core.errors import InvariantBroken, StoreError
from headway.stores.postgres.arrays import DUMPERS
from headway.stores.postgres.failures import explain
from headway.stores.postgres.options import PostgresOptions

Connection = psycopg.Connection[tuple[Any, ...]]
"""A connection whose rows are tuples."""

PREPARED = 400
"""Maximum number of prepared statements per connection."""
_PLANS = (
    # Each statement scans one index; the planner must not choose otherwise if statistics are
    # missing or outdated.
    ("enable_seqscan", "off"),
    # An index read from one end needs its order; a bitmap scan would also visit all dead entries.
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_material", "off"),
    ("random_page_cost", "0.1"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
)
_LIMITS = (
    # A stopped client must not keep the lock, and no client may wait without a limit.
    ("lock_timeout", "{patience}"),
    ("statement_timeout", "{statement}"),
    ("idle_in_transaction_session_timeout", "{idle}"),
)
_ISOLATION = ("default_transaction_isolation", "read committed")
"""For statements outside explicit transactions."""
IDLE_MS = 10_000
"""How long an idle step may keep its locks."""


def statement_ms(options: PostgresOptions) -> int:
    """Return the timeout of a statement, including waits."""
    return 2 * options.patience_ms + IDLE_MS


def silence_ms(options: PostgresOptions) -> int:
    """Return how long a server may send nothing before the connection is dropped.

    A running server reports its own timeouts earlier, so a server that is silent for this long is
    stopped or unreachable.
    """
    return statement_ms(options) + options.patience_ms


def make_adapters() -> AdaptersMap:
    """Return adapters that send each type as one SQL type, so that statements are prepared once."""
    made = AdaptersMap(adapters)
    made.register_dumper(int, Int8BinaryDumper)
    made.register_dumper(str, StrBinaryDumper)
    made.register_dumper(bytes, BytesBinaryDumper)
    made.register_dumper(bool, BoolBinaryDumper)
    for kind, dumper in DUMPERS:
        made.register_dumper(kind, dumper)
    return made


ADAPTERS = make_adapters()


def settings(options: PostgresOptions) -> tuple[tuple[str, str], ...]:
    """Return name and value of each setting of the store's connections."""
    spans = {
        "patience": str(options.patience_ms),
        "statement": str(statement_ms(options)),
        "idle": str(IDLE_MS),
    }
    return (_ISOLATION, *_PLANS, *((name, value.format(**spans)) for name, value in _LIMITS))


def connect(options: PostgresOptions) -> Connection:
    """Open a connection in autocommit mode.

    Raises:
        StoreError: the server is unreachable or refuses; nothing was written.
        InvariantBroken: the server's refusal means a bug.
    """
    try:
        connection: Connection = psycopg.connect(
            options.conninfo,
            autocommit=True,
            prepare_threshold=None if options.pooled else 0,
            context=ADAPTERS,
            # Texts are sent as UTF-8, whatever PGCLIENTENCODING, the role or the URL says.
            client_encoding="UTF8",
            **_keepalives(options),
        )
        if not options.pooled:
            _apply(connection, options)
    except (psycopg.Error, OSError) as error:
        raised: StoreError | InvariantBroken = explain(error, options)
        raise raised from error
    connection.prepared_max = PREPARED
    return connection


@contextmanager
def plain_connection(options: PostgresOptions) -> Generator[Connection]:
    """Open a connection with the role's own settings, for the schema and for facts.

    Raises:
        StoreError: the server is unreachable or refuses.
        InvariantBroken: the server's refusal means a bug.
    """
    try:
        # No prepared statements: a pooler may give each transaction another connection.
        with psycopg.connect(
            options.conninfo, autocommit=True, prepare_threshold=None, **_keepalives(options)
        ) as connection:
            yield connection
    except (psycopg.Error, OSError) as error:
        raised: StoreError | InvariantBroken = explain(error, options)
        raise raised from error


def _keepalives(options: PostgresOptions) -> dict[str, Any]:
    given = conninfo_to_dict(options.conninfo)
    wanted: dict[str, Any] = {
        "application_name": "headway",
        "connect_timeout": max(2, options.patience_ms // 1000),
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 3 * options.patience_ms,
    }
    return {name: value for name, value in wanted.items() if name not in given}


def _apply(connection: Connection, options: PostgresOptions) -> None:
    connection.execute(setting(options, local=False).encode(), prepare=False)


def setting(options: PostgresOptions, *, local: bool) -> str:
    """Return the statement that applies the settings of the store's connections.

    Args:
        local: whether only for the transaction, as behind a pooler, which then reuses the
            connection.
    """
    until = str(local).lower()
    parts = (f"set_config('{name}', '{value}', {until})" for name, value in settings(options))
    return f"SELECT {', '.join(parts)}"
