from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import psycopg
import pytest

from headway.cli.directory import SYSTEMS, directory_url, system_package
from headway.cli.settings import Settings
from headway.cli.systems import PLAIN, make_systems
from headway.systems.parts import Parts
from tests.cli.conftest import Headway
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


@pytest.fixture
def database(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as url:
        yield url


def test_tables_of_systems_are_created_once_beside_the_store(headway: Headway, folder: Path):
    first = headway("migrate", "--system", "field_service", "--system", "lanes")
    assert first.code == 0
    newest = {"field_service": "0002", "field_service_seen": "0001", "alerts": "0001"}
    ready = [f"the tables of {name} are ready: none became {now}" for name, now in newest.items()]
    assert first.out.splitlines()[1:] == ready
    assert folder.joinpath("headway-directory.db").exists()
    again = headway("migrate", "--system", "field_service")
    current = [f"the tables of {name} are current: {now}" for name, now in newest.items()]
    assert again.out.splitlines()[1:] == current
    told = headway("migrate", "--system", "field_service", "--json").document
    assert told["systems"] == [
        {"system": name, "before": now, "now": now} for name, now in newest.items()
    ]
    assert headway("migrate", "--json").document["systems"] == []


def test_directory_can_be_migrated_as_another_role_without_secrets(
    headway: Headway, folder: Path, database: str, monkeypatch: pytest.MonkeyPatch
):
    folder.joinpath("headway.toml").write_text(
        'directory = "postgresql://nobody-there@127.0.0.1:1/nothing"\n'
        "[telephony.providers.main]\n"
        'kind = "twilio"\n'
    )
    ran = headway("migrate", "--system", "calls", "--directory", database, "--json")
    assert ran.code == 0
    assert [one["system"] for one in ran.document["systems"]] == ["calls", "calls_seen", "alerts"]
    with psycopg.connect(database) as db:
        assert db.execute("SELECT version_num FROM calls_schema").fetchall() == [("0004",)]
    monkeypatch.setenv("HEADWAY_DIRECTORY", database)
    again = headway("migrate", "--system", "calls", "--json").document["systems"]
    assert {one["before"] for one in again} == {"0004", "0001"}


def test_directory_of_a_postgres_store_is_in_its_database_whatever_its_options(
    headway: Headway, database: str
):
    store = f"{database}?namespace=shop&listen=off&connect_timeout=5&migrate=on"
    assert directory_url(Settings(), store) == f"{database}?connect_timeout=5"
    assert headway("migrate", "--store", store, "--system", "field_service").code == 0
    with psycopg.connect(database) as db:
        assert db.execute("SELECT count(*) FROM field_technicians").fetchone() == (0,)


def test_impossible_migration_is_refused_before_anything_is_created(headway: Headway, folder: Path):
    unknown = headway("migrate", "--system", "call")
    assert (unknown.code, unknown.out) == (2, "")
    assert "did you mean calls?" in unknown.err
    alone = headway("migrate", "--directory", "sqlite:///x.db")
    assert alone.code == 2
    assert "--directory was passed without --system" in alone.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - PLAIN))
def test_migration_creates_all_tables_that_the_system_needs(name: str):
    made = make_systems([name], Settings(), "sqlite:///headway.db")
    assert isinstance(made.parts, Parts)
    assert made.parts.directory.needed == import_module(system_package(name)).SCHEMAS
