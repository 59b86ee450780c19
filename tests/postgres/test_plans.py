"""No statement of the store scans the jobs, whatever statistics the server has."""

from __future__ import annotations

import hashlib
import json
import pkgutil
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import psycopg
import pytest

from headway.stores.postgres import plain_claims, tables
from headway.stores.postgres.connection import setting
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.schema import ensure_schema
from headway.stores.postgres.statement import Each, Mode, resolve
from headway.stores.postgres.store import PostgresStore
from headway.stores.sql import lanes, records
from headway.stores.sql.statement import Select, Write
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database

JOBS = 50_000
LOOKED = ("never", "before", "after")
"""When the server last analyzed the tables: never, or before or after they were filled."""
IDENTIFYING = ("job_pkey", "job_id_key")
"""Indexes of the job table whose cost outdated statistics do not distort."""
VALUES = {
    "bigint": "1",
    "integer": "1",
    "text": "'bench'",
    "bytea": "''::bytea",
    "boolean": "true",
    "uuid": "'c4ca4238-a0b9-2382-0dcc-509a6f75849b'",
}
SEVERAL = 500
ANALYZE = "ANALYZE headway.job, headway.run, headway.worker"
FILL = """
INSERT INTO headway.job (id, state, lane, flow, policy, priority, due_at, created_at, stage, args)
SELECT md5(n::text)::uuid, 1, 1, 1, 1, 512, n, n, '', '' FROM generate_series(1, %s) AS n
"""


def statements(table: str = "@job") -> dict[str, str]:
    """Return every statement about a table, by where it is written."""
    found: dict[str, str] = {}
    names = [one.name for one in pkgutil.walk_packages(tables.__path__, f"{tables.__name__}.")]
    for module in (*names, plain_claims.__name__, lanes.__name__, records.__name__):
        for name, value in vars(import_module(module)).items():
            text = value.text if isinstance(value, Select | Write | Each) else value
            if isinstance(text, str) and table in text and "{" not in text and "$" in text:
                found.setdefault(text, f"{module.rpartition('.')[2]}.{name}")
    return {name: text for text, name in found.items()}


@pytest.fixture(scope="module", params=LOOKED)
def database(
    fast_postgres_server: PostgresServer | GivenPostgres, request: pytest.FixtureRequest
) -> Iterator[psycopg.Connection]:
    with fresh_database(fast_postgres_server.url) as url:
        options = parse_url(url)
        with psycopg.connect(options.conninfo, autocommit=True, prepare_threshold=None) as db:
            ensure_schema(db, options)
            db.execute("ALTER TABLE headway.job SET (autovacuum_enabled = off)")
            db.execute("INSERT INTO headway.lane (name) VALUES ('bench')")
            if request.param == "before":
                db.execute(ANALYZE)
            db.execute(FILL, (JOBS,))
            if request.param == "after":
                db.execute(ANALYZE)
            yield db


def plan(db: psycopg.Connection, text: str, mode: str) -> dict[str, Any]:
    db.execute("DEALLOCATE ALL")
    db.execute("SELECT set_config('headway.now', '1', false)")
    db.execute(f"SET plan_cache_mode = {mode}".encode())
    db.execute(f"PREPARE one AS {resolve(text, 'headway')}".encode())
    row = db.execute("SELECT parameter_types::text[] FROM pg_prepared_statements").fetchone()
    assert row is not None
    given = f"({', '.join(map(value, row[0]))})" if row[0] else ""
    told = db.execute(f"EXPLAIN (FORMAT JSON) EXECUTE one {given}".encode()).fetchone()
    assert told is not None
    answer = told[0] if isinstance(told[0], list) else json.loads(told[0])
    return answer[0]["Plan"]


def value(kind: str) -> str:
    one = kind.removesuffix("[]")
    if one == kind:
        return VALUES[kind]
    if one == "uuid":
        ids = [hashlib.md5(str(n).encode(), usedforsecurity=False) for n in range(1, SEVERAL)]
        several = [str(uuid.UUID(bytes=one.digest())) for one in ids]
    else:
        several = {"bigint": [str(n) for n in range(1, SEVERAL)]}.get(one, [VALUES[one]])
        several = [one.strip("'").removesuffix("'::bytea") or '""' for one in several]
    return f"'{{{','.join(several)}}}'::{kind}"


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for one in node.get("Plans", ()):
        yield from nodes(one)


def queries(plan: dict[str, Any], *, writes: bool) -> list[str]:
    """Return the nodes of a plan that scan jobs beyond those requested."""
    found: list[str] = []
    for node in nodes(plan):
        kind, index = node["Node Type"], node.get("Index Name", "")
        if node.get("Relation Name") == "job" and kind == "Seq Scan":
            found.append(kind)
        elif index.startswith("job_") and writes and index not in IDENTIFYING:
            found.append(f"{kind} by {index}")
    return found


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_no_statement_scans_the_jobs(database: psycopg.Connection, mode: str) -> None:
    database.execute("RESET ALL")
    database.execute(setting(parse_url("postgresql:///one"), local=False).encode())
    # With the setting off, a scan would still be used if nothing else were left.
    database.execute("RESET enable_seqscan")
    walking = {
        name: found
        for name, text in statements().items()
        if (found := queries(plan(database, text, mode), writes=text.startswith(("UPD", "DEL"))))
    }
    assert not walking


