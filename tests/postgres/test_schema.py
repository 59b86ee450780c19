from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege, UndefinedTable

from headway.core.errors import SchemaMismatch
from headway.stores.postgres.failures import grants
from headway.stores.postgres.options import PostgresOptions, parse_url
from headway.stores.postgres.schema import (
    Version,
    check_version,
    ensure_schema,
    latest,
    migrate_schema,
    migrations,
    shipped,
    version_of,
)
from tests.postgres.roles import fresh_role
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database

ADDS = "ALTER TABLE job ADD COLUMN colour text NOT NULL DEFAULT 'none';\n"


@pytest.fixture
def options(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[PostgresOptions]:
    with fresh_database(fast_postgres_server.url) as url:
        yield parse_url(url)


@pytest.fixture
def db(options: PostgresOptions) -> Iterator[psycopg.Connection]:
    with psycopg.connect(options.conninfo, autocommit=True) as connection:
        yield connection


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped migrations, to which the test adds."""
    for one in shipped().iterdir():
        if one.name.endswith(".sql"):
            tmp_path.joinpath(one.name).write_text(one.read_text())
    return tmp_path


def _add(folder: Path, statements: str) -> int:
    number = max(int(one.name[:4]) for one in folder.glob("*.sql")) + 1
    folder.joinpath(f"{number:04}_more.sql").write_text(statements)
    return number


def _version(db: psycopg.Connection, options: PostgresOptions) -> int:
    return version_of(db, options).number


def _shape(db: psycopg.Connection, namespace: str) -> list[tuple[object, ...]]:
    columns = """
        SELECT table_name, column_name, data_type FROM information_schema.columns
        WHERE table_schema = %s ORDER BY 1, 2
    """
    return db.execute(columns, (namespace,)).fetchall()


def test_numbers_of_the_shipped_migrations_are_consecutive():
    assert [one.number for one in migrations()] == list(range(1, latest() + 1))


def test_opening_creates_the_schema_and_opening_again_changes_nothing(
    db: psycopg.Connection, options: PostgresOptions
):
    assert _version(db, options) == 0
    ensure_schema(db, options)
    before = _shape(db, "headway")
    identity = db.execute("SELECT n FROM headway.number WHERE key = -8").fetchone()
    ensure_schema(db, options)
    assert migrate_schema(db, options) == (latest(), latest())
    assert _shape(db, "headway") == before
    assert db.execute("SELECT n FROM headway.number WHERE key = -8").fetchone() == identity


def test_opening_works_on_a_connection_without_autocommit(options: PostgresOptions):
    with psycopg.connect(options.conninfo) as db:
        ensure_schema(db, options)
        db.rollback()
        assert _version(db, options) == latest()


def test_missing_schema_is_not_created_if_forbidden(
    db: psycopg.Connection, options: PostgresOptions
):
    still = PostgresOptions(conninfo=options.conninfo, migrate=False)
    with pytest.raises(SchemaMismatch) as refused:
        ensure_schema(db, still)
    assert "headway migrate" in refused.value.hint
    assert _version(db, options) == 0


def test_namespaces_of_one_database_are_separate(db: psycopg.Connection, options: PostgresOptions):
    other = PostgresOptions(conninfo=options.conninfo, namespace="Other-1")
    ensure_schema(db, options)
    ensure_schema(db, other)
    assert _shape(db, "headway") == _shape(db, "Other-1")
    held = (
        "SELECT (SELECT n FROM headway.number WHERE key = -8) <> (SELECT n FROM {} WHERE key = -8)"
    )
    row = db.execute(held.format('"Other-1".number').encode()).fetchone()
    assert row == (True,)


def test_foreign_schema_is_refused_and_not_changed(
    db: psycopg.Connection, options: PostgresOptions
):
    db.execute("CREATE SCHEMA headway")
    db.execute("CREATE TABLE headway.number (key bigint, n bigint)")
    before = _shape(db, "headway")
    for attempt in (ensure_schema, migrate_schema):
        with pytest.raises(SchemaMismatch, match="does not belong to Headway"):
            attempt(db, options)
    assert _shape(db, "headway") == before


def test_empty_schema_created_by_the_database_owner_is_filled(
    db: psycopg.Connection, options: PostgresOptions
):
    db.execute("CREATE SCHEMA headway")
    assert migrate_schema(db, options) == (0, latest())


def test_failed_migration_leaves_what_was_there(
    db: psycopg.Connection, options: PostgresOptions, folder: Path
):
    ensure_schema(db, options)
    added = _add(folder, ADDS)
    _add(folder, "CREATE TABLE half (n int);\nSELECT * FROM nowhere;\n")
    with pytest.raises(UndefinedTable):
        migrate_schema(db, options, folder)
    assert _version(db, options) == added
    assert not any(row[0] == "half" for row in _shape(db, "headway"))


def test_concurrent_migrations_do_each_step_once(options: PostgresOptions, folder: Path):
    added = _add(folder, ADDS)
    together = threading.Barrier(4)

    def one() -> tuple[int, int]:
        with psycopg.connect(options.conninfo) as db:
            together.wait(30)
            return migrate_schema(db, options, folder)

    with ThreadPoolExecutor(4) as pool:
        ended = [task.result(60) for task in [pool.submit(one) for _ in range(4)]]
    assert {now for _, now in ended} == {added}
    assert min(before for before, _ in ended) == 0


def test_older_program_continues_after_an_additive_migration(
    db: psycopg.Connection, options: PostgresOptions, folder: Path
):
    ensure_schema(db, options)
    added = _add(folder, ADDS)
    assert migrate_schema(db, options, folder) == (latest(), added)
    ensure_schema(db, options)
    assert _version(db, options) == added


def test_older_program_is_refused_after_a_removing_migration(
    db: psycopg.Connection, options: PostgresOptions, folder: Path
):
    ensure_schema(db, options)
    number = latest() + 1
    _add(folder, f"-- programs from {number}\nALTER TABLE job DROP COLUMN subject;\n")
    migrate_schema(db, options, folder)
    for attempt in (ensure_schema, migrate_schema):
        with pytest.raises(SchemaMismatch, match=f"schema {number}") as refused:
            attempt(db, options)
        assert "upgrade Headway" in refused.value.hint


def test_newer_program_works_on_an_older_schema_that_it_supports(options: PostgresOptions):
    check_version(Version(number=3, oldest_program=1), options, knows=5, needs=3)
    with pytest.raises(SchemaMismatch) as refused:
        check_version(Version(number=2, oldest_program=1), options, knows=5, needs=3)
    assert "headway migrate" in refused.value.hint


def test_role_without_the_right_to_create_tables_suffices_after_the_migration(
    db: psycopg.Connection, options: PostgresOptions
):
    with fresh_role(options.conninfo) as role:
        theirs = PostgresOptions(conninfo=f"{options.conninfo} user={role} password=p4ss")
        with psycopg.connect(theirs.conninfo) as worker, pytest.raises(InsufficientPrivilege):
            ensure_schema(worker, theirs)
        migrate_schema(db, options)
        for grant in grants(options, role):
            db.execute(grant.encode())
        with psycopg.connect(theirs.conninfo) as worker:
            ensure_schema(worker, theirs)
            assert _version(worker, theirs) == latest()
            with pytest.raises(InsufficientPrivilege):
                worker.execute("CREATE TABLE headway.mine (n int)")


def test_workers_role_keeps_working_while_another_migrates_tables_later(
    db: psycopg.Connection, options: PostgresOptions, folder: Path
):
    with fresh_role(options.conninfo) as role:
        migrate_schema(db, options)
        for grant in grants(options, role):
            db.execute(grant.encode())
        _add(folder, "CREATE TABLE later (n int);\n")
        migrate_schema(db, options, folder)
        with psycopg.connect(as_role_info(options, role)) as worker:
            assert worker.execute("SELECT count(*) FROM headway.later").fetchone() == (0,)


def as_role_info(options: PostgresOptions, role: str) -> str:
    return f"{options.conninfo} user={role} password=p4ss"
