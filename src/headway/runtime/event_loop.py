"""The event loop of a program that works: uvloop where it is installed; signals stop it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from importlib.util import find_spec
from typing import Any, TypeVar

from headway.core.errors import InvalidValue, InvariantBroken, OutcomeUnknown

Result = TypeVar("Result")


_ENDING = (signal.SIGTERM, signal.SIGINT)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run something to its end on the fastest loop there is.

    Raises:
        InvalidValue: a loop runs in this thread already.
    """
    if _in_a_loop():
        work.close()
        message = "`run` starts an event loop, but one is already running in this thread"
        raise InvalidValue(message, hint="use `await worker(...).run()` instead")
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def on_signals(stop: Callable[[bool], None]) -> None:
    """Call when the program is asked to end, by SIGTERM or Ctrl-C, in the running loop.

    Args:
        stop: called with False the first time, and with True the second. A third signal ends the
            process at once: a thread or a task that does not end keeps it from ending by itself.

    Raises:
        InvalidValue: this is not the main thread, and Python gives signals to no other.
    """
    if threading.current_thread() is not threading.main_thread():
        message = "`run` handles the program's signals, which only the main thread can do"
        raise InvalidValue(message, hint="elsewhere use asyncio.run(worker(...).run())")
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def on_signal(number: int) -> None:
        stop(bool(received))
        received.append(number)
        if len(received) > 1:
            for one in _ENDING:
                loop.remove_signal_handler(one)
                signal.signal(one, signal.SIG_DFL)

    for number in _ENDING:
        loop.add_signal_handler(number, on_signal, number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415  (an extra: it may not be there)

    return uvloop.new_event_loop


class Background:
    """One event loop in a thread of its own; started when it is first needed.

    A process that was forked has no thread of its parent's: it starts its own.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, Result], *, inline: bool = False) -> Result:
        """Run something to its end, and wait for it.

        Args:
            inline: it ends without suspending, if no event loop runs in the caller's thread.

        Raises:
            OutcomeUnknown: another thread has closed this before the work ended.
        """
        if inline and not _in_a_loop():
            return _drive(work)
        try:
            return self.submit(work).result()
        except CancelledError:
            message = "the app was closed by another thread before this ended"
            raise OutcomeUnknown(message, hint="repeat the call") from None

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run something in the loop, and do not wait for it."""
        # Under the lock, so that a thread that closes this finds the work in the loop to cancel it.
        with self._lock:
            return asyncio.run_coroutine_threadsafe(work, self._started())

    def close(self) -> None:
        """End the loop and its thread; it starts again when it is needed again."""
        with self._lock:
            self._forget_if_forked()
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        self._forget_if_forked()
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_main, args=(self._loop,), name="headway-background", daemon=True
            )
            self._thread.start()
        return self._loop

    def _forget_if_forked(self) -> None:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._loop = self._thread = None


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _drive(work: Coroutine[Any, Any, Result]) -> Result:
    """Run something to its end here and now: the way to another thread costs more than most work.

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
