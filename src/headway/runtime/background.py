"""A background loop: callers that cannot await run the same code there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from headway.core.errors import InvariantBroken

Result = TypeVar("Result")


class Background:
    """One event loop in a thread of its own; started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, Result], *, inline: bool = False) -> Result:
        """Runs something to its end, and waits for it.

        Args:
            work: what to run.
            inline: it ends without suspending, if no event loop runs in the caller's thread.

        Returns:
            What it returns; what it raises is raised here.
        """
        if inline and not _in_a_loop():
            return _drive(work)
        return self.submit(work).result()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Runs something in the loop, and does not wait for it.

        Args:
            work: what to run.

        Returns:
            Has what it returns or raises; cancelling it cancels the work.
        """
        return asyncio.run_coroutine_threadsafe(work, self._started())

    def close(self) -> None:
        """Ends the loop and its thread; it starts again when it is needed again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_main, args=(self._loop,), name="headway-background", daemon=True
                )
                self._thread.start()
            return self._loop


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _drive(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs something to its end here and now: the way to another thread costs more than most work.

    Raises:
        InvariantBroken: it suspended, though its store says that it never does.
    """
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    message = "a store that runs inline has suspended"
    raise InvariantBroken(message)


def _main(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()
