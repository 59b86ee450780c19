"""The dashboard page of the HTTP queue: depth by lane, and the jobs of its workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from headway.contract.views import JobView, LaneView, WorkerView
from headway.core.state import HELD
from headway.server.caller import Caller, Permission
from headway.server.finding import held_jobs
from headway.systems.jobs import count_queued
from headway.systems.lanes.routes import retry
from headway.web.page import REASON, Action, DashboardPage, PageView, RouteCall, TemplateContext

ROWS = 50
"""Maximum number of lanes on the page, deepest first."""
HELD_ROWS = 25
"""Maximum number of pulled jobs shown per worker."""
MOST_HELD = 250
"""Maximum number of pulled jobs of all workers, starting with those that have the most."""


async def read(view: PageView) -> TemplateContext:
    """Return the deepest lanes, and their pulled jobs by worker."""
    seen = await view.reads.overview()
    caller, sought = view.caller, view.values["q"].casefold()
    lanes = [one for one in seen.lanes if caller.covers(one.name) and sought in one.name.casefold()]
    lanes.sort(key=lambda one: (-count_queued(one), one.name))
    rows = lanes[:ROWS]
    held: list[JobView] = []
    if Permission.READ in caller.may:
        names = tuple(sorted(one.name for one in rows if pulled(one)))
        found = await view.reads.cached(
            ("queue", *names), lambda: _held(view, seen.workers, names), 1.0
        )
        held += found
    by_id = {one.id: one for one in seen.workers}
    held.sort(key=lambda one: (one.worker or "", _since(one)))
    return {
        "now": seen.stats.now,
        "rows": rows,
        "many": len(lanes),
        "deepest": max((count_queued(one) for one in rows), default=0),
        "depth": count_queued,
        "pulled": pulled,
        "all_pulled": sum(pulled(one) for one in lanes),
        "shown": len(held),
        "since": _since,
        "workers": [
            {"id": id_, "view": by_id.get(id_), "jobs": list(jobs)}
            for id_, jobs in groupby(held, key=lambda one: one.worker or "")
        ],
    }


def pulled(lane: LaneView) -> int:
    """Return the number of pulled jobs of a lane."""
    return sum(lane.counts.get(one, 0) for one in HELD)


def _since(job: JobView) -> int:
    return job.runs[-1].claimed_at if job.runs else job.due_at


async def _held(
    view: PageView, workers: Sequence[WorkerView], lanes: Sequence[str]
) -> list[JobView]:
    """Return pulled jobs of these lanes, up to the limits above."""
    if not lanes:
        return []
    return await held_jobs(
        view.service.store, workers, HELD_ROWS, MOST_HELD, lambda one: one.lane in lanes
    )


RETRY = Action(
    name="queue-retry",
    label="Retry dead",
    title="Retry the dead jobs of {lane}",
    explains="Runs each job again, with all its attempts: the oldest first, as many as one request "
    "allows.",
    endpoint=retry,
    call=lambda values: RouteCall(body={"lane": values["lane"]}),
    done="Dead jobs of {lane} wait again.",
    of=("lane",),
    fields=(REASON,),
    reach=lambda caller, values: caller.check_lane(values.get("lane", "")),
)

PAGES = (
    DashboardPage(
        path="queue",
        title="HTTP queue",
        template="queue.html",
        fragments=("queue",),
        read=read,
        permission=Permission.OBSERVE,
        reach=Caller.every_tenant,
        params=("q",),
        actions=(RETRY,),
        package="headway.systems.lanes",
    ),
)
"""The pages of this system."""
