"""What the handlers of a run saw: the same few lines of work for every system."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple


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
    """Counts executions; its clock is read only at the first and the last one.

    Args:
        expected: jobs, numbered from 0.
    """

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.seen: list[int] = []
        self.first = 0
        self.last = 0
        self.full = threading.Event()
        self.on_full: Callable[[], None] = self.full.set

    def __call__(self, number: int) -> None:
        seen = self.seen
        seen.append(number)
        if len(seen) == 1:
            self.first = time.monotonic_ns()
        if len(seen) == self.expected:
            self.last = time.monotonic_ns()
            self.on_full()

    def delivered(self) -> Delivered:
        lost, double = compare(self.seen, self.expected)
        return Delivered((self.last - self.first) / 1e9, lost, double)


class Starts:
    """Notes when each job's handler starts.

    Args:
        expected: jobs, numbered from 0.
        clock: in ns.
    """

    def __init__(self, expected: int, clock: Callable[[], int]) -> None:
        self.expected = expected
        self.clock = clock
        self.seen: list[tuple[int, int]] = []
        self.full = threading.Event()
        self.on_full: Callable[[], None] = self.full.set

    def __call__(self, number: int) -> None:
        self.seen.append((number, self.clock()))
        if len(self.seen) == self.expected:
            self.on_full()


def compare(seen: Iterable[int], expected: int) -> tuple[int, int]:
    """How many of the jobs 0 to `expected` were lost, and executions too many."""
    counts = Counter(seen)
    return expected - len(counts), sum(counts.values()) - len(counts)
