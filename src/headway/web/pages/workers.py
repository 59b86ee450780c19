"""Workers: what each runs and since when, what it serves, and when it was last seen."""

from __future__ import annotations

from dataclasses import replace

from headway.contract.views import JobsQuery, JobView
from headway.core.state import HELD
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.web.page import Facts, Look, Page
from headway.web.pages.jobs import find_jobs

MOST = 200
"""Workers that are shown: those that live first."""
JOBS = 200
"""Running jobs that are looked for."""
OF_EACH = 8
"""Jobs of a worker that are named."""


async def read(look: Look) -> Facts:
    """All workers, and those of their jobs that a bounded look finds."""
    seen = await look.sight.overview()
    now, sought = seen.stats.now, look.values["q"].casefold()
    fits = [
        one
        for one in seen.workers
        if not sought or any(sought in text.casefold() for text in (one.id, one.name, *one.lanes))
    ]
    fits.sort(key=lambda one: (one.lease_until <= now, -one.running, one.id))
    held = sum(one.running for one in seen.workers)
    by_worker: dict[str, list[JobView]] = {}
    for job in await _held(look) if held else []:
        by_worker.setdefault(job.worker or "", []).append(job)
    return {
        "now": now,
        "rows": fits[:MOST],
        "many": len(fits),
        "all": len(seen.workers),
        "alive": sum(one.lease_until > now for one in fits),
        "held": held,
        "by_worker": by_worker,
        "of_each": OF_EACH,
    }


async def _held(look: Look) -> list[JobView]:
    """Running and awaiting jobs: those of a bounded look from either end, and those of gates."""
    states = tuple(sorted(HELD))
    query = JobsQuery(states=states, runs=True, newest=True, limit=JOBS)
    page = await find_jobs(look, query)
    found = {one.id: one for one in page.rows}
    if page.cursor is not None:
        # Behind a long line those that run are among the oldest.
        page = await find_jobs(look, replace(query, newest=False))
        found |= {one.id: one for one in page.rows}
    if page.cursor is not None:
        gates = (await look.sight.overview()).gates
        names = dict.fromkeys(one.job for gate in gates for one in gate.holders)
        ids = tuple(one for one in names if one not in found)[:JOBS]
        if ids:
            more = await find_jobs(look, JobsQuery(ids=ids, runs=True, limit=JOBS))
            found |= {one.id: one for one in more.rows if one.state in HELD}
    return sorted(found.values(), key=lambda one: one.runs[-1].claimed_at if one.runs else 0)


PAGE = Page(
    path="workers",
    title="Workers",
    template="workers.html",
    fragments=("workers",),
    read=read,
    permission=Permission.OBSERVE,
    reach=Caller.whole,
    params=("q",),
)