WALKED = {
    # From its first entry, and only as far as the first that fits.
    ("job_statements.LANES_DUE", "job_scheduled"),
    ("plain_claims._THEN", "gate_timer"),
    # There are few lanes, and few events that wait for a job.
    ("job_statements.LANES_DUE", "lane_name_key"),
    ("lanes._COUNTS", None),
    ("lanes._COUNTS_BETWEEN", None),
    ("records._KEPT_COUNT", None),
}
"""Indexes and tables that are read completely, or without a condition on their first column."""
FEWEST = 8
"""With fewer jobs, once it has counted them, the server may prefer a scan (decision 0051)."""


def whole(db: psycopg.Connection, plan: dict[str, Any]) -> set[str | None]:
    """Return the indexes read without a condition on their first column; None for a table."""
    first = dict(
        db.execute(
            "SELECT relname, pg_get_indexdef(indexrelid, 1, true) FROM pg_index"
            " JOIN pg_class ON pg_class.oid = indexrelid"
        ).fetchall()
    )
    found: set[str | None] = set()
    for node in nodes(plan):
        index = node.get("Index Name")
        if node["Node Type"] == "Seq Scan":
            found.add(None)
        elif index and not re.search(rf"(?<![.\w]){first[index]}\b", node.get("Index Cond", "")):
            found.add(index)
    return found


@pytest.mark.parametrize(
    ("looked", "jobs"),
    [(False, 1), (False, 300), (False, 3_000), (False, 20_000), (True, FEWEST), (True, 3_000)],
)
def test_no_statement_reads_a_whole_index_however_few_the_jobs(
    fast_postgres_server: PostgresServer | GivenPostgres, jobs: int, looked: bool
) -> None:
    """On a small table, the server expects a scan to be cheap, and keeps that plan as it grows."""
    with fresh_database(fast_postgres_server.url) as url:
        options = parse_url(url)
        with psycopg.connect(options.conninfo, autocommit=True, prepare_threshold=None) as db:
            ensure_schema(db, options)
            db.execute("ALTER TABLE headway.job SET (autovacuum_enabled = off)")
            db.execute("INSERT INTO headway.lane (name) VALUES ('bench')")
            db.execute(FILL, (jobs,))
            if looked:
                db.execute("ANALYZE")
            db.execute(setting(options, local=False).encode())
            found = {
                (name, index)
                for name, text in statements("@").items()
                for index in whole(db, plan(db, text, "force_generic_plan"))
            }
    assert found <= WALKED


def lookups(plan: dict[str, Any]) -> set[tuple[str, str | None, bool]]:
    """Return how a plan reads each table: by which index, and whether with a condition on it."""
    return {
        (node["Relation Name"], node.get("Index Name"), "Index Cond" in node)
        for node in nodes(plan)
        if "Relation Name" in node
    }


ENDED = """
UPDATE headway.job SET state = CASE WHEN seq % 50 = 0 THEN 3 ELSE 5 END,
    worker = CASE WHEN seq % 50 = 0 THEN 1 END
"""
"""Most jobs of a store have ended, and one worker holds the others."""


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("ended", [0, 20_000])
def test_statistics_of_empty_tables_or_ended_jobs_change_no_plan(
    fast_postgres_server: PostgresServer | GivenPostgres, mode: str, ended: int
) -> None:
    """A table such as that of permits is often empty when the server analyzes it."""
    found: list[dict[str, set[tuple[str, str | None, bool]]]] = []
    for looked in (False, True):
        with fresh_database(fast_postgres_server.url) as url:
            options = parse_url(url)
            with psycopg.connect(options.conninfo, autocommit=True, prepare_threshold=None) as db:
                ensure_schema(db, options)
                if ended:
                    db.execute(FILL, (ended,))
                    db.execute(ENDED)
                if looked:
                    db.execute("VACUUM ANALYZE")
                if not ended:
                    db.execute(FILL, (1_000,))
                db.execute(setting(options, local=False).encode())
                every = statements("@").items()
                found.append({name: lookups(plan(db, text, mode)) for name, text in every})
    fresh, empty = found
    # There are few lanes.
    assert {name for name in fresh if fresh[name] != empty[name]} <= {"job_statements.LANES_DUE"}


def test_step_behind_a_pooler_uses_the_stores_settings_and_leaves_none(
    fast_postgres_server: PostgresServer | GivenPostgres,
) -> None:
    with fresh_database(fast_postgres_server.url) as url:
        options = replace(parse_url(url), pooled=True)
        store = PostgresStore(options)
        session = store._turns.session
        for mode in (Mode.EXCLUSIVE, Mode.READ, Mode.INSERT, Mode.SHARED):
            session.begin(mode)
            assert session.fetch("SHOW enable_seqscan", ()) == [("off",)]
            session.commit()
            assert session.link.run([("SHOW enable_seqscan", ())]) == [[("on",)]]
        store._close()
