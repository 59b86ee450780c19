"""How many jobs to hold ready, and which of those that are ready to give back.

A worker holds about a quarter of a second of its own work ready, so that its handlers do not wait
for the store. What it holds, no other worker can start: so it holds nothing while there is no
backlog, and releases what it has not started.
"""

from __future__ import annotations

from collections import deque

AHEAD = 0.25
"""Seconds of work that are held ready; more only if claims take long."""

MOST_AHEAD = 0.5
"""Never more than so many seconds of work are held ready."""

WINDOW = 1.0
"""Seconds of work by which the speed of the handlers is measured."""

LOOK_EVERY = 0.05
"""Seconds between two looks at what is held ready."""

LOOKS_HELD = 10
"""A job that was held ready for so many looks is given back, unless it is about to start."""


class Prefetch:
    """Follows the speed of the handlers.

    Handlers that began together end together: fifty of 200 ms end within a millisecond or two,
    which is not fifty thousand a second. So the speed is the lower of two: since the last claim,
    which follows a change at once, and over a window of at least a second. Only a window that
    began while no handler ran may be shorter: all that ended in it began in it.

    Attributes:
        target: jobs without gates to hold beyond those in handlers.
    """

    def __init__(self, most: int) -> None:
        """Begin with nothing held ready.

        Args:
            most: the target is never larger.
        """
        self.target = 0
        self._most = most
        self._ahead = AHEAD
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, at: float, done: int, *, took: float = 0.0, idle: bool = False) -> None:
        """Note a claim.

        Args:
            at: now, in seconds.
            done: jobs whose handlers have ended so far.
            took: seconds from its request to its reply.
            idle: no handler ran before it.
        """
        marks = self._marks
        # The handlers must not run out of jobs while the next claim is under way.
        self._ahead = min(max(AHEAD, 2 * took), MOST_AHEAD)
        if idle:
            marks.clear()
        marks.append((at, done))
        while len(marks) > 1 and marks[1][0] <= at - WINDOW:
            marks.popleft()

    def measure(self, at: float, done: int) -> None:
        """Set the target by the speed of the handlers; it rises at once and falls by halves."""
        if not self._marks:
            return
        (first_at, first), (last_at, last) = self._marks[0], self._marks[-1]
        if done <= last or at <= last_at:
            return
        speed = min((done - last) / (at - last_at), (done - first) / (at - first_at))
        wanted = min(int(speed * self._ahead), self._most)
        self.target = wanted if wanted > self.target else (self.target + wanted) // 2


class Surplus:
    """Decides which jobs that are held ready go back to the store, where others may start them.

    While there is a backlog, a job is held for half a second at most; when there is none, and
    other workers may be idle, for one look.
    """

    def __init__(self, ready: int, started: int) -> None:
        """Begin with the first look.

        Args:
            ready: jobs that are held ready.
            started: jobs that were held ready and have started so far.
        """
        self._looks = deque([(ready, started)], maxlen=LOOKS_HELD)

    def keep(self, ready: int, started: int, *, dry: bool) -> int:
        """Take the next look, and return how many of the ready jobs to keep.

        Args:
            ready: jobs that are held ready.
            started: jobs that were held ready and have started so far.
            dry: the last claim found less than it asked for.
        """
        looks = self._looks
        kept = ready
        if dry or len(looks) == LOOKS_HELD:
            was_ready, had_started = looks[-1] if dry else looks[0]
            moved = started - had_started
            if moved < was_ready:
                # As many as started in that time are about to start.
                kept = min(ready, moved)
        looks.append((kept, started))
        return kept
