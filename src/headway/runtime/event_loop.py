"""The event loop of a program that works: uvloop where it is installed; signals stop it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs something to its end on the fastest loop there is.

    Args:
        work: what to run.

    Returns:
        What it returns.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def on_signals(stop: Callable[[bool], None]) -> None:
    """Calls when the program is told to end, by SIGTERM or Ctrl-C, in the running loop.

    Args:
        stop: called with False the first time, and with True from the second on.
    """
    loop = asyncio.get_running_loop()
    told: list[int] = []

    def hear(number: int) -> None:
        stop(bool(told))
        told.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear, number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415  (an extra: it may not be there)

    return uvloop.new_event_loop
