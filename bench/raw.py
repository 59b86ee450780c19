"""The limits of the machine: what apsw alone does with the row that this engine stores.

The row is not imitated. The engine makes an empty file and enqueues one job; the row that it wrote
is then repeated, with other ids, into the same table with the same indexes.
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
        db: in WAL mode with synchronous=FULL.
        insert: the statement.
        row: of the one job in it.
        fresh: numbers that no row has.
    """

    db: apsw.Connection
    insert: str
    row: list[apsw.SQLiteValue]
    seq: int
    id: int
    fresh: count[int]

    @classmethod
    def open(cls, path: Path) -> RawTable:
        """Opens a file in which the engine has put exactly one job."""
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
        """Rows as the engine would write them, but for their ids."""
        made: list[tuple[apsw.SQLiteValue, ...]] = []
        for _ in range(n):
            number = next(self.fresh)
            row = list(self.row)
            row[self.seq] = number
            row[self.id] = _other_id(row[self.id], number)
            made.append(tuple(row))
        return made

    def single(self, n: int) -> float:
        """Commits of one row each, per second."""
        rows = self.rows(n)
        insert, execute = self.insert, self.db.execute
        begin = time.perf_counter()
        for row in rows:
            execute(insert, row)
        return n / (time.perf_counter() - begin)

    def bulk(self, n: int) -> float:
        """Rows per second in transactions of 1,000."""
        rows = self.rows(n)
        begin = time.perf_counter()
        for at in range(0, n, 1_000):
            with self.db:
                self.db.executemany(self.insert, rows[at : at + 1_000])
        return n / (time.perf_counter() - begin)

    def claims(self, n: int, size: int) -> float:
        """Rows per second taken in order, `size` a transaction: one UPDATE … RETURNING each."""
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
    """Commits a second of the least row that a queue could do with: six columns, one index."""
    db, rows = _bare(path, n)
    insert = "INSERT INTO bare VALUES (?, ?, ?, ?, ?, ?)"
    begin = time.perf_counter()
    for row in rows:
        db.execute(insert, row)
    seconds = time.perf_counter() - begin
    db.close()
    return n / seconds


def bare_bulk(path: Path, n: int) -> float:
    """Rows a second of the least row, in transactions of 1,000."""
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
