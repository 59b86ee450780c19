"""Draining: how a worker knows that its lanes hold nothing more for it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from headway.cli.progress import Meter
from headway.contract.store import Store
from headway.contract.views import LanesQuery
from headway.core.job import MAX_BATCH
from headway.core.state import State
from headway.runtime.chores.timetable import TimetableChore
from headway.runtime.timing import Timing, pause

_QUICK_S = 0.05
_SLOW_S = 0.5
_MANY = 5_000


class Drain(StrEnum):
    """What a worker waits for before it ends."""

    ALL = "all"
    """Its lanes hold no job that is not final."""
    DUE = "due"
    """The same, but for jobs that are not due yet."""


async def wait_until_drained(
    store: Store, lanes: Sequence[str], drain: Drain, meter: Meter
) -> None:
    """Returns when the lanes hold nothing more.

    What other workers of these lanes run, and what awaits a signal, counts as well.

    Args:
        store: which store.
        lanes: whose jobs.
        drain: which jobs count.
        meter: told how many were final of how many.
    """
    final_before: int | None = None
    # The timetable's fires may be due, too, and a worker lays them beside its other work.
    await TimetableChore(store, Timing()).lay()
    while True:
        left, final = await count_left(store, lanes, drain)
        if final_before is None:
            final_before = final
        done = max(final - final_before, 0)
        meter(done, done + left)
        if not left:
            return
        await pause(_SLOW_S if left > _MANY else _QUICK_S)


async def count_left(store: Store, lanes: Sequence[str], drain: Drain) -> tuple[int, int]:
    """How many jobs of the lanes still count, and how many are final.

    Args:
        store: which store.
        lanes: whose jobs.
        drain: which jobs count.

    Returns:
        Jobs that are not final (for `due`: and not scheduled for later), and final ones.
    """
    if drain is Drain.DUE:
        # What is due but not yet promoted is counted as scheduled: promote it first.
        while (await store.sweep(MAX_BATCH)).promoted:
            pass
    found = await store.read(LanesQuery(names=tuple(lanes)))
    left = sum(lane.unfinished for lane in found)
    final = sum(sum(lane.counts.values()) for lane in found) - left
    if drain is Drain.DUE:
        left -= sum(lane.counts.get(State.SCHEDULED, 0) for lane in found)
    return left, final
