"""One connection to the server, as the store uses it."""

from __future__ import annotations

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
"""Prepared statements that a connection keeps."""
_PLANS = (
    # Each statement is a walk along one index; without statistics, or with those of an hour ago,
    # the planner must not think otherwise.
    ("enable_seqscan", "off"),
    # One that is read from its end needs its order: a bitmap reads all that ever stood there.
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_material", "off"),
    ("random_page_cost", "0.1"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
)
_LIMITS = (
    # A client that was stopped must not hold the turn, and none may wait without a limit.
    ("lock_timeout", "{patience}"),
    ("statement_timeout", "{statement}"),
    ("idle_in_transaction_session_timeout", "{idle}"),
)
_ISOLATION = ("default_transaction_isolation", "read committed")
"""Of statements that are a transaction by themselves."""
IDLE_MS = 10_000
"""How long an idle step keeps its locks."""


def statement_ms(options: PostgresOptions) -> int:
    """Return how long the server may work on one statement, waits included."""
    return 2 * options.patience_ms + IDLE_MS


def silence_ms(options: PostgresOptions) -> int:
    """Return how long a server may send nothing before the connection is given up.

    A server that runs reports earlier that it gives up, so one that is silent for so long is
    stopped or out of reach.
    """
    return statement_ms(options) + options.patience_ms


def make_adapters() -> AdaptersMap:
    """Return adapters that send each kind of value as one type, so a statement is prepared once."""
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
    """Return the (name, value) of each setting of the store's connections."""
    spans = {
        "patience": str(options.patience_ms),
        "statement": str(statement_ms(options)),
        "idle": str(IDLE_MS),
    }
    return (_ISOLATION, *_PLANS, *((name, value.format(**spans)) for name, value in _LIMITS))


def connect(options: PostgresOptions) -> Connection:
    """Open a connection in autocommit mode.

    Raises:
        StoreError: the server cannot be reached, or refuses; nothing was written.
        InvariantBroken: its refusal means a bug.
    """
    try:
        connection: Connection = psycopg.connect(
            options.conninfo,
            autocommit=True,
            prepare_threshold=None if options.pooled else 0,
            context=ADAPTERS,
            **_keepalives(options),
        )
        if not options.pooled:
            _apply(connection, options)
    except (psycopg.Error, OSError) as error:
        raised: StoreError | InvariantBroken = explain(error, options)
        raise raised from error
    connection.prepared_max = PREPARED
    return connection


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
    """Return the statement that applies the settings of the store's own connections.

    Args:
        local: until the transaction ends; a pooler gives the connection to others then.
    """
    until = str(local).lower()
    parts = (f"set_config('{name}', '{value}', {until})" for name, value in settings(options))
    return f"SELECT {', '.join(parts)}"
