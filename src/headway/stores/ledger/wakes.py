"""Waiters of this process, and what was woken when, so that nothing is slept through."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

from headway.contract.clock import Clock


class _Sleeper:
    """Somebody who waits, in one event loop."""

    def __init__(self, lanes: Iterable[str], until_at: int | None) -> None:
        self.lanes = frozenset(lanes)
        self.until_at = until_at
        self.loop = asyncio.get_running_loop()
        self.touched = asyncio.Event()
        self.awake = False

    def touch(self) -> None:
        """Makes it look at its own time again, from any thread."""
        try:
            self.loop.call_soon_threadsafe(self.touched.set)
        except RuntimeError:
            # The loop is closed: nobody sleeps there any more.
            return


@dataclass(slots=True)
class _Stir:
    """What was last heard for one lane.

    Attributes:
        now: the count of the last wake for at once.
        later: the count of the last wake for a moment to come.
        later_at: the earliest such moment that has not passed.
    """

    now: int = 0
    later: int = 0
    later_at: int = 0


class Wakes:
    """Counts what is woken, and wakes those who sleep.

    Args:
        clock: tells ms since 1970.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._count = 0
        self._stirs: dict[str | None, _Stir] = {}
        self._sleepers: set[_Sleeper] = set()

    @property
    def count(self) -> int:
        """Grows with each wake; to be read before a claim looks."""
        return self._count

    @property
    def waiting(self) -> bool:
        """Whether anybody sleeps."""
        return bool(self._sleepers)

    def wake(self, lanes: Iterable[tuple[str | None, int | None]]) -> None:
        """Wakes the sleepers of lanes.

        Args:
            lanes: each with from when; None for any lane, None for now.
        """
        with self._lock:
            self._count += 1
            touched: set[_Sleeper] = set()
            for lane, at in lanes:
                self._note(lane, at)
                for sleeper in self._sleepers:
                    if lane is None or lane in sleeper.lanes:
                        touched.add(sleeper)
                        if at is None:
                            sleeper.awake = True
                        elif sleeper.until_at is None or at < sleeper.until_at:
                            sleeper.until_at = at
        for sleeper in touched:
            sleeper.touch()

    def _note(self, lane: str | None, at: int | None) -> None:
        stir = self._stirs.get(lane)
        if stir is None:
            stir = self._stirs[lane] = _Stir()
        if at is None:
            stir.now = self._count
            return
        stir.later = self._count
        if at < stir.later_at or stir.later_at <= self._clock():
            stir.later_at = at

    def wake_all(self) -> None:
        """Wakes everybody."""
        self.wake(((None, None),))

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """Sleeps until a lane is woken or the moment has come.

        Args:
            lanes: any of these.
            until_at: ms by the clock; None for no end.
            seen: the count before the claim; what was woken since is not slept through.
        """
        sleeper = _Sleeper(lanes, until_at)
        with self._lock:
            if self._was_woken(sleeper, seen):
                return
            self._sleepers.add(sleeper)
        try:
            while not sleeper.awake:
                sleeper.touched.clear()
                pause = self._pause(sleeper)
                if pause is not None and pause <= 0:
                    return
                try:
                    async with asyncio.timeout(pause):
                        await sleeper.touched.wait()
                except TimeoutError:
                    return
        finally:
            with self._lock:
                self._sleepers.discard(sleeper)

    def _was_woken(self, sleeper: _Sleeper, seen: int) -> bool:
        """Whether it need not sleep at all; if it must, but not for so long, shortens it."""
        for lane in (None, *sleeper.lanes):
            stir = self._stirs.get(lane)
            if stir is None:
                continue
            if stir.now > seen:
                return True
            if stir.later > seen and (sleeper.until_at is None or stir.later_at < sleeper.until_at):
                sleeper.until_at = stir.later_at
        return False

    def _pause(self, sleeper: _Sleeper) -> float | None:
        if sleeper.until_at is None:
            return None
        return (sleeper.until_at - self._clock()) / 1000
