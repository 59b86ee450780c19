"""Facts about a server and a namespace, for diagnosis; nothing is judged or changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from headway.stores.postgres.connection import plain_connection
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.schema import migrate_schema
from headway.stores.postgres.timing import system_clock

SETTINGS = (
    "autovacuum",
    "fsync",
    "full_page_writes",
    "max_connections",
    "reserved_connections",
    "server_encoding",
    "superuser_reserved_connections",
    "synchronous_commit",
)
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

_BACKEND = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
       pg_backend_pid(), current_user::text, pg_is_in_recovery(),
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
"""
_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
_HOLDERS = """
SELECT 'process ' || pid || coalesce(' of ' || nullif(application_name, ''), ''),
       floor(extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint
FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'
UNION ALL
SELECT 'prepared transaction ' || gid,
       floor(extract(epoch FROM clock_timestamp() - prepared) * 1000)::bigint
FROM pg_prepared_xacts
ORDER BY 2 DESC LIMIT 5
"""
_SLOTS = """
SELECT slot_name::text FROM pg_replication_slots
WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
"""
_MISSING = """
SELECT CASE WHEN has_schema_privilege(n.oid, 'USAGE') THEN 'table ' || c.relname ELSE 'schema' END,
       array_agg(DISTINCT wanted ORDER BY wanted)
FROM pg_namespace AS n
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relkind IN ('r', 'p')
CROSS JOIN unnest(%s::text[]) AS wanted
WHERE n.nspname = %s
  AND NOT (has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, wanted))
GROUP BY 1 ORDER BY 1
"""
_DEAD = """
SELECT relname::text, n_dead_tup, n_live_tup FROM pg_stat_user_tables
WHERE schemaname = %s ORDER BY n_dead_tup DESC LIMIT 1
"""


class Holder(NamedTuple):
    """A client that keeps a transaction open."""

    who: str
    since_ms: int


class Bloat(NamedTuple):
    """The table with the most dead rows."""

    table: str
    dead: int
    live: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerFacts:
    """Facts about a server and a namespace.

    Attributes:
        version: as a number, such as 180004.
        standby: whether it is in recovery, as replicas are.
        pooled: whether the connection goes through a pooler.
        offset_ms: its clock minus this machine's; 0 if the difference can be the request's
            duration.
        settings: those of `SETTINGS` that this version has.
        connections: open client connections of all databases.
        missing: privileges that the role lacks, by object.
        holders: the longest open transactions, longest first.
        idle_slots: replication slots without a client, which keep dead rows.
        bloat: the namespace's table with the most dead rows; None if it has no tables.
    """

    version: int
    version_text: str
    role: str
    standby: bool
    pooled: bool
    offset_ms: int
    settings: Mapping[str, str]
    connections: int
    missing: Mapping[str, tuple[str, ...]]
    holders: tuple[Holder, ...]
    idle_slots: tuple[str, ...]
    bloat: Bloat | None


def read_facts(options: PostgresOptions) -> ServerFacts:
    """Query the facts about a server.

    Raises:
        StoreError: the server is unreachable or refuses.
    """
    with plain_connection(options) as db:
        return _ask(db, options)


def migrate(options: PostgresOptions) -> tuple[int, int]:
    """Migrate a namespace to this program's schema, whatever `?migrate=` says.

    Returns:
        The old and the new version.

    Raises:
        SchemaMismatch: the schema belongs to another program, or is newer; nothing was changed.
        StoreError: the server is unreachable, or the role lacks privileges.
    """
    with plain_connection(options) as db:
        return migrate_schema(db, options)


def _ask(db: psycopg.Connection[tuple[Any, ...]], options: PostgresOptions) -> ServerFacts:
    asked_at = system_clock()
    row = db.execute(_BACKEND).fetchone()
    answered_at = system_clock()
    version, text, pid, role, standby, server_at = row or (0, "", 0, "", False, answered_at)
    dead = db.execute(_DEAD, (options.namespace,)).fetchone()
    return ServerFacts(
        version=version,
        version_text=text,
        role=role,
        standby=standby,
        pooled=pid != db.info.backend_pid,
        offset_ms=_offset(server_at, asked_at, answered_at),
        settings=dict(db.execute(_SETTINGS, (list(SETTINGS),)).fetchall()),
        connections=db.execute(_CONNECTIONS).fetchall()[0][0],
        missing=_missing(db, options),
        holders=tuple(Holder(who, since) for who, since in db.execute(_HOLDERS).fetchall()),
        idle_slots=tuple(slot for (slot,) in db.execute(_SLOTS).fetchall()),
        bloat=None if dead is None else Bloat(*dead),
    )


def _missing(
    db: psycopg.Connection[tuple[Any, ...]], options: PostgresOptions
) -> dict[str, tuple[str, ...]]:
    rows = db.execute(_MISSING, (list(RIGHTS), options.namespace)).fetchall()
    return {what: tuple(rights) for what, rights in rows}


def _offset(server_at: int, asked_at: int, answered_at: int) -> int:
    """Return the minimum offset of the server's clock, allowing for the request's duration."""
    if server_at < asked_at:
        return server_at - asked_at
    return max(0, server_at - answered_at)
