"""Patience: a call is repeated until the store has said what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headway.core.errors import OutcomeUnknown, StoreUnavailable

Reply = TypeVar("Reply")

PAUSE_S = 0.05


async def until_told(call: Callable[[], Awaitable[Reply]]) -> tuple[Reply, bool]:
    """Calls until there is an answer, whatever breaks meanwhile.

    Args:
        call: makes the same call each time.

    Returns:
        The answer, and whether an earlier try may have done it already.
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
