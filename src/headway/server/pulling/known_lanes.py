"""Known lanes: the names of the store's lanes, for pulls that ask for lanes by pattern."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from headway.contract.store import Store
from headway.contract.views import LanesQuery
from headway.runtime.persist import PASSING
from headway.runtime.timing import Timing

LIST_EVERY = 1.0
"""Seconds between two lists, while somebody waits for what fits a pattern."""


class KnownLanes:
    """The names of the store's lanes, as they were a moment ago.

    Args:
        store: has the lanes.
        timing: tells how long ago that was.
        met: is told each lane that was not known before.
    """

    def __init__(self, store: Store, timing: Timing, met: Callable[[str], None]) -> None:
        self._store = store
        self._timing = timing
        self._met = met
        self._names: set[str] = set()
        self._listed_at = float("-inf")
        self._listing = asyncio.Lock()

    async def names(self) -> Collection[str]:
        """The names; read from the store if the last list is older than a second.

        Raises:
            StoreError: it cannot be read.
        """
        async with self._listing:
            if self._timing.monotonic() >= self._listed_at + LIST_EVERY:
                await self._list()
        return self._names

    def meet(self, lane: str) -> None:
        """A job was sent to a lane: it exists now."""
        if lane not in self._names:
            self._names.add(lane)
            self._met(lane)

    async def keep_up(self) -> None:
        """Lists again and again, until it is cancelled; other processes make lanes too."""
        while True:
            await self._timing.pause(LIST_EVERY)
            try:
                await self.names()
            except PASSING:
                # Whoever claims is told why.
                continue

    async def _list(self) -> None:
        asked_at = self._timing.monotonic()
        lanes = await self._store.read(LanesQuery())
        self._listed_at = asked_at
        for lane in lanes:
            self.meet(lane.name)
