"""The sweep: brings about what time alone decides, such as the end of leases and deadlines."""

from __future__ import annotations

import asyncio
import logging

from headway.contract.store import Store
from headway.runtime.timing import Timing
from headway.runtime.worker.persist import PASSING

SWEEP_SIZE = 500
LONGEST = 2.0
"""Seconds after which to look again: what others do may have made something due earlier."""
SHORTEST = 0.02

_log = logging.getLogger("headway.chores")


class Sweep:
    """Sweeps whenever something is due, in bounded steps."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            try:
                reply = await self._store.sweep(SWEEP_SIZE)
                if reply.again:
                    await self._timing.pause(0)
                else:
                    await self._rest(reply.next_at)
            except PASSING as error:
                _log.warning("sweep: %s", error)
                await self._timing.pause(LONGEST)

    async def _rest(self, next_at: int | None) -> None:
        """Waits for the moment, by the store's time, but not for longer than the longest rest."""
        await self._timing.pause(SHORTEST)
        longest = asyncio.ensure_future(self._timing.pause(LONGEST))
        resting = [longest]
        if next_at is not None:
            resting.append(asyncio.ensure_future(self._store.wait((), next_at, 0)))
        try:
            await asyncio.wait(resting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in resting:
                one.cancel()
            await asyncio.gather(*resting, return_exceptions=True)
