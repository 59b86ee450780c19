"""When timetable entries fired last and fire next, found by the ids of their jobs."""

from __future__ import annotations

from collections.abc import Iterable

from headway.contract.store import Store
from headway.contract.views import EntryView, JobsQuery, JobView
from headway.core.job import fire_id
from headway.core.state import FINAL, State
from headway.core.timetable.fires import (
    DROPPED,
    REVISIONS,
    MisfirePolicy,
    latest_fires,
    next_fires,
)
from headway.server.finding import MOST_ROWS, bounded_page, jobs_by_id

RECENT = 5
"""Number of past fires of an entry whose jobs are looked up by their ids."""
EARLIER = 2
"""Number of earlier revisions of an entry that may have created the job of such a fire: switching
an entry off and on creates two."""
LEEWAY_MS = 60_000
"""How much older than the record of its entry a fire may be, such as one of the moment of its
declaration."""
NOT_FIRED = frozenset({State.SCHEDULED, State.CANCELLED})


async def last_fires(store: Store, entries: Iterable[EntryView], now: int) -> dict[str, int]:
    """Return when each entry last fired, by name, if that job is still kept.

    Fires that are in the future, folded, or dropped by an edit do not count. An entry's
    `last_fired` is not the same: it is the time up to which all fires have been created.
    """
    # While nothing creates fires, the latest ones that exist are older than the latest moments.
    fired = [(one, min(now, one.last_fired)) for one in entries if one.last_fired is not None]
    recent = [
        (one, latest_fires(one.spec.schedule, one.first_seen_at - LEEWAY_MS, until, RECENT))
        for one, until in fired
    ]
    ids = [id_ for entry, moments in recent for id_ in fire_ids(entry, moments)]
    found: dict[str, int] = {}
    jobs = [job async for job in jobs_by_id(store, ids)]
    _note_fires(found, jobs)
    kept = {job.entry for job in jobs}
    left = {
        (one.spec.job.lane, one.spec.job.kind)
        for one, _ in fired
        if one.spec.name not in found and (one.spec.name in kept or _may_have_earlier(one))
    }
    started = tuple(state for state in State if state not in NOT_FIRED)
    for lane, kind in sorted(left):
        query = JobsQuery(lane=lane, kind=kind, states=started, newest=True, limit=MOST_ROWS)
        _note_fires(found, (await bounded_page(store, query)).rows)
    return found


def _may_have_earlier(entry: EntryView) -> bool:
    """Return whether a fire that is still kept may be older than those looked up by their ids.

    If an entry has always had its schedule, and no policy dropped a fire, then none of these being
    kept means that no older one is.
    """
    return entry.revision > 1 or entry.folded > 0 or entry.spec.misfire is MisfirePolicy.SKIP


async def coming_fires(
    store: Store, entries: Iterable[EntryView], now: int, n: int
) -> dict[str, list[int]]:
    """Return the next n fires of each enabled entry, by name; fewer if no more exist.

    Fires whose jobs were created ahead, and have been cancelled or run early, are left out.
    """
    left = {one.spec.name: one for one in entries if one.spec.enabled}
    found: dict[str, list[int]] = {name: [] for name in left}
    after = dict.fromkeys(left, now)
    while left:
        moments = {
            name: next_fires(one.spec.schedule, after[name], n - len(found[name]))
            for name, one in left.items()
        }
        ids = [
            id_
            for name, one in left.items()
            for id_ in fire_ids(
                one, (at for at in moments[name] if at <= (one.ahead_until or 0)), REVISIONS
            )
        ]
        fires = jobs_by_id(store, ids)
        gone = {(one.entry, one.fired_at) async for one in fires if _is_over(one)}
        for name in [*left]:
            found[name] += [at for at in moments[name] if (name, at) not in gone]
            if not moments[name] or len(found[name]) >= n:
                del left[name]
            else:
                after[name] = moments[name][-1]
    return found


def _is_over(fire: JobView) -> bool:
    """Return whether a fire has run or was cancelled, and not because its entry was changed."""
    return bool(fire.run) or (fire.state in FINAL and fire.reason != DROPPED)


def fire_ids(entry: EntryView, moments: Iterable[int], earlier: int = EARLIER) -> dict[str, int]:
    """Return the possible job ids of an entry's fires, each with the time of its fire.

    Args:
        earlier: number of earlier revisions of the entry that may have created them.
    """
    return {
        fire_id(entry.spec.name, entry.first_seen_at, revision, moment): moment
        for moment in moments
        for revision in range(max(1, entry.revision - earlier), entry.revision + 1)
    }


def has_fired(job: JobView) -> bool:
    """Return whether the job of a fire has become due and was not dropped before."""
    return bool(job.run) or job.state not in NOT_FIRED


def _note_fires(found: dict[str, int], jobs: Iterable[JobView]) -> None:
    for job in jobs:
        if has_fired(job) and job.entry is not None and job.fired_at is not None:
            found[job.entry] = max(found.get(job.entry, 0), job.fired_at)
