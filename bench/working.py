"""Worker processes at work on a store: drained to the end, or watched as jobs start."""

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
"""Left to the workers after the last job, so that one that comes twice is seen."""


class Crew:
    """Worker processes of one system that have begun.

    Args:
        board: on which they write how far they are.
        workers: the processes.
    """

    def __init__(self, board: Board, workers: list[Child]) -> None:
        self.board = board
        self.workers = workers

    def wait_for(self, count: int) -> None:
        """Waits for so many executions, or until there are none any more.

        Raises:
            ChildFailed: a worker failed.
        """
        self.board.wait_for(count, self._look)

    def end(self) -> list[Report]:
        """Ends them; what each of them saw."""
        time.sleep(GRACE_S)
        return [Report(*worker.ask("end")) for worker in self.workers]

    def _look(self) -> None:
        for worker in self.workers:
            worker.look()


@contextmanager
def crew(
    system: System, place: Place, *, workers: int = 1, clock: str | None = None
) -> Generator[Crew]:
    """Starts workers, all at once when all are ready.

    Args:
        system: for whom.
        place: where its jobs are.
        workers: processes.
        clock: of the moments of the starts, `monotonic` or `wall`; None if they are not wanted.

    Yields:
        The workers, of which none may have begun yet.
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
    """Lets workers do all that is queued.

    Raises:
        ChildFailed: a worker failed.
    """
    with crew(system, place, workers=workers) as running:
        running.wait_for(count)
        return delivered(running.end(), count)
