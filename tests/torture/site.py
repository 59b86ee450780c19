"""The site of a rig's store: a file, or a server of our own behind a proxy that can fail."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal
from uuid import uuid4

from tests.servers import postgres, redis
from tests.servers.postgres import PostgresServer, fresh_database
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

Kind = Literal["sqlite", "postgres", "redis"]
KINDS: tuple[Kind, ...] = ("sqlite", "postgres", "redis")

ALWAYS = {"appendonly": "yes", "appendfsync": "always"}
"""Redis keeps what it has acknowledged."""


class Site(ABC):
    """An unused store.

    Attributes:
        url: URL for the processes under torture.
        own_url: URL for those that inspect the store afterwards.
    """

    url: str
    own_url: str

    @abstractmethod
    def broken(self) -> list[str]:
        """Return what is wrong with the files themselves, as reported by the database."""


class SqliteSite(Site):
    """A single file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "headway.db"
        self.url = self.own_url = f"sqlite:///{self._path}"

    def broken(self) -> list[str]:
        """See `Site.broken`."""
        db = sqlite3.connect(self._path)
        rows = [row[0] for row in db.execute("PRAGMA integrity_check")]
        db.close()
        return [] if rows == ["ok"] else rows


class ServerSite(Site):
    """A server.

    Args:
        server: a server of our own; None for a server run by someone else.
        url: URL of the store there.
        way: the proxy between it and the processes; None if nothing fails.
    """

    def __init__(
        self, server: PostgresServer | RedisServer | None, url: str, way: Proxy | None
    ) -> None:
        self.server = server
        self.way = way
        self.own_url = url
        self.url = way.url if way is not None else url

    def broken(self) -> list[str]:
        """See `Site.broken`; a server checks its own files when it reads them."""
        return []


@contextmanager
def site_of(kind: Kind, folder: Path, *, failing: bool = False) -> Generator[Site]:
    """Yield a site for a store, removed afterwards.

    Args:
        kind: kind of store.
        folder: folder for a file.
        failing: whether the server, and the connections to it, can be made to fail.

    Raises:
        ServiceMissing: a server is not available.
    """
    with ExitStack() as stack:
        if kind == "sqlite":
            yield SqliteSite(folder)
            return
        server: PostgresServer | RedisServer | None = None
        if kind == "postgres":
            base = postgres.GIVEN_URL if not failing else None
            if not base:
                server = stack.enter_context(PostgresServer())
                base = server.url
            url = stack.enter_context(fresh_database(base))
        else:
            base = redis.GIVEN_URL if not failing else None
            if not base:
                server = stack.enter_context(RedisServer(ALWAYS))
                base = server.url
            url = f"{base}?namespace=torture-{uuid4().hex}"
        way = stack.enter_context(Proxy(url)) if failing else None
        yield ServerSite(server, url, way)
