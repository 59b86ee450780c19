"""Lanes: depth, latency and shares of tenants, and actions on them."""

from __future__ import annotations

from collections import Counter
from functools import partial

from headway.contract.views import GatesQuery, LanesQuery, StatsQuery
from headway.core.gates.slots import UNLIMITED
from headway.core.state import HELD, State
from headway.server.caller import Caller, Permission
from headway.server.finding import held_jobs, parked_flows, parked_gates, waiting_flows
from headway.server.routes import gates as gate_routes
from headway.server.routes import lanes as routes
from headway.web.page import (
    REASON,
    UNTIL,
    Action,
    DashboardPage,
    PageView,
    RouteCall,
    TemplateContext,
    int_of,
    rows_of,
)
from headway.web.pages.gates import AT_MOST, capacity_of
from headway.web.stuck import held_up_in

SAMPLE = 100
"""Maximum jobs of a parked flow, and of a worker, whose tenants are counted."""
ORDERS = ("name", "depth", "oldest")


async def read(view: PageView) -> TemplateContext:
    """Return a page of lanes, or the details of one lane."""
    seen = await view.reads.overview()
    lanes = [one for one in seen.lanes if view.caller.covers(one.name)]
    facts = {"now": seen.stats.now, "history": view.reads.history, "orders": ORDERS}
    if name := view.values["lane"]:
        view.caller.check_lane(name)
        return {**facts, "lane": await _one(view, name)}
    sought = view.values["q"].casefold()
    lanes = [one for one in lanes if sought in one.name.casefold()]
    order = view.values["order"]
    if order == "depth":
        lanes.sort(key=lambda one: (-held_up_in(one), one.name))
    elif order == "oldest":
        lanes.sort(key=lambda one: (one.oldest_due_at or 1 << 62, one.name))
    rows, place = rows_of(view.values, lanes)
    return {
        **facts,
        **place,
        "lane": None,
        "rows": rows,
        "latencies": await view.reads.latencies([one.name for one in rows if one.unfinished]),
    }


async def _one(view: PageView, name: str) -> dict[str, object]:
    store = view.service.store
    (lane,) = await store.read(LanesQuery(names=(name,)))
    (gate,) = (await store.read(GatesQuery(names=(f"lane:{name}",)))).rows
    latencies = await view.reads.latencies([name])

    async def shares() -> dict[str, object]:
        waiting, running = Counter[str](), Counter[str]()
        found = await waiting_flows(store, (name,))
        for flow in found.rows:
            waiting[flow.tenant] += flow.count
        if lane.counts.get(State.PARKED):
            gates = (await parked_gates(store)).rows
            for flow in (await parked_flows(store, gates, SAMPLE)).rows:
                waiting[flow.tenant] += flow.count if flow.lane == name else 0
        if any(lane.counts.get(one) for one in HELD):
            held = await held_jobs(store, (await view.reads.overview()).workers, SAMPLE)
            running.update(one.tenant for one in held if one.lane == name)
        order = [tenant for tenant, _ in (waiting + running).most_common()]
        return {"waiting": waiting, "running": running, "all": order, "more": found.more}

    return {
        "view": lane,
        "gate": gate,
        "capacity": None if gate.capacity in {None, UNLIMITED} else gate.capacity,
        "latency": latencies.get(name),
        "shares": await view.reads.cached(("shares", name), shares, 4.0),
        "sample": SAMPLE,
        "revision": (await store.read(StatsQuery())).revision,
    }


_on_lane = partial(
    Action,
    of=("lane",),
    reach=lambda caller, values: caller.check_gate(f"lane:{values.get('lane', '')}"),
)

PAUSE = _on_lane(
    name="pause-lane",
    label="Pause",
    title="Pause the lane {lane}",
    explains="Nothing more starts from it; running jobs continue. Its jobs wait, and none is lost.",
    endpoint=routes.pause_lane,
    call=lambda values: RouteCall(path={"name": values["lane"]}),
    done="{lane} is paused.",
    fields=(REASON, UNTIL),
    danger=True,
)
RESUME = _on_lane(
    name="resume-lane",
    label="Resume",
    title="Resume the lane {lane}",
    explains="Ends the pause, regardless of its author.",
    endpoint=routes.resume_lane,
    call=lambda values: RouteCall(path={"name": values["lane"]}),
    done="{lane} is no longer paused.",
)


CONCURRENCY = _on_lane(
    name="set-lane-concurrency",
    label="Set concurrency",
    title="Set the concurrency of {lane}",
    explains="Maximum number of its jobs in handlers at once. Lowering it stops no running job.",
    endpoint=gate_routes.set_gate,
    call=lambda values: RouteCall(
        path={"name": f"lane:{values['lane']}"},
        body={"capacity": int_of(values, "capacity")},
    ),
    done="{lane} runs at most {capacity} jobs at once.",
    fields=(AT_MOST, REASON),
    prefill=lambda view: capacity_of(view, f"lane:{view.values['lane']}"),
)


PAGE = DashboardPage(
    path="lanes",
    title="Lanes",
    template="lanes.html",
    fragments=("lanes",),
    read=read,
    permission=Permission.OBSERVE,
    reach=Caller.every_tenant,
    params=("lane", "q", "order", "from"),
    actions=(PAUSE, RESUME, CONCURRENCY),
)
