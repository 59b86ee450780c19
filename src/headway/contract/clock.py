"""The clock that a store reads; injected, so that tests and the simulator own time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Returns the time."""

    def __call__(self) -> int:
        """Milliseconds since 1970, UTC. May jump; the store makes it monotonic."""
        ...
