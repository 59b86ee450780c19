from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from headway.core.errors import (
    HeadwayError,
    InvariantBroken,
    OutcomeUnknown,
    SchemaMismatch,
    StoreCorrupt,
    StoreFull,
    StoreMisconfigured,
    StoreReadOnly,
    StoreUnavailable,
)
from headway.stores.postgres.connection import connect
from headway.stores.postgres.failures import explain, grants, is_broken, is_transient
from headway.stores.postgres.options import PostgresOptions, parse_url
from tests.postgres.roles import as_role, fresh_role
from tests.servers.fixtures import made
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database, with_database
from tests.servers.process import free_port

AWAY = f"postgresql://ann:s3cret@127.0.0.1:{free_port()}/shop"


@pytest.fixture
def url(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as database:
        yield database


def _raised(work: Callable[[], object]) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        work()
    return caught.value


def _explained(url: str, *statements: str) -> HeadwayError:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements[:-1]:
            db.execute(statement.encode())
        error = _raised(lambda: db.execute(statements[-1].encode()))
    return explain(error, parse_url(url))


def test_unreachable_server_is_unavailable_and_the_password_is_not_shown():
    error = _raised(lambda: psycopg.connect(AWAY))
    assert is_broken(error)
    told = explain(error, parse_url(AWAY))
    assert isinstance(told, StoreUnavailable)
    assert "127.0.0.1" in told.message
    assert told.hint == "the server must run and be reachable at this address; nothing was written"
    assert "s3cret" not in str(told)


def test_process_without_free_file_descriptors_is_unavailable(url: str):
    """The process can open only the socket, and waiting for it needs one more descriptor."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
    try:
        with pytest.raises(StoreUnavailable, match="Too many open files"):
            connect(parse_url(url))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_missing_database_says_how_to_create_it(url: str):
    missing = with_database(url, "nowhere")
    told = explain(_raised(lambda: psycopg.connect(missing)), parse_url(missing))
    assert isinstance(told, StoreUnavailable)
    assert "CREATE DATABASE" in told.hint


def test_refusal_by_one_of_several_hosts_is_final_only_if_no_other_may_start(url: str):
    given = parse_url(url)
    host, *_ = given.place.split("/")
    refusing = url.replace(f"@{host}", f"@{host},{host}").rpartition("/")[0] + "/nothing"
    other = refusing.replace(f"@{host}", f"@127.0.0.1:{free_port()}")
    for one, kind in ((refusing, StoreMisconfigured), (other, StoreUnavailable)):
        told = explain(_raised(lambda one=one: psycopg.connect(one)), parse_url(one))
        assert isinstance(told, kind), one
        assert 'database "nothing" does not exist' in told.message


def test_refusal_at_one_of_the_addresses_of_a_host_is_final():
    away = 'connection to server at "localhost" (::1), port 5432 failed: Connection refused'
    refused = 'connection to server failed: FATAL:  password authentication failed for user "ann"'
    error = psycopg.OperationalError(
        f"connection failed: {refused}\n"
        "Multiple connection attempts failed. All failures were:\n"
        f"- host: 'localhost', port: None, hostaddr: '::1': connection failed: {away}\n"
        f"\tIs the server running on that host and accepting TCP/IP connections?\n"
        f"- host: 'localhost', port: None, hostaddr: '127.0.0.1': connection failed: {refused}"
    )
    assert isinstance(explain(error, parse_url(AWAY)), StoreMisconfigured)


def test_missing_role_says_to_correct_the_user(url: str):
    stranger = as_role(url, "nobody_at_all")
    told = explain(_raised(lambda: psycopg.connect(stranger)), parse_url(stranger))
    assert isinstance(told, StoreUnavailable)
    assert "user or password" in told.hint


@pytest.mark.parametrize(
    ("query", "kind", "part"),
    [
        ("SELECT 1 FROM nowhere", SchemaMismatch, "headway migrate"),
        ("SELECT nothing FROM pg_class", SchemaMismatch, "headway migrate"),
        ("EXECUTE unprepared", StoreMisconfigured, "?pooled=on"),
        ("SELECT 1 / 0", InvariantBroken, "bug"),
    ],
)
def test_error_of_a_statement_says_what_to_do(url: str, query: str, kind: type, part: str):
    told = _explained(url, query)
    assert type(told) is kind
    assert part in told.hint


@pytest.mark.parametrize(
    ("state", "kind", "part"),
    [
        ("53100", StoreFull, "free some space"),
        ("53200", StoreFull, "memory"),
        ("53300", StoreUnavailable, "max_connections"),
        ("XX001", StoreCorrupt, "backup"),
        ("40001", StoreUnavailable, "try again"),
        ("58030", StoreUnavailable, "log"),
        ("55P03", StoreUnavailable, "holds a lock"),
        ("57014", StoreUnavailable, "statement_timeout is too short"),
        ("25P03", StoreUnavailable, "idle_in_transaction_session_timeout is too short"),
        ("25P04", StoreUnavailable, "transaction_timeout is shorter"),
        ("08P01", StoreUnavailable, "the pooler's server is down, or its limits are too small"),
    ],
)
def test_state_reported_by_a_server_says_what_to_do(url: str, state: str, kind: type, part: str):
    told = _explained(url, f"DO $$ BEGIN RAISE SQLSTATE '{state}'; END $$")
    assert type(told) is kind
    assert part in told.hint


def test_statement_timeout_is_unavailable_and_keeps_its_connection(url: str):
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET statement_timeout = 20")
        error = _raised(lambda: db.execute("SELECT pg_sleep(60)"))
        assert not is_broken(error)
        assert db.execute("SELECT 1").fetchone() == (1,)
    explained = explain(error, parse_url(url))
    assert isinstance(explained, StoreUnavailable)
    assert "statement_timeout" in explained.hint


def test_ended_connection_is_broken_and_unknown_only_while_committing(url: str):
    with psycopg.connect(url, autocommit=True) as db, psycopg.connect(url) as other:
        pid = db.info.backend_pid
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        error = _raised(lambda: db.execute("SELECT 1"))
        again = _raised(lambda: db.execute("SELECT 1"))
    for one in (error, again):
        assert is_broken(one)
        assert isinstance(explain(one, parse_url(url)), StoreUnavailable)
        assert isinstance(explain(one, parse_url(url), committing=True), OutcomeUnknown)


def test_deadlock_is_transient_and_still_refused_at_the_commit(url: str):
    with psycopg.connect(url) as db:
        error = _raised(lambda: db.execute(b"DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$"))
    assert is_transient(error)
    assert not is_broken(error)
    assert isinstance(explain(error, parse_url(url), committing=True), StoreUnavailable)


def test_read_only_server_names_the_option_that_finds_the_primary(url: str):
    told = _explained(url, "SET default_transaction_read_only = on", "CREATE TABLE t (n int)")
    assert isinstance(told, StoreReadOnly)
    assert "target_session_attrs=read-write" in told.hint


def test_hosts_that_are_all_read_only_are_reported_as_read_only(url: str):
    with psycopg.connect(url, autocommit=True) as db:
        name = sql.Identifier(db.info.dbname)
        read_only = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on")
        db.execute(read_only.format(name))
    standby = f"{url}?target_session_attrs=read-write"
    told = explain(_raised(lambda: psycopg.connect(standby)), parse_url(standby))
    assert isinstance(told, StoreReadOnly)
    assert "until one is promoted" in told.hint


@pytest.mark.parametrize("said", ["query_wait_timeout", "no more connections allowed (max_client)"])
def test_pooler_without_a_free_connection_names_its_limits(said: str):
    error = psycopg.OperationalError(f"connection failed: FATAL:  {said}")
    told = explain(error, parse_url(AWAY))
    assert isinstance(told, StoreUnavailable)
    assert "its limits are too small" in told.hint


def test_too_many_connections_names_the_settings():
    server = made(lambda: PostgresServer({"max_connections": "4", "fsync": "off"}))
    with server:
        held: list[psycopg.Connection] = []

        def fill() -> None:
            while len(held) < 9:
                held.append(psycopg.connect(server.url))

        error = _raised(fill)
        for one in held:
            one.close()
        told = explain(error, parse_url(server.url))
    assert isinstance(told, StoreUnavailable)
    assert "max_connections" in told.hint


def test_missing_right_names_the_grant_for_it(url: str):
    with fresh_role(url) as role, psycopg.connect(url, autocommit=True) as owner:
        theirs = as_role(url, role)
        options = parse_url(theirs)
        owner.execute("CREATE SCHEMA headway")
        owner.execute("CREATE TABLE headway.t (n int)")
        with psycopg.connect(theirs, autocommit=True) as db:
            told = explain(_raised(lambda: db.execute("CREATE SCHEMA mine")), options)
            assert isinstance(told, StoreUnavailable)
            assert "GRANT CREATE ON DATABASE" in told.hint
            for grant in grants(options, role)[:2]:
                told = explain(_raised(lambda: db.execute("SELECT * FROM headway.t")), options)
                assert grant in told.hint
                owner.execute(grant.encode())
            db.execute("SELECT * FROM headway.t")
            told = explain(_raised(lambda: db.execute("DROP TABLE headway.t")), options)
            assert "owns the tables" in told.hint


def test_grants_quote_the_namespace_and_the_role():
    options = PostgresOptions(conninfo="", namespace="a-b")
    assert grants(options, "Ann B")[0] == 'GRANT USAGE ON SCHEMA "a-b" TO "Ann B"'
    assert sql.Identifier("a-b").as_string() == '"a-b"'
