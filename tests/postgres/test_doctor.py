"""What `headway doctor` and `headway migrate` report about a PostgreSQL store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest

from headway.cli.doctor import Finding, Health
from headway.cli.doctor import postgres_server as server
from headway.cli.main import call
from headway.stores.postgres.failures import grants
from headway.stores.postgres.options import PostgresOptions, parse_url
from headway.stores.postgres.schema import latest
from headway.stores.postgres.server_facts import Bloat, Holder, ServerFacts, migrate, read_facts
from tests.postgres.roles import as_role, fresh_role
from tests.servers.fixtures import made
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.servers.process import free_port

Headway = Callable[..., tuple[int, str, str]]


@pytest.fixture
def url(postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(postgres_server.url) as database:
        yield database


@pytest.fixture
def options(url: str) -> PostgresOptions:
    return parse_url(url)


@pytest.fixture
def seen(options: PostgresOptions) -> ServerFacts:
    migrate(options)
    return read_facts(options)


@pytest.fixture
def headway(
    url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Headway:
    for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADWAY_STORE", url)
    monkeypatch.setenv("HEADWAY_AUTHOR", "the tester")

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = call(arguments)
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return run


def health(findings: list[Finding]) -> dict[str, Health]:
    return {one.subject: one.health for one in findings}


def test_healthy_server_has_only_good_findings(options: PostgresOptions, url: str):
    migrate(options)
    findings = server.check_postgres(url)
    assert health(findings) == dict.fromkeys(
        [
            "server",
            "durability",
            "server clock",
            "connections",
            "pooler",
            "transactions",
            "vacuum",
            "rights",
        ],
        Health.OK,
    )


def test_unreachable_server_is_a_problem_and_its_password_is_not_shown():
    (found,) = server.check_postgres(f"postgresql://ann:s3cret@127.0.0.1:{free_port()}/x")
    assert (found.subject, found.health) == ("server", Health.PROBLEM)
    assert "s3cret" not in str(found)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (130_014, Health.PROBLEM),
        (140_001, Health.OK),
        (180_004, Health.OK),
        (190_000, Health.WARNING),
    ],
)
def test_versions_from_14_to_18_are_fine(seen: ServerFacts, version: int, expected: Health):
    assert server.check_version(replace(seen, version=version)).health is expected


def test_standby_and_another_encoding_are_problems(seen: ServerFacts):
    assert server.check_version(replace(seen, standby=True)).health is Health.PROBLEM
    settings = {**seen.settings, "server_encoding": "LATIN1"}
    assert server.check_version(replace(seen, settings=settings)).health is Health.PROBLEM


def test_server_that_does_not_sync_its_device_is_reported():
    loose = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
    with made(lambda: PostgresServer({**loose, "autovacuum": "off"})) as loose_server:
        seen = read_facts(parse_url(loose_server.url))
    found = server.check_durability(seen)
    assert [one.health for one in found] == [Health.PROBLEM, Health.PROBLEM, Health.WARNING]
    assert server.check_vacuum(seen).health is Health.PROBLEM


@pytest.mark.parametrize(
    ("offset_ms", "expected", "word"),
    [
        (999, Health.OK, "agrees"),
        (-1_500, Health.WARNING, "behind"),
        (61_000, Health.PROBLEM, "ahead"),
    ],
)
def test_clock_skew_is_reported(seen: ServerFacts, offset_ms: int, expected: Health, word: str):
    found = server.check_server_clock(offset_ms)
    assert found.health is expected
    assert word in found.found


def test_server_with_few_connections_left_is_a_warning(seen: ServerFacts, options: PostgresOptions):
    assert server.check_connections(seen).health is Health.OK
    crowded = replace(seen, connections=int(seen.settings["max_connections"]) - 8)
    assert server.check_connections(crowded).health is Health.WARNING


def test_pooler_unknown_to_the_store_is_a_warning(seen: ServerFacts, options: PostgresOptions):
    assert not seen.pooled
    pooled = replace(seen, pooled=True)
    assert server.check_pooler(pooled, options).health is Health.WARNING
    assert server.check_pooler(pooled, replace(options, pooled=True)).health is Health.OK


def test_long_open_transaction_is_named(url: str, options: PostgresOptions):
    with psycopg.connect(url, application_name="the report") as db:
        db.execute("SELECT 1")
        seen = read_facts(options)
        (held,) = [one for one in seen.holders if "the report" in one.who]
        assert held.since_ms < server.OPEN_MS
        db.rollback()
    assert server.check_transactions(replace(seen, holders=()))[0].health is Health.OK
    old = replace(seen, holders=(Holder("process 7 of report", server.OPEN_MS + 1),))
    (found,) = server.check_transactions(old)
    assert found.health is Health.WARNING
    assert "process 7 of report" in found.found


def test_unused_slot_that_keeps_dead_rows_is_named(seen: ServerFacts):
    (found,) = server.check_transactions(replace(seen, holders=(), idle_slots=("old_copy",)))
    assert found.health is Health.WARNING
    assert "old_copy" in found.hint


def test_table_of_dead_rows_is_a_warning(seen: ServerFacts):
    bloated = replace(seen, bloat=Bloat("job", 500_000, 1_000))
    assert server.check_vacuum(bloated).health is Health.WARNING
    assert server.check_vacuum(seen).health is Health.OK


def test_missing_rights_are_named_with_the_grants_for_them(url: str, options: PostgresOptions):
    migrate(options)
    with fresh_role(url) as role, psycopg.connect(url, autocommit=True) as owner:
        theirs = parse_url(as_role(url, role))
        for grant in grants(options, role):
            found = server.check_rights(read_facts(theirs), theirs)
            if found.health is Health.OK:
                break
            assert found.health is Health.PROBLEM
            assert grant in found.hint
            owner.execute(grant.encode())
        assert server.check_rights(read_facts(theirs), theirs).health is Health.OK
        owner.execute(f'REVOKE DELETE ON headway.job FROM "{role}"'.encode())
        assert read_facts(theirs).missing == {"table job": ("DELETE",)}


def test_doctor_of_a_missing_store_creates_nothing(headway: Headway, url: str):
    code, out, _ = headway("doctor", "--json")
    assert code == 1
    (wrong,) = [one for one in json.loads(out)["findings"] if one["health"] == "problem"]
    assert wrong["subject"] == "store"
    assert "headway migrate" in wrong["hint"]
    with psycopg.connect(url) as db:
        row = db.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'headway'").fetchone()
    assert row == (0,)


def test_migrate_creates_the_store_once_and_the_doctor_is_satisfied(headway: Headway):
    code, out, _ = headway("migrate", "--json")
    assert (code, json.loads(out)) == (0, {"before": 0, "now": latest(), "systems": []})
    code, out, _ = headway("migrate", "--json")
    assert (code, json.loads(out)) == (0, {"before": latest(), "now": latest(), "systems": []})
    code, out, _ = headway("doctor", "--json")
    assert code == 0
    assert {one["health"] for one in json.loads(out)["findings"]} == {"ok"}


def test_reading_commands_create_no_store(headway: Headway, url: str):
    code, out, err = headway("jobs")
    assert (code, out) == (4, "")
    assert "contains no store yet" in err


def test_store_of_a_later_program_is_refused_and_not_changed(headway: Headway, url: str):
    headway("migrate")
    with psycopg.connect(url) as db:
        db.execute("UPDATE headway.number SET n = 9999 WHERE key IN (-9, -11)")
    for command in ("migrate", "jobs"):
        code, out, err = headway(command)
        assert (code, out) == (4, "")
        assert "9999" in err
