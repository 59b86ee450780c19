"""The event loop that work runs in: uvloop's where that is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop

Result = TypeVar("Result")


def run_quickly(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine to its end in the quickest loop there is."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
