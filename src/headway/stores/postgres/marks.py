"""Low-water marks: where the heads of a flow are looked for, past those that started long ago.

While any transaction is open, what has left a queue since stays in its index, and a scan from
the queue's begin walks over all of it. So a process that has started many jobs of a flow begins
where it stopped. A job that comes to stand before that place is known where this process or a step
with the turn put it there. What others enqueue for a moment long past is found when the rest is
through, or after a while at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from headway.stores.postgres.timing import monotonic

LEAST = 2_000
"""Starts of a flow before its marks are used."""
SECONDS = 10.0
"""How long they are used before the whole flow is read again."""
MOST = 1_000
"""Flows that have marks."""
_END = 2**62
_Place = tuple[int, int]


class Range(NamedTuple):
    """A range of a flow: from a place on, up to a priority that is not in it."""

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


class Marks:
    """The marks of the flows of one process.

    Attributes:
        version: the store's number of steps that let jobs wait before others, as of these marks.
        lowered: how often this process learned that something may wait before a mark.
    """

    def __init__(self) -> None:
        self._marks: dict[int, _Mark] = {}
        self._lock = Lock()
        self.version = 0
        self.lowered = 0

    def ranges(self, flow: int) -> tuple[Range, ...]:
        """Return where the jobs of a flow are looked for, in their order."""
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

    def flows(self) -> list[int]:
        """Return the flows that are not read whole."""
        with self._lock:
            known = list(self._marks)
        return [flow for flow in known if self.ranges(flow) is not WHOLE]

    def rise(
        self, flow: int, floors: dict[int, _Place], started: int, lowered: int | None = None
    ) -> None:
        """Raise the marks of a flow: nothing waits before these places any more.

        Args:
            floors: the places, by priority.
            lowered: as it was before the jobs were read beside other steps; if it has changed,
                nothing is noted, because what those steps let wait was not seen. None for a step
                that ran alone.
        """
        with self._lock:
            if lowered is not None and lowered != self.lowered:
                return
            if flow not in self._marks and len(self._marks) >= MOST:
                self._marks.clear()
            mark = self._marks.get(flow)
            if mark is None:
                mark = self._marks[flow] = _Mark(until=monotonic() + SECONDS)
            mark.started += started
            for priority, place in floors.items():
                mark.floors[priority] = max(place, mark.floors.get(priority, place))

    def lower(self, flow: int, priority: int, due_at: int, seq: int) -> None:
        """Note that a job waits at this place."""
        with self._lock:
            self.lowered += 1
            mark = self._marks.get(flow)
            if mark is not None and priority in mark.floors:
                mark.floors[priority] = min(mark.floors[priority], (due_at, seq))

    def drop(self, flows: Iterable[int]) -> None:
        """Make the next look at these flows read them whole."""
        with self._lock:
            self.lowered += 1
            for flow in flows:
                mark = self._marks.get(flow)
                if mark is not None:
                    mark.floors.clear()

    def follow(self, version: int) -> None:
        """Forget all marks if others have let jobs wait before them."""
        if self.version != version:
            self.clear()
            self.version = version

    def clear(self) -> None:
        """Forget all marks."""
        with self._lock:
            self.lowered += 1
            self._marks.clear()
