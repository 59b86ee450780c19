"""Workers: what each runs and since when, what it serves, and when it was last seen."""

from __future__ import annotations

from headway.contract.views import JobView
from headway.server.access.caller import Caller, Permission
from headway.server.underway import held_jobs
from headway.web.page import Facts, Look, Page

MOST = 200
"""Workers that are shown: those that live first."""
OF_EACH = 8
"""Jobs of a worker that are named."""


async def read(look: Look) -> Facts:
    """All workers, and the first jobs of each of those that hold most."""
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

    async def found() -> list[JobView]:
        return await held_jobs(look.service.store, seen.workers, OF_EACH)

    for job in await look.sight.once("held", found, 2.0):
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
