"""Small runs with open transactions; `python -m tests.torture open` and `snapshot` are larger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.torture.file_flag import stop
from tests.torture.open_transactions import (
    Passage,
    beside_open_send,
    declared,
    open_snapshot,
)

ROUNDS = 12
_BLOCKS = """
SELECT relname, heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read
FROM pg_statio_user_tables WHERE relname IN ('worker', 'gate')
"""

_ENDING = """
SELECT pid, pg_sleep(0.01) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
AND pid <> pg_backend_pid() AND state <> 'idle in transaction'
"""
"""Connections other than this one and that of the open snapshot."""


@pytest.fixture
def url(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as database:
        yield database


def test_no_call_waits_for_a_transaction_in_which_a_job_was_sent(url: str, tmp_path: Path) -> None:
    seen = beside_open_send(url, stop(tmp_path), 1.0)
    assert seen.looks > 0
    assert seen.waited == []
    assert all(seen.claims)
    assert seen.kept
    assert seen.differences == 0


@pytest.mark.slow
def test_waiting_for_an_open_transaction_is_detected(url: str, tmp_path: Path) -> None:
    plant = "LOCK TABLE headway.job"
    seen = beside_open_send(url, stop(tmp_path), 1.0, plant=plant, patience_ms=300)
    assert seen.waited != []
    assert seen.claims == [0, 0]


@pytest.mark.slow
async def test_claims_do_not_touch_more_worker_and_gate_rows_the_longer_a_snapshot_is_open(
    url: str,
) -> None:
    async with declared(url):
        pass
    with psycopg.connect(url, autocommit=True) as db:
        for table in ("worker", "gate"):
            # The blocks that autovacuum touches would be counted too.
            db.execute(f"ALTER TABLE headway.{table} SET (autovacuum_enabled = off)".encode())
    numbers = iter(range(ROUNDS + 3))
    await one_round(url, next(numbers))
    with open_snapshot(url):
        first = await one_round(url, next(numbers))
        for _ in range(ROUNDS):
            await one_round(url, next(numbers))
        # Plans may change once the server has analysed the tables.
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("ANALYZE")
        last = await one_round(url, next(numbers))
    for table, blocks in first.items():
        assert last[table] <= 1.5 * blocks, (table, first, last)


async def one_round(url: str, number: int) -> dict[str, int]:
    """Pass a thousand gated jobs; return the blocks touched, by table."""
    before = blocks_of(url)
    passage = Passage(url, gated=True, number=number)
    await passage.round()
    # A connection's counts are certain to be reported once it has ended.
    await passage.store.close()
    return {table: blocks - before[table] for table, blocks in blocks_of(url).items()}


def blocks_of(url: str) -> dict[str, int]:
    """Return the blocks touched by connections that have ended on the server, too."""
    with psycopg.connect(url, autocommit=True) as db:
        while db.execute(_ENDING).fetchall():
            pass
        return dict(db.execute(_BLOCKS).fetchall())
