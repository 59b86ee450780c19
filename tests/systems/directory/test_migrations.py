"""The directory's tables: created once, by a user with permission, never by an outdated program."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import select, text

from headway.core.errors import SchemaMismatch
from headway.systems.calls import SCHEMAS as CALLS
from headway.systems.directory import engines
from headway.systems.directory.database import Directory
from headway.systems.directory.schemas import Migrated
from headway.systems.field_service import SCHEMAS as FIELD_SERVICE
from headway.systems.notifications.records import SCHEMA as NOTIFICATIONS
from headway.systems.notifications.records import Recipient
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database

LIMIT_S = 240
"""How long a test waits for processes before it fails."""
OPENING = """
import asyncio, sys
from headway.systems.calls import SCHEMAS as CALLS
from headway.systems.directory.database import Directory
from headway.systems.field_service import SCHEMAS as FIELD_SERVICE

async def main() -> None:
    directory = Directory(sys.argv[1])
    for schema in (*CALLS, *FIELD_SERVICE):
        directory.needs(schema)
    print("ready", flush=True)
    sys.stdin.readline()
    await directory.open()
    await directory.close()

asyncio.run(main())
"""
HEADS = {
    "calls": "0004",
    "calls_seen": "0001",
    "alerts": "0001",
    "field_service": "0002",
    "field_service_seen": "0001",
}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/directory.db"
        return
    with fresh_database(request.getfixturevalue("fast_postgres_server").url) as made:
        yield made


@pytest.fixture
def owned(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    """Create a database in which only its owner can create tables."""
    with fresh_database(fast_postgres_server.url) as made:
        with psycopg.connect(made, autocommit=True) as db:
            db.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        yield made


@pytest.fixture
def unprivileged(owned: str) -> Iterator[str]:
    """Return the same database, for a user who can read and write its rows but create nothing."""
    role = f"worker_{uuid4().hex[:12]}"
    name = sql.Identifier(role)
    may = sql.SQL("ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {}")
    with psycopg.connect(owned, autocommit=True) as db:
        db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(name))
        db.execute(may.format(name))
    parts = urlsplit(owned)
    server = parts.netloc.rpartition("@")[2]
    yield urlunsplit(parts._replace(netloc=f"{role}:secret@{server}"))
    with psycopg.connect(owned, autocommit=True) as db:
        db.execute(sql.SQL("DROP OWNED BY {}").format(name))
        db.execute(sql.SQL("DROP ROLE {}").format(name))


def directory_of(url: str) -> Directory:
    directory = Directory(url)
    for schema in (*CALLS, *FIELD_SERVICE):
        directory.needs(schema)
    return directory


async def test_tables_are_created_once_and_migrating_again_changes_nothing(url: str) -> None:
    first = await directory_of(url).migrate()
    assert first == [Migrated(system=one, before=None, now=head) for one, head in HEADS.items()]
    directory = directory_of(url)
    await directory.open()
    async with directory.change() as session:
        await session.execute(text("INSERT INTO field_settings VALUES ('a', '{}', 1)"))
    await directory.close()
    again = await directory_of(url).migrate()
    assert again == [Migrated(system=one, before=head, now=head) for one, head in HEADS.items()]
    await directory.open()
    async with directory.read() as session:
        assert (await session.execute(text("SELECT name FROM field_settings"))).all() == [("a",)]
    await directory.close()


async def test_older_tables_are_upgraded_and_keep_their_contents(url: str) -> None:
    directory = directory_of(url)
    await directory.open()
    first = (
        "INSERT INTO calls_templates (name, body) VALUES ('a', '{}')",
        "INSERT INTO calls_numbers (number, provider, maximum_channels, status) "
        "VALUES ('+15550001001', 'twilio', 2, 'AVAILABLE')",
        "ALTER TABLE calls_numbers DROP COLUMN version",
        "ALTER TABLE calls_templates DROP COLUMN checks_at",
        "DROP TABLE calls_leads",
        "DROP TABLE calls_shadow",
        "DROP TABLE calls_migration",
        "DROP TABLE field_text_answers",
        "UPDATE calls_schema SET version_num = '0001'",
        "UPDATE field_service_schema SET version_num = '0001'",
    )
    async with directory.change() as session:
        for one in first:
            await session.execute(text(one))
    await directory.close()
    done = {one.system: (one.before, one.now) for one in await directory_of(url).migrate()}
    assert (done["calls"], done["field_service"]) == (("0001", "0004"), ("0001", "0002"))
    await directory.open()
    async with directory.read() as session:
        found = await session.execute(text("SELECT name, checks_at FROM calls_templates"))
        assert found.all() == [("a", 0)]
        found = await session.execute(text("SELECT number, version FROM calls_numbers"))
        assert found.all() == [("+15550001001", 1)]
        for table in ("calls_leads", "calls_shadow", "calls_migration", "field_text_answers"):
            assert (await session.execute(text(f"SELECT * FROM {table}"))).all() == []  # noqa: S608
        revision = await session.execute(text("SELECT id, revision FROM calls_revision"))
        assert revision.all() == [(1, 0)]
    await directory.close()


async def test_opt_outs_of_older_recipients_belong_to_their_addresses_after_the_upgrade(
    url: str,
) -> None:
    directory = Directory(url)
    directory.needs(NOTIFICATIONS)
    await directory.open()
    add = text(
        "INSERT INTO notify_recipients (id, name, version, tz, preferences, devices, email, phone) "
        "VALUES (:id, 'a', 1, 'UTC', :preferences, '[]', :email, :phone)"
    )
    outs = '{"opt_out": ["sms", "*:news", "email:news", "sms:STOP"], "quiet_hours": null}'
    none = '{"opt_out": ["sms"], "quiet_hours": null}'
    rows = [
        ("a", outs, "A@example.org", "+1"),
        ("b", outs, "a@example.org", None),
        ("c", none, "c@example.org", "+3"),
    ]
    async with directory.change() as session:
        await session.execute(text("DROP TABLE notify_opt_outs"))
        await session.execute(text("DROP INDEX notify_recipients_by_email"))
        await session.execute(text("UPDATE notifications_schema SET version_num = '0001'"))
        for id_, preferences, email, phone in rows:
            values = {"id": id_, "preferences": preferences, "email": email, "phone": phone}
            await session.execute(add, values)
    await directory.close()
    assert await directory.migrate() == [
        Migrated(system="notifications", before="0001", now="0003")
    ]
    await directory.open()
    async with directory.read() as session:
        found = await session.execute(text("SELECT address, opt_out FROM notify_opt_outs"))
        assert sorted(found.all()) == [("+1", "sms:STOP"), ("a@example.org", "email:news")]
        kept = await session.scalars(select(Recipient.preferences).order_by(Recipient.id))
        assert "sms:STOP" in kept.all()[0]["opt_out"]
    await directory.close()


async def test_newer_tables_are_refused_and_not_changed(url: str) -> None:
    directory = directory_of(url)
    await directory.open()
    async with directory.change() as session:
        await session.execute(text("UPDATE field_service_schema SET version_num = '9999'"))
    await directory.close()
    for _ in range(2):
        with pytest.raises(SchemaMismatch, match=r"field_service .*'9999'") as refused:
            await directory.open()
        assert refused.value.hint == "they are newer: upgrade Headway"


async def test_concurrent_migrations_wait_for_each_other(url: str) -> None:
    each = await asyncio.gather(*(directory_of(url).migrate() for _ in range(6)))
    made = [one for done in each for one in done if one.before is None]
    assert {one.system: one.now for one in made} == HEADS
    assert len(made) == len(HEADS)


async def test_opening_a_new_file_waits_for_another_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = sqlite3.connect(tmp_path / "directory.db", isolation_level=None)
    writing.execute("BEGIN IMMEDIATE")  # while the file has no WAL yet
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)
        writing.rollback()

    monkeypatch.setattr(engines, "pause", pause)
    done = await directory_of(f"sqlite:///{tmp_path}/directory.db").migrate()
    assert {one.system: one.now for one in done} == HEADS
    assert len(paused) == 1
    writing.close()


@pytest.mark.slow  # Each process imports everything that a system needs.
def test_concurrent_migrating_processes_wait_for_each_other(url: str) -> None:
    line = [sys.executable, "-c", OPENING, url]
    opening = [
        subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for one in opening:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in opening:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        assert [one.communicate(timeout=LIMIT_S)[1] for one in opening] == [""] * 4
        assert [one.returncode for one in opening] == [0] * 4
    finally:
        for one in opening:
            one.kill()
    done = asyncio.run(directory_of(url).migrate())
    assert {one.system: one.before for one in done} == HEADS


async def test_error_names_who_must_create_tables_if_the_account_may_not(
    owned: str, unprivileged: str
) -> None:
    with pytest.raises(SchemaMismatch, match="the tables of calls in the directory") as refused:
        await directory_of(unprivileged).open()
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("run `headway migrate --system …` for each system")
    assert "permission denied" in refused.value.hint
    with psycopg.connect(owned) as db:
        found = db.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert found == (0,)


async def test_account_without_the_right_to_create_tables_works_with_existing_ones(
    owned: str, unprivileged: str
) -> None:
    await directory_of(owned).migrate()
    directory = directory_of(unprivileged)
    await directory.open()
    async with directory.change() as session:
        await session.execute(text("INSERT INTO field_settings VALUES ('a', '{}', 1)"))
    async with directory.read() as session:
        assert (await session.execute(text("SELECT name FROM field_settings"))).all() == [("a",)]
    await directory.close()


async def test_tables_an_account_cannot_read_are_reported_as_such(
    owned: str, unprivileged: str
) -> None:
    await directory_of(owned).migrate()
    with psycopg.connect(owned, autocommit=True) as db:
        db.execute("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC")
        role = sql.Identifier(str(urlsplit(unprivileged).username))
        db.execute(sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {}").format(role))
    with pytest.raises(SchemaMismatch, match="the tables of calls") as refused:
        await directory_of(unprivileged).open()
    assert "permission denied for table calls_schema" in str(refused.value.hint)
