"""The place of one measurement: an empty store that is removed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from bench.child import child
from tests.servers.proxy import Proxy


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """An empty store.

    Attributes:
        url: URL of the store; peers derive their own from it.
        folder: An empty folder for other files of the measurement.
        beside: Returns the URL of another empty store in the same server or folder, by name.
        size: Returns the current bytes of all stores of this place.
    """

    url: str
    folder: Path
    beside: Callable[[str], str]
    size: Callable[[], int]


class Ground(Protocol):
    """A type of store, and the server that runs it.

    Attributes:
        name: Name on the command line, with the network delay if there is one.
        store: `sqlite`, `postgres` or `redis`.
        title: Heading of its tables, with its durability.
        version: Version of the server.
    """

    name: str
    store: str
    title: str
    version: tuple[int, ...]

    def facts(self) -> dict[str, str]:
        """Return facts about the server for the report."""
        ...

    def fresh(self, folder: Path) -> AbstractContextManager[Place]:
        """Create an empty store; at most one at a time."""
        ...


@contextmanager
def at_distance(ground: Ground, rtt_ms: float) -> Generator[Ground]:
    """Yield a ground with a network delay, added by a proxy in a separate process.

    Args:
        ground: Its server must be reached by host and port.
        rtt_ms: Delay added to each round trip, ms.
    """
    yield _Distant(ground, rtt_ms)


class _Distant:
    def __init__(self, ground: Ground, rtt_ms: float) -> None:
        self._ground = ground
        self._rtt_ms = rtt_ms
        self.name = f"{ground.name}, {rtt_ms:g} ms"
        self.store = ground.store
        self.title = f"{ground.title}, {rtt_ms:g} ms away"
        self.version = ground.version

    def facts(self) -> dict[str, str]:
        return {**self._ground.facts(), "round trip": f"{self._rtt_ms:g} ms, by a proxy"}

    @contextmanager
    def fresh(self, folder: Path) -> Generator[Place]:
        with self._ground.fresh(folder) as place, child(_delay, place.url, self._rtt_ms) as proxy:
            yield replace(place, url=proxy.receive())
            proxy.send(None)


def _delay(pipe: Connection, url: str, rtt_ms: float) -> None:
    with Proxy(url, delay_s=rtt_ms / 1_000) as proxy:
        pipe.send(proxy.url)
        pipe.recv()


class NoGround(Exception):
    """The store cannot be measured on this machine."""
