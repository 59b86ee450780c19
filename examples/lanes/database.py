"""The application's own database: SQLite, one connection for each piece of work.

A handler that changes rows does it through `once`: the change and the note that this job has made
it are one transaction. A job may run twice (its worker died after the work and before its word
reached the store); its second run finds the note, changes nothing, and answers what the first did.
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
    """Opens the file when something is to be done, and makes its tables at the first use."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._made = False

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """A connection, closed at the end; rows have names."""
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as found:
            found.row_factory = sqlite3.Row
            if not self._made:
                found.executescript(f"BEGIN IMMEDIATE;{SCHEMA.read_text('utf-8')}COMMIT;")
                self._made = True
            yield found

    @contextmanager
    def write(self) -> Generator[sqlite3.Connection]:
        """A transaction: all of it is written, or nothing if the block raises."""
        with self.read() as found:
            found.execute("BEGIN IMMEDIATE")
            try:
                yield found
            except BaseException:
                found.execute("ROLLBACK")
                raise
            found.execute("COMMIT")

    def once(self, job: str, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Does a job's work if no run of it has done it before.

        Args:
            job: the job's id.
            work: changes rows; what it returns must be JSON.

        Returns:
            What the work returned, now or the first time.
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
    """This moment, as the tables write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
