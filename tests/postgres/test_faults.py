"""Faults under a working store on PostgreSQL: each is reported exactly, and fixed by a repeat."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
import pytest_asyncio

from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.stores.postgres import connection
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.store import PostgresStore
from headway.testing.clock import FakeClock
from tests.plain_jobs import assert_clean, claim, job
from tests.postgres.places import Place
from tests.servers.fixtures import made
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.torture.every_verb import OPERATIONS, differences
from tests.torture.load import Load


@pytest.fixture(scope="module")
def way(place_database: str) -> Iterator[Proxy]:
    with Proxy(place_database) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def other_place(place_database: str) -> AsyncIterator[Place]:
    made = Place(place_database)
    yield made
    for store in made.stores:
        await store.close()
    made.forget()


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(OPERATIONS))
async def test_operation_with_each_reply_lost_once_is_done_once(
    place: Place, other_place: Place, way: Proxy, name: str
) -> None:
    clocks = FakeClock(), FakeClock()
    # Without prepared statements, the proxy can read the statements that are sent.
    options = f"namespace={other_place.namespace}&listen=off&pooled=on"
    disturbed = PostgresStore(parse_url(f"{way.url}?{options}"), clocks[1])
    undisturbed = place.open(clocks[0], listen="off")
    # The whole statement, because each BEGIN contains READ COMMITTED.
    commit = b"COMMIT\0"
    found, raised = await differences(name, undisturbed, disturbed, clocks, way, first=commit)
    await disturbed.close()
    assert found == []
    assert raised[0] is OutcomeUnknown


# ------------------------------------------------------------------------------- under a load


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may kill."""
    with made(PostgresServer) as server:
        yield server


@pytest.mark.slow
async def test_load_continues_after_a_crash_and_an_immediate_stop_of_the_server(
    own_server: PostgresServer,
) -> None:
    stores = [PostgresStore(parse_url(own_server.url)) for _ in range(3)]
    load = Load(stores)

    def kill_a_backend() -> None:
        # The server then ends all other backends, and recovers as after a crash.
        (pid,) = _others(own_server.url)[:1]
        os.kill(pid, signal.SIGKILL)

    def stop_and_start() -> None:
        own_server.stop(signal.SIGQUIT)
        own_server.start()

    await load.run([kill_a_backend, stop_and_start, kill_a_backend])
    await load.check(stores[0])
    for store in stores:
        await store.close()


@pytest.mark.slow
async def test_load_continues_while_connections_are_reset_ended_and_cut(
    place: Place, way: Proxy, place_database: str
) -> None:
    stores = [PostgresStore(parse_url(f"{way.url}?namespace={place.namespace}")) for _ in range(3)]
    load = Load(stores)

    def end_all() -> None:
        with psycopg.connect(place_database, autocommit=True) as admin:
            for pid in _others(place_database):
                admin.execute("SELECT pg_terminate_backend(%s)", (pid,))

    faults = [way.reset, end_all, lambda: way.cut_after(200), lambda: way.lose_reply_to(b"")]
    await load.run(faults * 3, between=20)
    way.resume()
    await load.check(stores[0])
    for store in stores:
        await store.close()


def _others(url: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as admin:
        found = admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND application_name = 'headway'"
        ).fetchall()
    return [pid for (pid,) in found]


# ------------------------------------------------------------- unresponsive servers and processes


async def test_silent_server_is_given_up_and_used_again_when_it_answers(
    place: Place, way: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "IDLE_MS", 200)
    url = f"{way.url}?namespace={place.namespace}&patience_ms=200&connect_timeout=2&listen=off"
    store = PostgresStore(parse_url(url))
    await store.enqueue([job(1)])
    way.stall()
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        await store.enqueue([job(2)])
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        await claim(store)
    way.resume()
    await store.enqueue([job(2)])
    assert len((await claim(store, request=2)).jobs) == 2
    await store.close()


_STOPS_IN_ITS_TURN = """
import asyncio, os, signal, sys
from headway.core.errors import OutcomeUnknown
from headway.stores.postgres import connection
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.store import PostgresStore
from tests.plain_jobs import claim

connection.IDLE_MS = 3_000
def stop(ledger):
    print("stops", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    sys.stdin.readline()  # the stop comes to each thread by itself

async def main():
    store = PostgresStore(parse_url(sys.argv[1]))
    try:
        await store._decide(stop)
    except OutcomeUnknown:
        print("unknown", flush=True)
    print(len((await claim(store, worker="late", n=1)).jobs), flush=True)
    await store.close()

asyncio.run(main())
"""


def _stopping_child(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _STOPS_IN_ITS_TURN, url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


_IDLE_IN_TURN = """
SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted
AND state = 'idle in transaction' AND datname = current_database()
"""


async def test_process_stopped_in_an_exclusive_step_delays_others_only_until_its_idle_limit(
    place: Place,
) -> None:
    store = place.open()
    await store.enqueue([job(1), job(2)])
    child = _stopping_child(place.url)
    assert child.stdout is not None
    assert await asyncio.to_thread(child.stdout.readline) == "stops\n"
    (state,) = place.sql(_IDLE_IN_TURN)
    assert state == (1,)
    # The server does not wait for the child to resume: it takes the lock from it.
    assert len((await claim(store, n=1)).jobs) == 1
    child.send_signal(signal.SIGCONT)
    out, _ = await asyncio.to_thread(child.communicate, "go on\n")
    # The child gets an error, and continues on a new connection.
    assert out == "unknown\n1\n"
    assert child.returncode == 0
    await assert_clean(store)
