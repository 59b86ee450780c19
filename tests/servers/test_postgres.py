from __future__ import annotations

import signal
import subprocess
import sys

import psycopg
import pytest

from tests.servers.fixtures import made
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


def _ask(url: str, query: str) -> object:
    with psycopg.connect(url) as db:
        row = db.execute(query.encode()).fetchone()
    return row[0] if row else None


def test_shared_server_answers(postgres_server: PostgresServer | GivenPostgres) -> None:
    assert _ask(postgres_server.url, "SELECT 1") == 1


def test_committed_data_survives_a_kill_and_a_restart_on_the_same_port() -> None:
    with made(PostgresServer) as server:
        with psycopg.connect(server.url) as db:
            db.execute("CREATE TABLE kept AS SELECT 7 AS n")
        url, pid = server.url, server.pid
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        assert server.url == url
        assert server.pid != pid
        assert _ask(url, "SELECT n FROM kept") == 7
        assert _ask(server.socket_url, "SELECT n FROM kept") == 7
        assert _ask(url, "SHOW fsync") == "on"


def test_stopped_test_process_stops_its_server() -> None:
    program = """
import sys
from tests.servers.postgres import PostgresServer
server = PostgresServer({"fsync": "off"}).start()
print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""
    made(PostgresServer).close()
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    pid, folder = child.stdout.readline().split()
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=30)
    # `tail` exits once the process is gone; then wait for the folder to be removed.
    gone = f"tail --pid={pid} -f /dev/null; while [ -e {folder} ]; do read -t 1 _ <> <(:); done"
    subprocess.run(["bash", "-c", gone], check=True, timeout=30)


def test_fresh_database_is_empty_and_gone_afterwards(
    postgres_server: PostgresServer | GivenPostgres,
) -> None:
    with fresh_database(postgres_server.url) as url:
        count = "SELECT count(*) FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)'"
        assert _ask(url, count) == 1
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
