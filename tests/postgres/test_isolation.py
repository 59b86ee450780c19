"""The store works normally in a database with one snapshot, or another encoding, by default."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from headway.contract.definitions import DeclareGate, DefineRequest
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.session import lock_key
from headway.testing.clock import FakeClock
from headway.testing.jobs import use_of
from tests.plain_jobs import claim, job
from tests.postgres.places import Place
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database, until_it_waits

LINES = Slots("lines", 9)


LEVELS = ["repeatable read", "serializable"]
POOLED = ["off", "on"]


@contextmanager
def database(server: PostgresServer | GivenPostgres, level: str) -> Generator[Place]:
    with fresh_database(server.url) as url:
        place = Place(url)
        name = conninfo_to_dict(parse_url(url).conninfo)["dbname"]
        place.sql(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
        yield place


@contextmanager
def turn(place: Place) -> Generator[None]:
    """Hold the lock, as another process."""
    options = parse_url(place.url)
    with psycopg.connect(options.conninfo) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key(options.namespace),))
        yield


@pytest.mark.parametrize("gates", [(), (use_of(LINES),)], ids=["plain", "gated"])
@pytest.mark.parametrize("pooled", POOLED)
@pytest.mark.parametrize("level", LEVELS)
async def test_claim_that_waited_for_its_step_sees_what_was_committed_meanwhile(
    fast_postgres_server: PostgresServer | GivenPostgres,
    clock: FakeClock,
    level: str,
    pooled: str,
    gates: tuple[GateUse, ...],
) -> None:
    with database(fast_postgres_server, level) as place:
        one, two = (place.open(clock, pooled=pooled) for _ in range(2))
        await one.define(DefineRequest(items=(DeclareGate(spec=LINES),), author="us"))
        # The first claim of a process takes the lock in any case.
        await one.enqueue([job(0, gates=gates)])
        assert len((await claim(two)).jobs) == 1
        await one.enqueue([job(1, gates=gates)])
        with turn(place):
            late = asyncio.ensure_future(claim(two, request=2))
            await until_it_waits(place.database, late)
            await one.enqueue([job(2, gates=gates)])
        assert {started.id for started in (await late).jobs} == {job(1).id, job(2).id}
        for store in (one, two):
            await store.close()


@pytest.mark.parametrize("pooled", POOLED)
async def test_client_with_another_encoding_writes_and_finds_the_same_texts(
    fast_postgres_server: PostgresServer | GivenPostgres,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    pooled: str,
) -> None:
    with database(fast_postgres_server, "read committed") as place:
        fields = {"subject": "Zoë 日本", "key": "ü"}
        one = place.open(clock, pooled=pooled)
        await one.enqueue([job(0, **fields)])
        name = conninfo_to_dict(parse_url(place.url).conninfo)["dbname"]
        place.sql(f"ALTER DATABASE {name} SET client_encoding = 'SJIS'")
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        two = place.open(clock, pooled=pooled)
        (sent,) = await two.enqueue([job(1, **fields)])
        assert (sent.id, sent.created) == (job(0).id, False)
        (only,) = (await claim(two)).jobs
        assert only.subject == fields["subject"]
        for store in (one, two):
            await store.close()
