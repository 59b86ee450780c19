"""SQLite files, with an fsync for each commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

from bench.places.place import Ground, Place

_SCHEME = "sqlite:///"


class SqliteGround:
    """Files of this engine's version of SQLite."""

    name = "sqlite"
    store = "sqlite"
    title = "SQLite, synchronous=FULL"
    version = tuple(map(int, apsw.sqlite_lib_version().split(".")))

    def facts(self) -> dict[str, str]:
        return {
            "server": f"{apsw.sqlite_lib_version()} (apsw), {sqlite3.sqlite_version} (peers)",
            "durability": "WAL, synchronous=FULL: an fsync for each commit, for everybody",
        }

    @contextmanager
    def fresh(self, folder: Path) -> Generator[Place]:
        def beside(name: str) -> str:
            return f"{_SCHEME}{folder / name}.db"

        def size() -> int:
            return sum(_pages(path) for path in folder.glob("*.db"))

        yield Place(url=beside("headway"), folder=folder, beside=beside, size=size)


@contextmanager
def opened() -> Generator[Ground]:
    yield SqliteGround()


def file_beside(url: str, name: str) -> Path:
    """Return a file in the folder of the file that a URL names."""
    return path_of(url).with_name(name)


def path_of(url: str) -> Path:
    """Return the file that a URL names."""
    return Path(url.removeprefix(_SCHEME))


def _pages(path: Path) -> int:
    db = apsw.Connection(str(path))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    return path.stat().st_size
