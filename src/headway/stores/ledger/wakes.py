"""The waiters of this process, and a record of recent wakes, so that no wake is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

from headway.contract.store import Clock

MOST_KNOWN = 10_000
"""Maximum number of lanes whose last wakes are known."""


class _Waiter:
    """One `wait` in one event loop."""

    def __init__(self, lanes: Iterable[str], until_at: int | None) -> None:
        self.lanes = frozenset(lanes)
        self.until_at = until_at
        self.loop = asyncio.get_running_loop()
        self.poked = asyncio.Event()
        self.awake = False

    def touch(self) -> None:
        """Make the waiter check its time limit again; callable from any thread."""
        try:
            self.loop.call_soon_threadsafe(self.poked.set)
        except RuntimeError:
            # The loop is closed.
            return


@dataclass(slots=True)
class _LaneWakes:
    """The last wakes of one lane.

    Attributes:
        now: the count of the last immediate wake.
        later: the count of the last wake for a later time.
        later_at: the earliest such time that has not passed.
    """

    now: int = 0
    later: int = 0
    later_at: int = 0


class Wakes:
    """Counts wakes, and wakes the waiters.

    Args:
        clock: returns ms since 1970.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._count = 0
        self._lane_wakes: dict[str | None, _LaneWakes] = {}
        # In order of arrival, so that a simulation is reproducible.
        self._waiters: dict[_Waiter, None] = {}

    @property
    def count(self) -> int:
        """The number of wakes so far; read it before a claim."""
        return self._count

    @property
    def lanes(self) -> set[str]:
        """The lanes that have waiters."""
        with self._lock:
            return {lane for waiter in self._waiters for lane in waiter.lanes}

    def wake(self, lanes: Iterable[tuple[str | None, int | None]]) -> None:
        """Wake the waiters of lanes.

        Args:
            lanes: pairs of a lane (None: all lanes) and the time from which there may be work
                (None: now).
        """
        with self._lock:
            self._count += 1
            poked: dict[_Waiter, None] = {}
            for lane, at in lanes:
                self._note(lane, at)
                for waiter in self._waiters:
                    if lane is None or lane in waiter.lanes:
                        poked[waiter] = None
                        if at is None:
                            waiter.awake = True
                        elif waiter.until_at is None or at < waiter.until_at:
                            waiter.until_at = at
        for waiter in poked:
            waiter.touch()

    def _note(self, lane: str | None, at: int | None) -> None:
        wakes = self._lane_wakes.get(lane)
        if wakes is None:
            if len(self._lane_wakes) >= MOST_KNOWN:
                # All callers that claimed before this wake will claim again.
                self._lane_wakes = {None: _LaneWakes(now=self._count)}
            wakes = self._lane_wakes.setdefault(lane, _LaneWakes())
        if at is None:
            wakes.now = self._count
            return
        wakes.later = self._count
        if at < wakes.later_at or wakes.later_at <= self._clock():
            wakes.later_at = at

    def wake_all(self) -> None:
        """Wake all waiters."""
        self.wake(((None, None),))

    def wake_one_of_each(self) -> None:
        """Wake enough waiters that each lane has one that is awake.

        If a claim of theirs gets as many jobs as it requested, the caller must wake the others.
        """
        lanes: set[str] = set()
        woken: list[_Waiter] = []
        with self._lock:
            self._count += 1
            # Callers that have claimed but do not wait yet must claim again.
            self._note(None, None)
            for waiter in self._waiters:
                if not waiter.lanes <= lanes:
                    lanes |= waiter.lanes
                    waiter.awake = True
                    woken.append(waiter)
        for waiter in woken:
            waiter.touch()

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """Sleep until a lane is woken or a given time is reached.

        Args:
            until_at: ms by the clock; None for no limit.
            seen: the count before the claim; a later wake ends the wait.
        """
        waiter = _Waiter(lanes, until_at)
        with self._lock:
            if self._was_woken(waiter, seen):
                return
            self._waiters[waiter] = None
        try:
            self._attend(lanes)
            while not waiter.awake:
                waiter.poked.clear()
                pause = self._pause(waiter)
                if pause is not None and pause <= 0:
                    return
                try:
                    async with asyncio.timeout(pause):
                        await waiter.poked.wait()
                except TimeoutError:
                    return
        finally:
            with self._lock:
                del self._waiters[waiter]

    def _attend(self, lanes: Sequence[str]) -> None:
        """Do what wakes of other processes need to reach a waiter, which is registered already."""

    def _was_woken(self, waiter: _Waiter, seen: int) -> bool:
        """Return whether there was a wake since; a wake for a later time shortens the wait."""
        for lane in (None, *waiter.lanes):
            wakes = self._lane_wakes.get(lane)
            if wakes is None:
                continue
            if wakes.now > seen:
                return True
            if wakes.later > seen and (waiter.until_at is None or wakes.later_at < waiter.until_at):
                waiter.until_at = wakes.later_at
        return False

    def _pause(self, waiter: _Waiter) -> float | None:
        if waiter.until_at is None:
            return None
        return (waiter.until_at - self._clock()) / 1000
