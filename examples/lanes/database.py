"""The application's own database: SQLite, with one connection for each operation.

Handlers change rows through `once`, which records in the same transaction that the job has made the
change. A job may run twice, if its worker died after the work but before reporting the result. The
second run then changes nothing, and returns the result of the first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
SCHEMA = Path(__file__).with_name("schema.sql")


class Database:
    """Opens the file for each operation, and creates its tables on first use."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._made = False

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """Open a connection for reading; its rows can be accessed by name."""
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as found:
            found.row_factory = sqlite3.Row
            if not self._made:
                found.executescript(f"BEGIN IMMEDIATE;{SCHEMA.read_text('utf-8')}COMMIT;")
                self._made = True
            yield found

    @contextmanager
    def write(self) -> Generator[sqlite3.Connection]:
        """Open a transaction, which is rolled back if the block raises."""
        with self.read() as found:
            found.execute("BEGIN IMMEDIATE")
            try:
                yield found
            except BaseException:
                found.execute("ROLLBACK")
                raise
            found.execute("COMMIT")

    def once(self, job: str, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do a job's work, unless an earlier run has done it.

        Args:
            job: Id of the job.
            work: Changes rows; its result must be JSON.

        Returns:
            The result of the work, from this or the earlier run.
        """
        with self.write() as db:
            done = db.execute("SELECT result FROM done WHERE job = ?", (job,)).fetchone()
            if done is not None:
                return json.loads(done["result"])
            result = work(db)
            db.execute(
                "INSERT INTO done (job, result, at) VALUES (?, ?, ?)",
                (job, json.dumps(result), now()),
            )
            return result


def now() -> str:
    """Return the current time, as the tables store it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
