"""Cascades live: jobs that are offered to one candidate after another, and how far each is.

Only jobs that are under way are looked at, and of these a bounded number: of each kind of the
server's App that is a cascade, and of those that run or await in any kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.views import JobsQuery, JobView, StatsQuery
from headway.core.state import State
from headway.server.access.caller import Permission
from headway.server.job_pages import bounded_page
from headway.web.page import Facts, Look, Page, everyone
from headway.web.pages.jobs import CANCEL

ROWS = 50
"""Cascades that are shown."""
LOOKED = 100
"""Jobs of each look that are looked at."""
KINDS = 20
"""Kinds of the App that are looked for by name."""
HELD = (State.AWAITING, State.RUNNING)
BETWEEN = (State.WAITING, State.PARKED, State.SCHEDULED)
"""Between two turns, or before the first."""


async def read(look: Look) -> Facts:
    """Those whose candidate's time ends first, then those between two turns."""
    now = (await look.service.store.read(StatsQuery())).now
    caller, kind = look.caller, look.values["kind"]
    app = look.service.app
    kinds = [] if app is None else [one.name for one in app.kinds.values() if one.options.cascade]
    asked = [kind] if kind else kinds[:KINDS]
    tenants = caller.tenants or (None,)
    queries = [
        JobsQuery(kind=one, tenant=tenant, states=states, limit=LOOKED, newest=True)
        for tenant in tenants
        for one in asked
        for states in (HELD, BETWEEN)
    ]
    queries += [
        JobsQuery(kind=kind or None, tenant=tenant, states=HELD, limit=LOOKED, newest=True)
        for tenant in tenants
    ]
    key = ("cascades", caller.tenants, caller.lanes, kind)
    found = await look.sight.once(key, lambda: _look(look, queries))
    return {
        "now": now,
        "rows": found[:ROWS],
        "more": max(0, len(found) - ROWS),
        "kinds": sorted({*kinds[:KINDS], *(one.kind for one in found), *([kind] if kind else [])}),
        "looked": LOOKED,
    }


async def _look(look: Look, queries: Sequence[JobsQuery]) -> list[JobView]:
    found: dict[str, JobView] = {}
    for query in queries:
        page = await bounded_page(look.service.store, query)
        found |= {
            one.id: one for one in page.rows if one.cascade is not None and look.caller.sees(one)
        }
    return sorted(found.values(), key=_order)


def _order(job: JobView) -> tuple[bool, int, int]:
    # A turn without an end is one of a handler that runs: it stands before those that wait.
    return job.state not in HELD, job.deadline_at or 1 << 62, job.seq


PAGE = Page(
    path="cascades",
    title="Cascades",
    template="cascades.html",
    fragments=("cascades",),
    read=read,
    permission=Permission.READ,
    reach=everyone,
    params=("kind",),
    actions=(CANCEL,),
)
