"""How much space a job takes on the device."""

from __future__ import annotations

import os
from pathlib import Path

import uuid_utils

from headway.core.job import NewJob
from headway.stores.sqlite import SqliteStore
from headway.testing.clock import START_AT
from tests.sqlite.rig import options

COUNT = 20_000
ARGS = b'{"text":"' + b"x" * 189 + b'"}'


async def test_scheduled_job_with_200_bytes_of_arguments_takes_at_most_700_bytes(
    path: Path,
) -> None:
    """Due times are spread, so the index on them is not filled in order."""
    assert len(ARGS) == 200
    store = SqliteStore(options(path))
    empty = os.stat(path).st_size
    for first in range(0, COUNT, 1000):
        await store.enqueue(
            [
                NewJob(
                    id=str(uuid_utils.uuid7()),
                    kind="remind",
                    lane="reminders",
                    args=ARGS,
                    due_at=2 * START_AT + (n * 7_919) % COUNT * 60_000,
                )
                for n in range(first, first + 1000)
            ]
        )
    await store.close()
    assert (os.stat(path).st_size - empty) / COUNT <= 700
