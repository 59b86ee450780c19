"""What the handlers of a run saw: the same few lines of work for every system."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from typing import Any, NamedTuple

WARM = -1
"""The number of a job that shows that a worker works; it is not counted among the others."""
Handler = Callable[[int], None]


def unseen(number: int) -> None:
    """Handle a job that is not counted: of an app that only enqueues."""
    del number


class Report(NamedTuple):
    """What one worker saw.

    Attributes:
        first: when its first handler started, in ns of the monotonic clock; 0 if none did.
        last: when its last one did.
        seen: the numbers of the jobs, in the order in which they were done; where the starts were
            asked for, each with its moment in ns.
    """

    first: int
    last: int
    seen: list[Any]


class Delivered(NamedTuple):
    """What came of one run.

    Attributes:
        seconds: from the first handler to the last.
        lost: jobs that no handler saw.
        double: executions above one for each job.
    """

    seconds: float
    lost: int
    double: int


class Tally:
    """Counts executions.

    Args:
        places: the board's.
        place: its own.
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
    """Notes when each job's handler starts.

    Args:
        places: the board's.
        place: its own.
        clock: in ns.
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
    """What several workers did together of the jobs 0 to `expected`."""
    lost, double = compare((number for one in reports for number in one.seen), expected)
    begin = min((one.first for one in reports if one.first), default=0)
    return Delivered((max(one.last for one in reports) - begin) / 1e9, lost, double)


def compare(seen: Iterable[int], expected: int) -> tuple[int, int]:
    """How many of the jobs 0 to `expected` were lost, and executions too many."""
    counts = Counter(seen)
    counts.pop(WARM, None)
    return expected - len(counts), sum(counts.values()) - len(counts)
