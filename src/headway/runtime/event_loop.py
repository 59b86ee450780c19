"""Event loops: of a worker program, with signal handlers, and in the background of a caller."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from importlib.util import find_spec
from typing import Any, TypeVar

from headway.core.errors import InvalidValue, InvariantBroken, OutcomeUnknown

Result = TypeVar("Result")


_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to completion in a new event loop, of uvloop if it is installed.

    Raises:
        InvalidValue: an event loop is already running in this thread.
    """
    if _in_a_loop():
        work.close()
        message = "`run` starts an event loop, but one is already running in this thread"
        raise InvalidValue(message, hint="use `await worker(...).run()` instead")
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def on_signals(stop: Callable[[bool], None]) -> None:
    """Call `stop` in the running loop when the process gets SIGTERM or SIGINT (Ctrl-C).

    Args:
        stop: called with False at the first signal, and with True at the second. A third signal
            kills the process, in case a thread or task keeps it from exiting.

    Raises:
        InvalidValue: this is not the main thread, the only one that can handle signals.
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
            for one in _STOP_SIGNALS:
                loop.remove_signal_handler(one)
                signal.signal(one, signal.SIG_DFL)

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415  (an extra, which may not be installed)

    return uvloop.new_event_loop


class Background:
    """An event loop in a separate thread, started on first use.

    A forked process does not inherit its parent's thread, so it starts another one.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __del__(self) -> None:
        """Warn that this was not closed, and stop the loop and its thread without waiting."""
        if self._loop is not None and self._process == os.getpid():
            message = "unclosed app or client: its background thread is stopped"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)
            self._loop.call_soon_threadsafe(self._loop.stop)

    def run(self, work: Coroutine[Any, Any, Result], *, inline: bool = False) -> Result:
        """Run a coroutine to completion, and return its result.

        Args:
            inline: whether the coroutine never suspends; then it runs in the caller's thread,
                unless an event loop is running there.

        Raises:
            OutcomeUnknown: another thread closed this before the coroutine ended.
        """
        if inline and not _in_a_loop():
            return _run_inline(work)
        try:
            return self._submit(work).result()
        except CancelledError:
            message = "the app was closed by another thread before this ended"
            raise OutcomeUnknown(message, hint="repeat the call") from None

    async def run_async(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to completion for a caller in another event loop.

        Raises:
            OutcomeUnknown: another task or thread closed this before the coroutine ended.
            CancelledError: the caller was cancelled, and the coroutine with it.
        """
        try:
            return await asyncio.wrap_future(self._submit(work))
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                raise
            message = "the client was closed by another caller before this ended"
            raise OutcomeUnknown(message, hint="repeat the call") from None

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        # Under the lock, so that a thread that closes this finds and cancels the work in the loop.
        with self._lock:
            return asyncio.run_coroutine_threadsafe(work, self._ensure_loop())

    def close(self) -> None:
        """Stop the loop and its thread; the next call starts them again."""
        with self._lock:
            self._forget_if_forked()
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
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


def _run_inline(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in this thread: passing it to another one costs more than most calls do.

    Raises:
        InvariantBroken: it suspended, although its store's `runs_inline` is set.
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
