"""Repeats what a store could not do just now. Every operation may be repeated."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headway.core.errors import OutcomeUnknown, StoreFull, StoreUnavailable
from headway.runtime.timing import Timing

Reply = TypeVar("Reply")

PASSING = (StoreUnavailable, OutcomeUnknown, StoreFull)
"""Errors of a store that may heal by themselves."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0

_log = logging.getLogger("headway.worker")


async def persist(
    timing: Timing,
    what: str,
    call: Callable[[], Awaitable[Reply]],
    *,
    until: Callable[[], bool] = lambda: False,
) -> Reply:
    """Call until the store answers.

    Args:
        what: the operation, for the log.
        call: makes the same call each time.
        until: whether to give up after the failure at hand.

    Returns:
        The store's answer.

    Raises:
        StoreError: it does not heal, or `until` said to give up; what was written is unknown.
    """
    seconds = FIRST_PAUSE
    while True:
        try:
            return await call()
        except PASSING as error:
            if until():
                raise
            _log.warning("%s: %s; again in %g s", what, error, seconds)
        await timing.pause(seconds)
        seconds = min(seconds * 2, LONGEST_PAUSE)
