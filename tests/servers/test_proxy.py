from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.servers.proxy import Proxy

LIMIT = 120


@pytest.fixture
def url(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as database:
        with psycopg.connect(database) as db:
            db.execute("CREATE TABLE told (n int)")
        yield database


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(url) as through:
        yield through


def _stored(url: str) -> list[int]:
    with psycopg.connect(url) as db:
        return [row[0] for row in db.execute("SELECT n FROM told ORDER BY n")]


def test_everything_passes_through(proxy: Proxy, url: str) -> None:
    with psycopg.connect(proxy.url) as db:
        db.execute("INSERT INTO told SELECT generate_series(1, 50000)")
        rows = db.execute("SELECT n FROM told").fetchall()
    assert len(rows) == 50_000
    assert len(_stored(url)) == 50_000


def test_reset_breaks_a_connection_and_the_next_one_works(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url) as db:
        proxy.reset()
        with pytest.raises(psycopg.OperationalError):
            db.execute("SELECT 1")
    with psycopg.connect(proxy.url) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_refused_connections_work_again_after_resume(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.url)
    proxy.resume()
    with psycopg.connect(proxy.url) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_connection_whose_server_does_not_accept_is_reset_at_the_stop() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as others:
        target = full.getsockname()
        # The queue is full after one or two; the kernel leaves the next ones without an answer.
        for _ in range(3):
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(target)
        with Proxy(f"tcp://127.0.0.1:{target[1]}") as through:
            client = others.enter_context(socket.create_connection(("127.0.0.1", through.port)))
            client.settimeout(LIMIT)
            for _ in range(10):
                # Each is a turn of the proxy's event loop, which accepts in one of the first.
                through.resume()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_reply_to_a_commit_is_lost_and_the_commit_is_done(proxy: Proxy, url: str) -> None:
    db = psycopg.connect(proxy.url)
    db.execute("INSERT INTO told VALUES (1)")
    proxy.lose_reply_to(b"COMMIT")
    with pytest.raises(psycopg.OperationalError):
        db.commit()
    db.close()
    assert proxy.cut.wait(LIMIT)
    assert _stored(url) == [1]


def test_replies_are_cut_after_a_number_of_bytes(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url) as db:
        proxy.cut_after(1000)
        with pytest.raises(psycopg.OperationalError):
            db.execute("SELECT generate_series(1, 100000)")
        assert proxy.cut.is_set()


def test_stalled_bytes_arrive_after_resume(proxy: Proxy, url: str) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as db, ThreadPoolExecutor(1) as elsewhere:
        proxy.stall()
        asked = elsewhere.submit(db.execute, "INSERT INTO told VALUES (2)")
        assert _stored(url) == []
        proxy.resume()
        asked.result(LIMIT)
    assert _stored(url) == [2]


def test_remote_server_answers_each_request_a_round_trip_later(url: str) -> None:
    with Proxy(url, delay_s=0.05) as far, psycopg.connect(far.url, autocommit=True) as db:
        begin = time.monotonic()
        for n in range(4):
            assert db.execute("SELECT %s::int", (n,)).fetchone() == (n,)
        assert time.monotonic() - begin >= 4 * 0.05
        rows = db.execute("SELECT repeat('x', 1000) FROM generate_series(1, 2000)").fetchall()
        assert len(rows) == 2_000
        # Data that is sent in many parts arrives in order.
        text = "".join(map(str, range(100_000)))
        assert db.execute("SELECT md5(%s) = md5(%s)", (text, text)).fetchone() == (True,)
        assert db.execute("SELECT %s", (text,)).fetchone() == (text,)
