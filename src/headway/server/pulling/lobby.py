"""The lobby: where long polls wait."""

from __future__ import annotations

from headway.contract.store import Store
from headway.runtime.timing import Timing


class Lobby:
    """Placeholder."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self.store = store
        self.timing = timing

    def close(self) -> None:
        """Sends everybody home."""
