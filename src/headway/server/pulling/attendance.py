"""Attendance: the store is told that somebody serves the lanes of those who wait.

Most of those who wait never ask the store in their own name, and none does while it waits. So one
worker stands for all of them, or whoever asks why a job does not run would hear that nobody is
there for it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable

from headway.contract.claims import BeatRequest
from headway.contract.store import Store
from headway.core.errors import StoreError
from headway.runtime.timing import Timing

EVERY = 10.0
"""Seconds between two beats; who waits for less costs none."""
LEASE_MS = 30_000
MOST_LANES = 1_000
"""Lanes that are told."""
NAME = "long polls"

_log = logging.getLogger("headway.server")


class Attendance:
    """The worker that stands for those who wait in one lobby.

    Args:
        store: to be told.
        timing: for the pauses.
        lanes: tells the lanes that somebody waits for now.
    """

    def __init__(self, store: Store, timing: Timing, lanes: Callable[[], Iterable[str]]) -> None:
        self._store = store
        self._timing = timing
        self._lanes = lanes
        self._worker = f"lobby.{secrets.token_hex(6)}"

    async def keep(self) -> None:
        """Beats until it is cancelled; its lease ends by itself soon after."""
        while True:
            await self._timing.pause(EVERY)
            lanes = sorted(set(self._lanes()))[:MOST_LANES]
            request = BeatRequest(
                worker=self._worker, lanes=tuple(lanes), name=NAME, lease_ms=LEASE_MS
            )
            try:
                await self._store.beat(request)
            except StoreError as error:
                # Whoever claims is told; here it only means that fewer workers are listed.
                _log.debug("those who wait are not told of: %s", error)
