"""The WAL stays short, whichever process writes, and a checkpoint does not block on a reader."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from headway.stores.sqlite import SqliteStore
from headway.stores.sqlite.connection import connect, create
from headway.stores.sqlite.disk import LATE, SOON, Checkpoints
from tests.plain_jobs import job, jobs
from tests.sqlite.rig import options

FRAME = 4096 + 24


def log_pages(path: Path) -> int:
    return os.stat(path.with_name(f"{path.name}-wal")).st_size // FRAME


async def test_log_of_small_commits_is_checkpointed_soon(path: Path) -> None:
    store = SqliteStore(options(path))
    for number in range(3 * SOON // 4):
        await store.enqueue([job(number)])
    assert log_pages(path) <= SOON + 20
    await store.close()


async def test_log_of_large_commits_is_checkpointed_later(path: Path) -> None:
    store = SqliteStore(options(path))
    for first in range(0, 30_000, 1000):
        await store.enqueue(jobs(first, 1000))
    assert SOON < log_pages(path) <= LATE + 1000
    await store.close()


def test_log_needed_by_a_reader_is_not_tried_at_each_commit(path: Path) -> None:
    create(options(path))
    db = connect(options(path))
    checkpoints = Checkpoints(db)
    reader = apsw.Connection(str(path))
    db.execute("INSERT INTO number VALUES (-1000, 0)")
    reader.execute("BEGIN; SELECT count(*) FROM number").fetchall()
    tried = 0
    for number in range(3 * SOON):
        db.execute("UPDATE number SET n = ? WHERE key = -1000", (number,))
        tried += checkpoints.run_if_due()
    assert tried == 3
    reader.execute("COMMIT")
    while not checkpoints.run_if_due():
        db.execute("UPDATE number SET n = n + 1 WHERE key = -1000")
    db.execute("UPDATE number SET n = n + 1 WHERE key = -1000")
    assert log_pages(path) >= 3 * SOON
    assert checkpoints._pages == 1
    reader.close()
    db.close()
