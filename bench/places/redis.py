"""A Redis server, started with or without an append-only file, or named by the environment."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from bench.places.place import Ground, NoGround, Place
from tests.servers import redis as server
from tests.servers.process import ServerFailed, ServiceMissing

EVERYSEC = {"appendonly": "yes", "appendfsync": "everysec"}


class RedisGround:
    """One database of one server, emptied before each measurement.

    Raises:
        NoGround: the database is not empty.
    """

    store = "redis"

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.url = url
        with Redis.from_url(url, decode_responses=True) as db:
            if db.dbsize():
                message = f"the database at {url} is not empty, and the bench would empty it"
                raise NoGround(message)
            told = db.info()
        self.settings = _durability(url)
        self.title = f"Redis, {self.settings}"
        self.kind = "Valkey" if "valkey_version" in told else "Redis"
        number = str(told.get("valkey_version", told["redis_version"]))
        self.version = tuple(map(int, number.split(".")))

    def facts(self) -> dict[str, str]:
        number = ".".join(map(str, self.version))
        return {"server": f"{self.kind} {number}", "durability": self.settings}

    @contextmanager
    def fresh(self, folder: Path) -> Generator[Place]:
        def beside(name: str) -> str:
            return f"{self.url}?namespace={name}"

        with Redis.from_url(self.url) as db:
            db.flushdb()
            yield Place(url=self.url, folder=folder, beside=beside, size=self._size)
            db.flushdb()

    def _size(self) -> int:
        with Redis.from_url(self.url) as db:
            return int(db.info("memory")["used_memory"])


@contextmanager
def opened() -> Generator[Ground]:
    """Start a server without an append-only file, unless the environment names one.

    Raises:
        NoGround: Redis is not installed or does not start, or the named database is not empty.
    """
    if server.GIVEN_URL:
        yield RedisGround(server.GIVEN_URL, "redis")
        return
    with _ours({}, "redis") as ground:
        yield ground


@contextmanager
def opened_with_log() -> Generator[Ground]:
    """Start a server with an append-only file that is flushed once per second.

    Raises:
        NoGround: Redis is not installed, or does not start.
    """
    with _ours(EVERYSEC, "redis-everysec") as ground:
        yield ground


@contextmanager
def _ours(options: dict[str, str], name: str) -> Generator[Ground]:
    try:
        running = server.RedisServer(options)
    except ServiceMissing as reason:
        raise NoGround(str(reason)) from reason
    try:
        with running:
            yield RedisGround(running.url, name)
    except ServerFailed as reason:
        raise NoGround(str(reason)) from reason


def _durability(url: str) -> str:
    with Redis.from_url(url, decode_responses=True) as db:
        if db.config_get("appendonly")["appendonly"] == "no":
            return "no append-only file"
        return f"appendfsync {db.config_get('appendfsync')['appendfsync']}"
