"""A thread with an event loop of its own, in which the heart of a worker beats."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


class HeartThread:
    """Runs a heart where no handler can hold it up.

    Attributes:
        ended: set in the worker's loop when the thread has ended.
    """

    def __init__(
        self,
        beat: Callable[[], Coroutine[Any, Any, None]],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        """Makes one; it belongs to the running loop.

        Args:
            beat: makes the heart's coroutine, in the thread.
            on_crash: told in the worker's loop why the heart stopped, if nobody stopped it.
        """
        self.ended = asyncio.Event()
        self._beat = beat
        self._on_crash = on_crash
        self._worker_loop = asyncio.get_running_loop()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        # A heart that hangs in a store must not keep a program from ending.
        self._thread = threading.Thread(target=self._main, name="headway-heart", daemon=True)

    def start(self) -> None:
        """Starts the thread; it beats when this has returned."""
        self._thread.start()
        self._ready.wait()

    def call(self, what: Callable[[], object]) -> None:
        """Calls something in the thread's loop, if it still runs."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the thread may end at any moment, and its loop with it
                self._loop.call_soon_threadsafe(what)

    def stop(self) -> None:
        """Tells the heart to stop; `ended` tells when it has."""
        if self._task is not None:
            self.call(self._task.cancel)

    def _main(self) -> None:
        try:
            asyncio.run(self._live())
        except Exception as error:  # noqa: BLE001  (told to the worker, which raises it)
            self._tell(lambda error=error: self._on_crash(error))
        finally:
            self._ready.set()
            self._tell(self.ended.set)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._beat())
        self._ready.set()
        with suppress(asyncio.CancelledError):
            await self._task

    def _tell(self, what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the worker's loop may have ended before
            self._worker_loop.call_soon_threadsafe(what)
