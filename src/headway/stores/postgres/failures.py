"""Translate PostgreSQL's errors for callers of the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from headway.core.errors import (
    InvariantBroken,
    OutcomeUnknown,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreReadOnly,
    StoreUnavailable,
)
from headway.stores.postgres.options import PostgresOptions

DriverError = psycopg.Error
"""The base of all errors of PostgreSQL and its driver."""

_TRANSIENT = frozenset({"40001", "40P01"})
_ENDED = ("08", "57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04")
"""SQL states with which the server closes or refuses a connection."""


def is_transient(error: BaseException) -> bool:
    """Return whether the step was rolled back in favour of another one, and should be repeated."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _TRANSIENT


def is_broken(error: BaseException) -> bool:
    """Return whether the connection must be replaced."""
    if isinstance(error, psycopg.InterfaceError | errors.OperationalError):
        # Without a state it is an error of the driver: the server is unreachable.
        return error.sqlstate is None or error.sqlstate.startswith(_ENDED) or _is_fatal(error)
    return isinstance(error, psycopg.Error) and _is_fatal(error)


def _is_fatal(error: psycopg.Error) -> bool:
    return error.diag.severity_nonlocalized in {"FATAL", "PANIC"}


def explain(
    error: BaseException, options: PostgresOptions, *, committing: bool = False
) -> StoreError | InvariantBroken:
    """Convert an error of PostgreSQL or its driver to one of Headway's.

    Args:
        committing: whether COMMIT was sent already, so that the step may have been written.
    """
    state = getattr(error, "sqlstate", None) or ""
    what = f"the database {options.place}: {_first_line(error)}"
    if committing and is_broken(error):
        return OutcomeUnknown(what, hint="the connection broke at the commit; repeat the call")
    for meaning in _MEANINGS:
        if meaning.holds(state, str(error)):
            hint = meaning.hint if isinstance(meaning.hint, str) else meaning.hint(options, error)
            return meaning.make(what, hint=f"{hint}; nothing was written")
    if isinstance(error, OSError):
        # Such as too many open files: the driver raises it unchanged.
        hint = "this process must be able to connect"
        return StoreUnavailable(what, hint=f"{hint}; nothing was written")
    if is_broken(error):
        hint = "the server must run and be reachable at this address"
        return StoreUnavailable(what, hint=f"{hint}; nothing was written")
    what = f"{what} ({type(error).__name__} {state})"
    return InvariantBroken(what, hint="this is a bug in Headway; nothing was written")


def _first_line(error: BaseException) -> str:
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def grants(options: PostgresOptions, role: str) -> tuple[str, ...]:
    """Return the statements that grant a role what a store needs once its schema exists.

    Identity columns need no privileges on their sequences.
    """
    schema, whom = f'"{options.namespace}"', f'"{role}"'
    rights = "SELECT, INSERT, UPDATE, DELETE"
    return (
        f"GRANT USAGE ON SCHEMA {schema} TO {whom}",
        f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {whom}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {rights} ON TABLES TO {whom}",
    )


def _rights_hint(options: PostgresOptions, error: BaseException) -> str:
    role = conninfo_to_dict(options.conninfo).get("user") or "the role"
    usage, tables, _ = grants(options, str(role))
    text = str(error)
    if "database" in text:
        database = conninfo_to_dict(options.conninfo).get("dbname") or "the database"
        create = f'GRANT CREATE ON DATABASE "{database}" TO "{role}"'
        return f"{create}, or run `headway migrate` as a role that may create schemas"
    if "schema" in text:
        return f"its owner must run: {usage}"
    if "must be owner" in text:
        return "run `headway migrate` as the role that owns the tables"
    return f"its owner must run: {tables}"


_ATTEMPT = re.compile(r"^- host: (.*), hostaddr: ", re.MULTILINE)
"""How the driver begins each of several failed attempts to connect."""


def _by_host(text: str) -> Collection[str]:
    """Return what is reported about each host, with all of its addresses."""
    _, *attempts = _ATTEMPT.split(text)
    reports: dict[str, str] = {}
    for host, report in zip(attempts[::2], attempts[1::2], strict=True):
        reports[host] = reports.get(host, "") + report
    return reports.values() or (text,)


class _Meaning(NamedTuple):
    """The meaning of states, or of libpq's `texts` without a state, as when connecting fails."""

    states: tuple[str, ...]
    make: type[StoreError]
    hint: str | Callable[[PostgresOptions, BaseException], str]
    texts: tuple[str, ...] = ()

    def holds(self, state: str, text: str) -> bool:
        """Return whether an error has this meaning."""
        if state:
            return state.startswith(self.states)
        # One of several hosts may be the primary, which only has to start.
        return all(any(part in one for part in self.texts) for one in _by_host(text))


# The first match is used.
_MEANINGS = (
    _Meaning(
        ("53100",),
        StoreFull,
        "free some space on the server's device",
        ("No space left on device",),
    ),
    _Meaning(
        ("53300",),
        StoreUnavailable,
        "raise the server's max_connections, or run fewer processes",
        ("too many clients", "remaining connection slots", "too many connections"),
    ),
    _Meaning(("53",), StoreFull, "the server is out of memory or another resource: see its log"),
    _Meaning(
        ("XX001", "XX002"), StoreCorrupt, "stop the server, keep its files, and restore a backup"
    ),
    _Meaning(("42501",), StoreMisconfigured, _rights_hint),
    _Meaning(
        ("28",),
        StoreMisconfigured,
        "fix user or password in the store URL, or the server's pg_hba.conf",
        ("authentication failed", "no password supplied", "no pg_hba.conf entry", 'role "'),
    ),
    _Meaning(
        ("3D000",),
        StoreMisconfigured,
        "create the database first: CREATE DATABASE",
        ("does not exist",),
    ),
    _Meaning(
        ("3F000", "42P01", "42703", "42883"),
        SchemaMismatch,
        "the schema is missing or does not match: run `headway migrate`",
    ),
    _Meaning(
        ("25006",),
        StoreReadOnly,
        "this server is read-only: use the primary's host, or list all hosts with"
        " ?target_session_attrs=read-write, and wait until one is promoted",
        ("session is read-only",),
    ),
    _Meaning(
        ("08P01",),
        StoreUnavailable,
        "the pooler's server is down, or its limits are too small: a pool for sessions needs ten"
        " connections for each process",
        ("query_wait_timeout", "no more connections allowed"),
    ),
    _Meaning(
        ("26000", "42P05", "0A000"),
        StoreMisconfigured,
        "a pooler gives each transaction another connection: add ?pooled=on to the store URL",
    ),
    _Meaning(
        ("55P03",),
        StoreUnavailable,
        "another transaction holds a lock: find it in pg_stat_activity, and end it if it hangs",
    ),
    _Meaning(
        ("57014",),
        StoreUnavailable,
        "unless it was cancelled by hand, the server is overloaded, the statement waited for a lock"
        " (see pg_stat_activity), or the role's statement_timeout is too short",
    ),
    _Meaning(
        ("25P03",),
        StoreUnavailable,
        "this process stopped within a transaction, or the role's"
        " idle_in_transaction_session_timeout is too short",
    ),
    _Meaning(
        ("25P04",),
        StoreUnavailable,
        "the role's transaction_timeout is shorter than a step may take: set it to 0",
    ),
    _Meaning(("40",), StoreUnavailable, "the step conflicted with another one: try again"),
    _Meaning(("58", "F0"), StoreUnavailable, "see the server's log"),
)
