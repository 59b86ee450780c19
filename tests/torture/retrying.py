"""Patience: a call is repeated until the store has reported its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headway.core.errors import OutcomeUnknown, StoreUnavailable

Reply = TypeVar("Reply")

PAUSE_S = 0.05


async def retry_until_reported(call: Callable[[], Awaitable[Reply]]) -> tuple[Reply, bool]:
    """Repeat a call until there is a reply, whatever fails meanwhile.

    Args:
        call: makes the same call each time.

    Returns:
        The reply, and whether an earlier try may already have taken effect.
    """
    unknown = False
    while True:
        try:
            return await call(), unknown
        except OutcomeUnknown:
            unknown = True
        except StoreUnavailable:
            pass
        await asyncio.sleep(PAUSE_S)
