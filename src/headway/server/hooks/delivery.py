"""Signals told to the store: those for one key in their order, those for others beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headway.contract.signals import Heard, Signal, SignalReply
from headway.contract.store import Store

AT_ONCE = 16


async def deliver(store: Store, signals: Sequence[Signal]) -> list[SignalReply]:
    """Tells signals.

    Args:
        store: hears them.
        signals: in the order in which they are true.

    Returns:
        What became of each, in this order.

    Raises:
        StoreError: some were not told, or it is not known; telling all of them again is safe.
    """
    keys: dict[str, list[int]] = {}
    for place, one in enumerate(signals):
        keys.setdefault(one.key, []).append(place)
    replies = [SignalReply(answer=Heard.KEPT)] * len(signals)
    gate = asyncio.Semaphore(AT_ONCE)

    async def tell(places: Sequence[int]) -> None:
        async with gate:
            for place in places:
                replies[place] = await store.signal(signals[place])

    if len(keys) <= 1:
        await tell(range(len(signals)))
        return replies
    # All of them are let end: what is told twice is told in vain, but what is left out is late.
    ends = await asyncio.gather(*map(tell, keys.values()), return_exceptions=True)
    for end in ends:
        if end is not None:
            raise end
    return replies
