"""Worker processes on a store: to drain it, or to observe when jobs start."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from bench.board import Board
from bench.child import Child
from bench.places.place import Place
from bench.systems.system import System
from bench.tally import Delivered, Report, delivered

GRACE_S = 0.2
"""Seconds for the workers after the last job, so that a second execution is seen."""


class Crew:
    """Running worker processes of one system.

    Args:
        board: Their progress counters.
        workers: The processes.
    """

    def __init__(self, board: Board, workers: list[Child]) -> None:
        self.board = board
        self.workers = workers

    def wait_for(self, count: int) -> None:
        """Wait until there have been `count` executions, or until they stall.

        Raises:
            ChildFailed: a worker failed.
        """
        self.board.wait_for(count, self._look)

    def end(self) -> list[Report]:
        """Stop the workers; return what each of them saw."""
        time.sleep(GRACE_S)
        return [Report(*worker.ask("end")) for worker in self.workers]

    def _look(self) -> None:
        for worker in self.workers:
            worker.look()


@contextmanager
def crew(
    system: System, place: Place, *, workers: int = 1, clock: str | None = None
) -> Generator[Crew]:
    """Start workers, all at once when all are ready.

    Args:
        system: The system.
        place: The store of its jobs.
        workers: Number of processes.
        clock: Clock for the times of starts, `monotonic` or `wall`; None if they are not needed.

    Yields:
        The workers, which may not have started to work yet.
    """
    with ExitStack() as stack:
        board = stack.enter_context(Board(place.folder / "board"))
        children = [
            stack.enter_context(system.working(place.url, board.path, number, clock))
            for number in range(workers)
        ]
        for one in children:
            one.receive()
        for one in children:
            one.send("go")
        yield Crew(board, children)


def drain(system: System, place: Place, count: int, *, workers: int = 1) -> Delivered:
    """Let workers run all queued jobs.

    Raises:
        ChildFailed: a worker failed.
    """
    with crew(system, place, workers=workers) as running:
        running.wait_for(count)
        return delivered(running.end(), count)
