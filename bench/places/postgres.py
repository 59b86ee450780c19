"""A PostgreSQL server with fsync, started for the run or named by the environment."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from bench.places.place import Ground, NoGround, Place
from tests.servers import postgres as server
from tests.servers.process import ServerFailed, ServiceMissing

SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "wal_level")


class PostgresGround:
    """Databases of one server."""

    name = "postgres"
    store = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url
        with psycopg.connect(url, autocommit=True) as db:
            self.version = (db.info.server_version // 10_000, db.info.server_version % 10_000)
            self.settings = {name: _one(db, f"SHOW {name}") for name in SETTINGS}
        durable = ", ".join(f"{name}={self.settings[name]}" for name in SETTINGS[:2])
        self.title = f"PostgreSQL, {durable}"

    def facts(self) -> dict[str, str]:
        number = ".".join(map(str, self.version))
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return {"server": f"PostgreSQL {number}", "durability": settings}

    @contextmanager
    def fresh(self, folder: Path) -> Generator[Place]:
        with ExitStack() as databases:
            urls = [databases.enter_context(server.fresh_database(self.url))]

            def beside(name: str) -> str:
                del name
                urls.append(databases.enter_context(server.fresh_database(self.url)))
                return urls[-1]

            yield Place(
                url=urls[0], folder=folder, beside=beside, size=lambda: sum(map(_size, urls))
            )


@contextmanager
def opened() -> Generator[Ground]:
    """Start the server, unless the environment names one.

    Raises:
        NoGround: PostgreSQL is not installed, or does not start.
    """
    if server.GIVEN_URL:
        yield PostgresGround(server.GIVEN_URL)
        return
    try:
        running = server.PostgresServer()
    except ServiceMissing as reason:
        raise NoGround(str(reason)) from reason
    try:
        with running:
            yield PostgresGround(running.url)
    except ServerFailed as reason:
        raise NoGround(str(reason)) from reason


def _size(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("VACUUM")
        db.execute("CHECKPOINT")
        return int(_one(db, "SELECT pg_database_size(current_database())"))


def _one(db: psycopg.Connection, statement: str) -> str:
    row = db.execute(statement).fetchone()  # type: ignore[arg-type]  # our own words
    return str(row[0]) if row else ""
