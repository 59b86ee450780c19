"""Turns: work on a large body runs in a thread, and lets the event loop run between its steps.

A thread holds the interpreter for each step, in a thread as much as in the loop, and a loop that
contends for it waits again for each event. So after each step the thread waits until the loop has
been served.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

Result = TypeVar("Result")

_give: ContextVar[Callable[[], None] | None] = ContextVar("_give", default=None)


def yield_to_loop() -> None:
    """Let the event loop run before the next step; does nothing outside of `run_in_steps`."""
    give = _give.get()
    if give is not None:
        give()


async def run_in_steps(work: Callable[[], Result]) -> Result:
    """Run work in a thread that calls `yield_to_loop` between its steps.

    Args:
        work: if the caller is cancelled, it ends at its next turn.

    Returns:
        What it returns.
    """
    loop = asyncio.get_running_loop()
    is_over = False

    def give() -> None:
        if is_over:
            raise asyncio.CancelledError
        served = threading.Event()
        # Twice: what has arrived is read in one round of the loop, and answered in the next.
        loop.call_soon_threadsafe(loop.call_soon, served.set)
        served.wait()

    def run() -> Result:
        _give.set(give)
        return work()

    try:
        return await asyncio.to_thread(run)
    finally:
        is_over = True
