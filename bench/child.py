"""A part of a measurement that runs in a separate process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

LIMIT_S = 600.0
LEAVE_S = 20.0
"""Seconds for a process to exit by itself at the end."""
LOOK_S = 0.01
_SPAWN = multiprocessing.get_context("spawn")


class ChildFailed(Exception):
    """A process failed or exited before it replied; has its last output."""


class _Failure(NamedTuple):
    text: str


class Child:
    """A process and the pipe to it."""

    def __init__(self, pipe: Connection, pid: int) -> None:
        self._pipe = pipe
        self.pid = pid

    def receive(self) -> Any:
        """Return the next value that it sends."""
        try:
            if not self._pipe.poll(LIMIT_S):
                message = f"the process {self.pid} said nothing for {LIMIT_S:.0f} s"
                raise ChildFailed(message)
            value = self._pipe.recv()
        except (EOFError, OSError) as error:
            message = f"the process {self.pid} is gone"
            raise ChildFailed(message) from error
        if isinstance(value, _Failure):
            raise ChildFailed(value.text)
        return value

    def send(self, value: object) -> None:
        """Send it a value."""
        try:
            self._pipe.send(value)
        except OSError as error:
            message = f"the process {self.pid} is gone"
            raise ChildFailed(message) from error

    def ask(self, value: object) -> Any:
        """Send it a value and return its reply."""
        self.send(value)
        return self.receive()

    def look(self) -> None:
        """Raise if it has reported a failure; do not wait."""
        if self._pipe.poll(0):
            self.receive()


@contextmanager
def child(target: Callable[..., None], *args: object) -> Generator[Child]:
    """Run a function in a new process; its first argument is the pipe to this one."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_run, args=(there, target, args))
    process.start()
    there.close()
    try:
        yield Child(here, process.pid or 0)
        _await_end(process)
    finally:
        # Including processes that it has started.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()
        process.join()
        here.close()


def _await_end(process: SpawnProcess) -> None:
    # Not `join`, which also waits for processes that the child has left behind.
    end = time.monotonic() + LEAVE_S
    while process.is_alive() and time.monotonic() < end:
        time.sleep(LOOK_S)


def _run(pipe: Connection, target: Callable[..., None], args: tuple[object, ...]) -> None:
    os.setpgid(0, 0)
    try:
        target(pipe, *args)
    except BaseException:  # noqa: BLE001  (the measuring process must see any error)
        pipe.send(_Failure(traceback.format_exc(limit=-3).strip()))
