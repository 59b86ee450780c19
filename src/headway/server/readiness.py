"""Readiness: whether a server can do its work now."""

from __future__ import annotations

import asyncio

from headway.contract.mending import Mendable
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.errors import HeadwayError, StoreChanged, StoreUnavailable
from headway.runtime.timing import Timing

PATIENCE_S = 2.0
"""How long the store may take to answer."""
FRESH_S = 1.0
"""How long an answer is given again: anybody may ask."""


class Readiness:
    """Asks the store, at most once a second whoever asks."""

    def __init__(self, store: Store, timing: Timing) -> None:
        """Has not asked yet.

        Args:
            store: that must answer.
            timing: for the limit.
        """
        self._store = store
        self._timing = timing
        self._alone = asyncio.Lock()
        self._asked_at: float | None = None
        self._fault: HeadwayError | None = None

    async def fault(self) -> HeadwayError | None:
        """Why the server cannot do its work; None if it can."""
        async with self._alone:
            now = self._timing.monotonic()
            if self._asked_at is None or now - self._asked_at >= FRESH_S:
                self._fault = await self._ask()
                self._asked_at = self._timing.monotonic()
            return self._fault

    async def _ask(self) -> HeadwayError | None:
        try:
            async with self._timing.limit(PATIENCE_S):
                await self._store.read(StatsQuery())
                if isinstance(self._store, Mendable):
                    found = await self._store.suspicion()
                    return found and StoreChanged(found.message, hint=found.hint)
        except HeadwayError as error:
            return error
        except TimeoutError:
            return StoreUnavailable(f"the store did not answer within {PATIENCE_S:g} s")
        return None
