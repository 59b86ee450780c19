"""Where one measurement happens: an empty store, made for it and gone after it."""

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
        url: of the store; peers make of it what they need.
        folder: an empty one, for what else the measurement writes.
        beside: the URL of a further empty store in the same server or folder, by a name.
        size: bytes that all stores of this place take now.
    """

    url: str
    folder: Path
    beside: Callable[[str], str]
    size: Callable[[], int]


class Ground(Protocol):
    """A kind of store, and the server that runs it.

    Attributes:
        name: as the command says it.
        store: what runs there: `sqlite`, `postgres` or `redis`.
        title: over its tables, with how durable it is.
        version: of the server.
    """

    name: str
    store: str
    title: str
    version: tuple[int, ...]

    def facts(self) -> dict[str, str]:
        """What a reader must know."""
        ...

    def fresh(self, folder: Path) -> AbstractContextManager[Place]:
        """An empty store; at most one at a time."""
        ...


@contextmanager
def at_distance(ground: Ground, rtt_ms: float) -> Generator[Ground]:
    """A ground whose server is a round trip away: a proxy in a process of its own delays requests.

    Args:
        ground: with a server that is reached by host and port.
        rtt_ms: added to each round trip, ms.
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
    """The store cannot be measured here; says why."""
