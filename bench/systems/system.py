"""A queue under measurement, which starts its enqueuing and worker processes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from bench.child import Child, child
from bench.systems.consuming import consume
from bench.systems.peer import Peer
from bench.systems.producing import produce


class System(Protocol):
    """The interface of a queue for the cases; the attributes are those of a peer."""

    name: str
    version: str
    setting: str
    bulk: bool
    bursts: bool
    slow: bool

    def producing(self) -> AbstractContextManager[Child]:
        """Start a process with the commands of `bench.systems.producing`."""
        ...

    def working(
        self, url: str, board: Path, place: int, clock: str | None = None
    ) -> AbstractContextManager[Child]:
        """Start a worker with the protocol of `bench.systems.consuming`."""
        ...


class PythonSystem:
    """A queue in Python."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.name = peer.name
        self.version = peer.version
        self.setting = peer.setting
        self.bulk = peer.bulk
        self.bursts = peer.bursts
        self.slow = peer.slow

    def producing(self) -> AbstractContextManager[Child]:
        return child(produce, self.peer)

    def working(
        self, url: str, board: Path, place: int, clock: str | None = None
    ) -> AbstractContextManager[Child]:
        return child(consume, self.peer, url, board, place, clock)
