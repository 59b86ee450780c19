"""Plain handlers: each runs in a thread, so that it cannot hold up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Threads:
    """As many threads as the worker has handlers; none is started before it is needed."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="headway-handler")

    async def run(self, call: Callable[[], Value]) -> Value:
        """Calls in a thread, in the context of the caller.

        Args:
            call: what to do.

        Returns:
            What it returns; what it raises is raised here.
        """
        loop, context = asyncio.get_running_loop(), copy_context()
        ended = await loop.run_in_executor(self._pool, lambda: context.run(_Ended[Value], call))
        return ended.get()

    def close(self) -> None:
        """Lets the threads go; one that still runs goes on until it ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Ended(Generic[Value]):
    """How a call ended. Some errors, such as StopIteration, cannot pass through a future."""

    __slots__ = ("_error", "_value")

    def __init__(self, call: Callable[[], Value]) -> None:
        self._error: BaseException | None = None
        try:
            self._value = call()
        except BaseException as error:  # noqa: BLE001  (whatever a handler raises is its failure)
            self._error = error

    def get(self) -> Value:
        if self._error is not None:
            raise self._error
        return self._value
