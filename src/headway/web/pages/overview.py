"""Pages about the whole store: what is held up and why, activity, workers, and the trail."""

from __future__ import annotations

from dataclasses import replace

from headway.contract.views import GatesQuery, JobsQuery, JobView, StatsQuery, TrailQuery, TrailView
from headway.core.check import is_job_id
from headway.core.state import FINAL, State
from headway.server.caller import Caller, Permission
from headway.server.finding import held_jobs
from headway.server.overview import Overview
from headway.server.paging import check_number_cursor
from headway.server.routes import gates as routes
from headway.web.page import (
    REASON,
    UNTIL,
    Action,
    DashboardPage,
    FormValues,
    PageView,
    RouteCall,
    TemplateContext,
    everyone,
)
from headway.web.stuck import Stuck, by_lane, find_stuck, stuck_among

MOST_OWN = 200
"""Maximum jobs read of each tenant, for a caller that is limited to tenants."""
LIVE = (State.SCHEDULED, State.WAITING, State.PARKED, State.RUNNING, State.AWAITING)
ENDED = (State.SUCCEEDED, State.DEAD, State.CANCELLED)


async def read_now(view: PageView) -> TemplateContext:
    """Return the current activity, limited to what the caller may see."""
    caller = view.caller
    if Permission.OBSERVE not in caller.may or caller.tenants is not None:
        return await _own(view)
    seen = await view.reads.overview()
    if caller.lanes is not None:
        return await _lanes(view, seen)
    store = view.service.store
    (everything,) = (await store.read(GatesQuery(names=("all",)))).rows
    history = view.reads.history
    return {
        **_facts(seen.stats.now, await view.reads.stuck(), dict(seen.stats.counts)),
        "scope": "all",
        "everything": everything,
        "history": history,
        "rates": {
            name: history.rate(name)
            for name in ("enqueued", "started", "succeeded", "failed", "dead")
        },
        "lateness": await view.reads.lateness(),
        "workers": sum(one.lease_until > seen.stats.now for one in seen.workers),
        "tracks": history.gates,
    }


async def _lanes(view: PageView, seen: Overview) -> TemplateContext:
    """Return the activity of the caller's lanes only."""
    lanes = tuple(one for one in seen.lanes if view.caller.covers(one.name))
    cut = replace(seen, lanes=lanes, gates=())
    stuck = await view.reads.cached(
        ("stuck", view.caller.lanes), lambda: find_stuck(view.service.store, cut), 2.0
    )
    counts = by_lane(one.counts for one in lanes)
    return {**_facts(seen.stats.now, stuck, dict(counts)), "scope": "lanes"}


async def _own(view: PageView) -> TemplateContext:
    """Return the activity of the caller's tenants, from a bounded number of jobs."""
    caller, store = view.caller, view.service.store
    jobs: list[JobView] = []
    for tenant in caller.tenants or (None,):
        query = JobsQuery(tenant=tenant, states=LIVE, limit=MOST_OWN)
        jobs += [one for one in (await store.read(query)).rows if caller.sees(one)]
    now = (await store.read(StatsQuery())).now
    held = [one for one in jobs if one.state in {State.WAITING, State.PARKED}]
    counts = by_lane({str(one.state): 1} for one in jobs)
    facts = _facts(now, await stuck_among(store, held, now), dict(counts))
    return {**facts, "scope": "own", "cut": len(jobs) >= MOST_OWN, "most": MOST_OWN}


def _facts(now: int, stuck: Stuck, counts: dict[str, int]) -> dict[str, object]:
    return {
        "now": now,
        "stuck": stuck,
        "counts": counts,
        "live_states": [str(one) for one in LIVE],
        "ended_states": [str(one) for one in ENDED],
        "unfinished": sum(n for state, n in counts.items() if state not in FINAL),
        "everything": None,
        "tracks": {},
        "cut": False,
    }


def _all(caller: Caller, _: FormValues) -> None:
    caller.check_gate("all")


STOP = Action(
    name="stop-everything",
    label="Pause everything",
    title="Pause everything",
    explains="No job starts in any lane until it is resumed. Running jobs continue to their end.",
    endpoint=routes.close,
    call=lambda _: RouteCall(body={"gate": "all"}),
    done="Everything is paused.",
    fields=(REASON, UNTIL),
    reach=_all,
    danger=True,
)
START = Action(
    name="start-everything",
    label="Resume",
    title="Resume everything",
    explains="Jobs start again as their gates allow.",
    endpoint=routes.open_gate,
    call=lambda _: RouteCall(path={"gate": "all"}),
    done="Jobs start again.",
    reach=_all,
)


NOW = DashboardPage(
    path="",
    title="Now",
    template="now.html",
    fragments=("stop", "stopped", "stuck", "rate", "chart", "late", "running", "states"),
    read=read_now,
    permission=Permission.READ,
    reach=everyone,
    actions=(STOP, START),
)


MOST = 200
"""Maximum workers shown, live ones first."""
OF_EACH = 8
"""Maximum jobs shown of a worker."""


async def read_workers(view: PageView) -> TemplateContext:
    """Return the workers, and the first jobs of each of those that hold most."""
    seen = await view.reads.overview()
    now, sought = seen.stats.now, view.values["q"].casefold()
    fits = [
        one
        for one in seen.workers
        if not sought or any(sought in text.casefold() for text in (one.id, one.name, *one.lanes))
    ]
    fits.sort(key=lambda one: (one.lease_until <= now, -one.running, one.id))
    held = sum(one.running for one in seen.workers)
    by_worker: dict[str, list[JobView]] = {}
    jobs = await view.reads.cached(
        "held", lambda: held_jobs(view.service.store, seen.workers, OF_EACH), 2.0
    )
    for job in jobs:
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


WORKERS = DashboardPage(
    path="workers",
    title="Workers",
    template="workers.html",
    fragments=("workers",),
    read=read_workers,
    permission=Permission.OBSERVE,
    reach=Caller.whole,
    params=("q",),
)


MOST_LINES = 50
"""Lines per page."""
LINES_LOOKED_AT = 1_000
"""Lines that are read to find those of one author."""


async def read_trail(view: PageView) -> TemplateContext:
    """Return a page of the trail, filtered by target and author if they are given."""
    given = view.values
    target, author = given["target"].strip(), given["author"].strip()
    query = TrailQuery(
        target=target or None,
        cursor=check_number_cursor(given["cursor"] or None),
        limit=LINES_LOOKED_AT if author else MOST_LINES,
    )
    page = await view.reads.cached(("trail", query), lambda: view.service.store.read(query))
    rows, cursor = list(page.rows), page.cursor
    if author:
        rows = [one for one in rows if one.author == author]
        if len(rows) > MOST_LINES:
            rows, cursor = rows[:MOST_LINES], str(rows[MOST_LINES - 1].seq)
    return {
        "rows": [(one, _leads_to(one)) for one in rows],
        "cursor": cursor,
        "looked": LINES_LOOKED_AT,
        "kept": {name: given[name] for name in ("target", "author") if given[name]},
    }


def _leads_to(line: TrailView) -> str:
    """Return the type of a line's target: "job", "gate", "lane", or "" if unknown."""
    if is_job_id(line.target):
        return "job"
    if line.verb in {"close", "open"}:
        return "gate"
    return next((one for one in ("gate", "lane") if one in line.verb), "")


TRAIL = DashboardPage(
    path="trail",
    title="Trail",
    template="trail.html",
    fragments=("trail",),
    read=read_trail,
    permission=Permission.OBSERVE,
    reach=Caller.whole,
    params=("target", "author", "cursor"),
)
