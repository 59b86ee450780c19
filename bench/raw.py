"""The limits of the machine: rates of apsw alone for the row that this engine stores.

The row is the engine's own: it creates a file and enqueues one job, whose row is then inserted
repeatedly, with other ids, into the same table with the same indexes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import apsw

BARE = """
CREATE TABLE bare (
    id BLOB PRIMARY KEY, state INTEGER, priority INTEGER, due_at INTEGER, seq INTEGER, args BLOB
) WITHOUT ROWID;
CREATE INDEX bare_order ON bare (priority, due_at, seq) WHERE state = 1;
"""


@dataclass(slots=True)
class RawTable:
    """The engine's own job table, written to without the engine.

    Attributes:
        db: In WAL mode with synchronous=FULL.
        insert: The INSERT statement.
        row: The row of the engine's job.
        seq: Index of the column `seq`.
        id: Index of the column `id`.
        fresh: Unused numbers.
    """

    db: apsw.Connection
    insert: str
    row: list[apsw.SQLiteValue]
    seq: int
    id: int
    fresh: count[int]

    @classmethod
    def open(cls, path: Path) -> RawTable:
        """Open a file with exactly one job of the engine."""
        db = apsw.Connection(str(path))
        _settle_down(db)
        cursor = db.execute("SELECT * FROM job")
        names = [column[0] for column in cursor.get_description()]
        (row,) = cursor.fetchall()
        marks = ", ".join("?" * len(names))
        return cls(
            db,
            f"INSERT INTO job ({', '.join(names)}) VALUES ({marks})",
            list(row),
            names.index("seq"),
            names.index("id"),
            count(10),
        )

    def rows(self, n: int) -> list[tuple[apsw.SQLiteValue, ...]]:
        """Return rows as the engine would write them, with other ids."""
        made: list[tuple[apsw.SQLiteValue, ...]] = []
        for _ in range(n):
            number = next(self.fresh)
            row = list(self.row)
            row[self.seq] = number
            row[self.id] = _other_id(row[self.id], number)
            made.append(tuple(row))
        return made

    def single(self, n: int) -> float:
        """Return commits per second, of one row each."""
        rows = self.rows(n)
        insert, execute = self.insert, self.db.execute
        begin = time.perf_counter()
        for row in rows:
            execute(insert, row)
        return n / (time.perf_counter() - begin)

    def bulk(self, n: int) -> float:
        """Return rows per second in transactions of 1,000."""
        rows = self.rows(n)
        begin = time.perf_counter()
        for at in range(0, n, 1_000):
            with self.db:
                self.db.executemany(self.insert, rows[at : at + 1_000])
        return n / (time.perf_counter() - begin)

    def claims(self, n: int, size: int) -> float:
        """Return rows claimed per second, in order, by UPDATE … RETURNING of `size` rows each."""
        take = (
            "UPDATE job SET state = 3, run = run + 1 WHERE seq IN (SELECT seq FROM job INDEXED BY"
            " job_waiting WHERE state = 1 AND lane = ?1 AND flow = ?2"
            " ORDER BY priority, due_at, seq LIMIT ?3) RETURNING id, args"
        )
        (where,) = self.db.execute("SELECT lane, flow FROM job LIMIT 1").fetchall()
        begin = time.perf_counter()
        taken = 0
        while taken < n:
            got = len(self.db.execute(take, (*where, size)).fetchall())
            if not got:
                break
            taken += got
        return taken / (time.perf_counter() - begin)

    def close(self) -> None:
        self.db.close()


def bare_single(path: Path, n: int) -> float:
    """Return commits per second of the smallest useful row: six columns, one index."""
    db, rows = _bare(path, n)
    insert = "INSERT INTO bare VALUES (?, ?, ?, ?, ?, ?)"
    begin = time.perf_counter()
    for row in rows:
        db.execute(insert, row)
    seconds = time.perf_counter() - begin
    db.close()
    return n / seconds


def bare_bulk(path: Path, n: int) -> float:
    """Return rows per second of the smallest row, in transactions of 1,000."""
    db, rows = _bare(path, n)
    begin = time.perf_counter()
    for at in range(0, n, 1_000):
        with db:
            db.executemany("INSERT INTO bare VALUES (?, ?, ?, ?, ?, ?)", rows[at : at + 1_000])
    seconds = time.perf_counter() - begin
    db.close()
    return n / seconds


def _bare(path: Path, n: int) -> tuple[apsw.Connection, list[tuple[apsw.SQLiteValue, ...]]]:
    db = apsw.Connection(str(path))
    _settle_down(db)
    for statement in BARE.split(";"):
        db.execute(statement)
    return db, [
        (number.to_bytes(16), 1, 512, 1_700_000_000_000, number, b'{"n": %d}' % number)
        for number in range(n)
    ]


def _settle_down(db: apsw.Connection) -> None:
    db.execute("PRAGMA journal_mode = wal")
    db.execute("PRAGMA synchronous = full")


def _other_id(like: apsw.SQLiteValue, number: int) -> apsw.SQLiteValue:
    if isinstance(like, bytes):
        return like[:-6] + number.to_bytes(6)
    text = str(like)
    return f"{text[:-12]}{number:012x}"
