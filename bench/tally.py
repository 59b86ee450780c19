"""What the handlers of a run saw: the same handler for every system."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from typing import Any, NamedTuple

WARM = -1
"""Number of a job that shows that a worker is running; it is not counted."""
Handler = Callable[[int], None]


def unseen(number: int) -> None:
    """Do nothing: the handler of an app that only enqueues."""
    del number


class Report(NamedTuple):
    """What one worker saw.

    Attributes:
        first: When its first handler ran, in monotonic ns; 0 if none did.
        last: When its last handler ran.
        seen: Numbers of the jobs, in order of execution; paired with the start in ns if the
            times of starts were requested.
    """

    first: int
    last: int
    seen: list[Any]


class Delivered(NamedTuple):
    """The result of one run.

    Attributes:
        seconds: Time from the first handler to the last.
        lost: Number of jobs that no handler saw.
        double: Number of executions beyond one per job.
    """

    seconds: float
    lost: int
    double: int


class Tally:
    """A handler that counts executions.

    Args:
        places: The counters of the board.
        place: Index of its own counter.
    """

    def __init__(self, places: MutableSequence[int], place: int) -> None:
        self.places = places
        self.place = place
        self.seen: list[int] = []
        self.first = 0
        self.last = 0

    def __call__(self, number: int) -> None:
        seen = self.seen
        seen.append(number)
        self.last = time.monotonic_ns()
        if not self.first:
            self.first = self.last
        self.places[self.place] = len(seen)

    def report(self) -> Report:
        return Report(self.first, self.last, self.seen)


class Starts:
    """A handler that records when each job starts.

    Args:
        places: The counters of the board.
        place: Index of its own counter.
        clock: Returns ns.
    """

    def __init__(self, places: MutableSequence[int], place: int, clock: Callable[[], int]) -> None:
        self.places = places
        self.place = place
        self.clock = clock
        self.seen: list[tuple[int, int]] = []

    def __call__(self, number: int) -> None:
        self.seen.append((number, self.clock()))
        self.places[self.place] = len(self.seen)

    def report(self) -> Report:
        return Report(0, 0, self.seen)


def delivered(reports: Sequence[Report], expected: int) -> Delivered:
    """Return the joint result of several workers for the jobs 0 to `expected`."""
    lost, double = compare((number for one in reports for number in one.seen), expected)
    begin = min((one.first for one in reports if one.first), default=0)
    return Delivered((max(one.last for one in reports) - begin) / 1e9, lost, double)


def compare(seen: Iterable[int], expected: int) -> tuple[int, int]:
    """Return how many of the jobs 0 to `expected` were lost, and the number of extra executions."""
    counts = Counter(seen)
    counts.pop(WARM, None)
    return expected - len(counts), sum(counts.values()) - len(counts)
