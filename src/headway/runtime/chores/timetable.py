"""The timetable's chore: keeps the fires of the next minutes in the store, ahead of time."""

from __future__ import annotations

import logging

from headway.contract.definitions import FireRequest
from headway.contract.store import Store
from headway.contract.views import EntryView, StatsQuery, TimetableQuery
from headway.core.job import MAX_BATCH
from headway.core.timetable.fires import fires_between, latest_fires, next_fires
from headway.core.timetable.misfire import MisfirePolicy, missed
from headway.runtime.persist import PASSING
from headway.runtime.timing import Timing

AHEAD_MS = 20 * 60_000
"""How far ahead fires are laid: more than the 15 minutes that are promised, by several rounds."""
EACH = 30.0
"""Seconds between two rounds."""
MOST_AHEAD = 10_000

_log = logging.getLogger("headway.chores")


class TimetableChore:
    """Lays the fires of each entry ahead. Any number of them may do it at once."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing

    async def run(self) -> None:
        """Lays fires until it is cancelled."""
        while True:
            try:
                await self.lay()
            except PASSING as error:
                _log.warning("timetable: %s", error)
            await self._timing.pause(EACH)

    async def lay(self) -> int:
        """Lays what is missing now.

        Returns:
            How many fires were laid.
        """
        entries = await self._store.read(TimetableQuery())
        if not entries:
            return 0
        now = (await self._store.read(StatsQuery())).now
        return sum([await self._lay(entry, now) for entry in entries if entry.spec.enabled])

    async def _lay(self, entry: EntryView, now: int) -> int:
        moments, ahead_until = due_fires(entry, now)
        laid = 0
        for start in range(0, len(moments), MAX_BATCH):
            page = moments[start : start + MAX_BATCH]
            last = start + MAX_BATCH >= len(moments)
            reply = await self._store.fire(
                FireRequest(
                    entry=entry.spec.name,
                    revision=entry.revision,
                    moments=page,
                    ahead_until=ahead_until if last else page[-1],
                )
            )
            laid += len(reply.fired)
            if not reply.current:
                break
        return laid


def due_fires(entry: EntryView, now: int) -> tuple[tuple[int, ...], int]:
    """The fires of an entry that are not in the store and should be.

    Args:
        entry: as it stands.
        now: the store's time.

    Returns:
        The moments in order: those missed that its policy makes up for, all of the next minutes,
        and one beyond; and up to where all are known then.
    """
    spec = entry.spec
    known = entry.ahead_until if entry.ahead_until is not None else entry.first_seen_at
    until = now + AHEAD_MS
    if known > until:
        return (), known
    late: list[int] = []
    if known < now:
        cap = 1 if spec.misfire is MisfirePolicy.ONCE else spec.misfire_cap
        late = missed(latest_fires(spec.schedule, known, now, cap), spec.misfire, cap)
    ahead = fires_between(spec.schedule, max(known, now), until, MOST_AHEAD)
    if len(ahead) < MOST_AHEAD:
        ahead += next_fires(spec.schedule, until, 1)
    return (*late, *ahead), ahead[-1] if ahead else until
