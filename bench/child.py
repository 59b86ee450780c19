"""A part of a measurement that runs in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

LIMIT_S = 600.0
_SPAWN = multiprocessing.get_context("spawn")


class Child:
    """A process and the pipe to it."""

    def __init__(self, pipe: Connection, pid: int) -> None:
        self._pipe = pipe
        self.pid = pid

    def receive(self) -> Any:
        """What it sends next."""
        if not self._pipe.poll(LIMIT_S):
            message = f"the process {self.pid} said nothing for {LIMIT_S:.0f} s"
            raise TimeoutError(message)
        return self._pipe.recv()

    def send(self, value: object) -> None:
        """Tells it something."""
        self._pipe.send(value)


@contextmanager
def child(target: Callable[..., None], *args: object) -> Generator[Child]:
    """Runs a function in a new process; its first argument is the pipe to here."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=target, args=(there, *args), daemon=True)
    process.start()
    there.close()
    try:
        yield Child(here, process.pid or 0)
        process.join(LIMIT_S)
    finally:
        if process.is_alive():
            process.kill()
            process.join()
        here.close()
