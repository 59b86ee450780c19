"""Low-water marks: where to read the heads of a flow, past jobs that started earlier.

While any transaction is open, index entries of jobs that have left a queue stay, and a scan from
the start of the queue visits all of them. So a process that has started many jobs of a flow
continues where it stopped. If this process or an exclusive step puts a job before that place, the
mark is lowered or dropped. A job that another process enqueues with an older due time is found when
the rest is done, or after `SECONDS` at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from headway.stores.postgres.timing import monotonic

LEAST = 2_000
"""Number of starts of a flow before its marks are used."""
SECONDS = 10.0
"""Seconds for which marks are used before the whole flow is read again."""
MOST = 1_000
"""Maximum number of flows with marks."""
_END = 2**62
_Place = tuple[int, int]


class Range(NamedTuple):
    """A range of a flow, from a place on, up to but excluding a priority."""

    priority: int
    due_at: int
    seq: int
    below: int


WHOLE = (Range(-1, 0, 0, _END),)


@dataclass(slots=True)
class _Mark:
    floors: dict[int, _Place] = field(default_factory=dict[int, _Place])
    started: int = 0
    until: float = 0.0


class LowWaterMarks:
    """The low-water marks of one process.

    Attributes:
        version: the store's BEHIND number to which these marks belong.
        lowered: how often this process learned that a job may wait before a mark.
    """

    def __init__(self) -> None:
        self._marks: dict[int, _Mark] = {}
        self._used: dict[str, set[int]] = {}
        self._lock = Lock()
        self.version = 0
        self.lowered = 0

    def ranges(self, flow: int) -> tuple[Range, ...]:
        """Return the ranges in which to read the jobs of a flow, in order."""
        with self._lock:
            mark = self._marks.get(flow)
            if mark is None or mark.started < LEAST:
                return WHOLE
            if mark.until <= monotonic():
                mark.until = monotonic() + SECONDS
                mark.floors.clear()
            places = sorted(mark.floors.items())
        if not places:
            return WHOLE
        ends = [priority for priority, _ in places[1:]] + [_END]
        first = Range(-1, 0, 0, places[0][0])
        return (
            first,
            *(
                Range(priority, due_at, seq, end)
                for (priority, (due_at, seq)), end in zip(places, ends, strict=True)
            ),
        )

    def flows(self, lane: str) -> list[int]:
        """Return the flows of a lane with marks in use, in order."""
        with self._lock:
            used = sorted(self._used.get(lane, ()))
        return [flow for flow in used if self.ranges(flow) is not WHOLE]

    def rise(
        self, lane: str, flow: int, floors: dict[int, _Place], started: int, lowered: int
    ) -> None:
        """Raise the marks of a flow: no job waits before these places.

        Args:
            lane: the flow's lane.
            floors: the places, by priority.
            lowered: the value of `lowered` before the jobs were read, increased by what the step
                itself has added. If it has changed, nothing is recorded, because jobs of other
                steps may have been missed.
        """
        with self._lock:
            if lowered != self.lowered:
                return
            if flow not in self._marks and len(self._marks) >= MOST:
                self._forget()
            mark = self._marks.get(flow)
            if mark is None:
                mark = self._marks[flow] = _Mark(until=monotonic() + SECONDS)
            mark.started += started
            if mark.started >= LEAST:
                self._used.setdefault(lane, set()).add(flow)
            for priority, place in floors.items():
                mark.floors[priority] = max(place, mark.floors.get(priority, place))

    def lower(self, flow: int, priority: int, due_at: int, seq: int) -> bool:
        """Record that a job waits at this place, and return whether it was before a mark."""
        with self._lock:
            self.lowered += 1
            mark = self._marks.get(flow)
            if mark is None or mark.floors.get(priority, (0, 0)) <= (due_at, seq):
                return False
            mark.floors[priority] = (due_at, seq)
            return True

    def drop(self, flows: Iterable[int]) -> None:
        """Make the next read of these flows read them whole."""
        with self._lock:
            self.lowered += 1
            for flow in flows:
                mark = self._marks.get(flow)
                if mark is not None:
                    mark.floors.clear()

    def follow(self, version: int) -> None:
        """Forget all marks if other processes may have put jobs before them."""
        if self.version != version:
            self.clear()
            self.version = version

    def clear(self) -> None:
        """Forget all marks."""
        with self._lock:
            self.lowered += 1
            self._forget()

    def _forget(self) -> None:
        self._marks.clear()
        self._used.clear()
