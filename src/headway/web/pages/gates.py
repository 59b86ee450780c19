"""Gates: use, holders, waiting jobs and opening times, and actions on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from headway.contract.views import (
    GatesQuery,
    GateState,
    JobsQuery,
    JobView,
    StatsQuery,
    WaitingFlow,
)
from headway.core.gates.slots import UNLIMITED
from headway.core.state import State
from headway.server.caller import Caller, Permission
from headway.server.finding import first_jobs, parked_flows, waiting_flows
from headway.server.paging import decode_cursor, encode_cursor
from headway.server.routes import gates as routes
from headway.web.page import (
    REASON,
    UNTIL,
    Action,
    DashboardPage,
    Field,
    FormValues,
    PageView,
    RouteCall,
    TemplateContext,
    int_of,
)
from headway.web.shared_reads import GateTrack
from headway.web.stuck import COUNTED

ROWS = 50
"""Gates per page."""
WAITERS = 25
"""Maximum jobs shown of those that wait at a gate."""
FIRST = 5
"""Maximum jobs shown of one flow."""
LANES = 10
"""Number of lanes whose flows are read: those with the most waiting jobs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Waiters:
    """Jobs that wait at a gate.

    Attributes:
        count: How many were counted, including those that also wait for another gate.
    """

    jobs: Sequence[JobView]
    count: int
    more: bool


async def read(view: PageView) -> TemplateContext:
    """Return a page of gates, or the details of one gate."""
    store = view.service.store
    seen = await view.reads.overview()
    facts: dict[str, object] = {"now": seen.stats.now, "tracks": view.reads.history.gates}
    if name := view.values["gate"]:
        return {**facts, "gate": await _one(view, name)}
    sought, only = view.values["q"].casefold(), view.values["only"]
    searched = None
    if sought or only:
        rows = [one for one in seen.gates if sought in one.name.casefold() and _fits(one, only)]
        cursor = None
        rows, more = rows[:ROWS], len(rows) > ROWS
        searched = len(seen.gates) if seen.more_gates else None
    else:
        after = decode_cursor(view.values["cursor"] or None)
        page = await store.read(GatesQuery(cursor=after, limit=ROWS))
        rows, cursor, more = list(page.rows), encode_cursor(page.cursor), False
    return {
        **facts,
        "gate": None,
        "rows": rows,
        "cursor": cursor,
        "more": more,
        "searched": searched,
    }


def _fits(gate: GateState, only: str) -> bool:
    match only:
        case "shut":
            return not gate.open
        case "held":
            return gate.used > 0
        case "closed":
            return gate.closed_until is not None
        case _:
            return True


async def _one(view: PageView, name: str) -> dict[str, object]:
    store = view.service.store
    (gate,) = (await store.read(GatesQuery(names=(name,)))).rows
    now = (await store.read(StatsQuery())).now
    track = view.reads.history.gates.setdefault(name, GateTrack())
    if not track.used or track.used[-1][0] < now:
        track.note(gate, now)
    holders = [one.job for one in gate.holders]
    jobs = await store.read(JobsQuery(ids=tuple(holders), limit=100)) if holders else None
    return {
        "view": gate,
        "by_id": {} if jobs is None else {one.id: one for one in jobs.rows},
        "waiters": await view.reads.cached(("waiters", name), lambda: _waiters(view, gate), 2.0),
        "track": track,
    }


async def _waiters(view: PageView, gate: GateState) -> _Waiters:
    """Return the first jobs that wait at a gate, and their number."""
    store = view.service.store
    what, _, name = gate.name.partition(":")
    if not gate.implicit and not gate.shared:
        gate = await _parking(view, gate)
        found = await parked_flows(store, [gate], first=WAITERS)
        jobs = (await first_jobs(store, found.rows))[:WAITERS]
        return _Waiters(jobs=jobs, count=gate.parked, more=gate.parked >= COUNTED)
    held = [one for one in (await view.reads.overview()).lanes if one.counts.get(State.WAITING)]
    held.sort(key=lambda one: -one.counts[State.WAITING])
    lanes = [one.name for one in held]
    if gate.implicit and what == "lane":
        lanes = [name]
    found = await waiting_flows(store, lanes[:LANES], FIRST)
    flows = [one for one in found.rows if _waits_at(one, gate)]
    return _Waiters(
        jobs=(await first_jobs(store, flows))[:WAITERS],
        count=sum(one.count for one in flows),
        more=found.more or len(lanes) > LANES or any(one.count >= COUNTED for one in flows),
    )


async def _parking(view: PageView, gate: GateState) -> GateState:
    """Return the gate at which jobs for a keyed gate are parked: the pool, for a member."""
    name = gate.name.rpartition("/")[0]
    if gate.parked or not name:
        return gate
    (pool,) = (await view.service.store.read(GatesQuery(names=(name,)))).rows
    return pool if any(one.name == gate.name for one in pool.members) else gate


def _waits_at(flow: WaitingFlow, gate: GateState) -> bool:
    if gate.implicit:
        names = {"all", f"lane:{flow.lane}", f"kind:{flow.kind}", f"tenant:{flow.tenant}"}
        return gate.name in names
    pool = gate.name.partition("/")[0]
    return any(one.name in {gate.name, pool} for one in flow.shared)


_on_gate = partial(
    Action,
    of=("gate",),
    reach=lambda caller, values: caller.check_gate(values.get("gate", "")),
)

CLOSE = _on_gate(
    name="close-gate",
    label="Close",
    title="Close the gate {gate}",
    explains="Nothing more passes it, including jobs that already wait. Running jobs continue.",
    endpoint=routes.close,
    call=lambda values: RouteCall(body={"gate": values["gate"]}),
    done="{gate} is closed.",
    fields=(REASON, UNTIL),
    danger=True,
)
OPEN = _on_gate(
    name="open-gate",
    label="Open",
    title="Open the gate {gate}",
    explains="Ends the closing, regardless of its author. Numbers and hours still apply.",
    endpoint=routes.open_gate,
    call=lambda values: RouteCall(path={"gate": values["gate"]}),
    done="{gate} is no longer closed.",
)


async def capacity_of(view: PageView, gate: str) -> FormValues:
    """Return the initial value of `AT_MOST`: a gate's capacity or limit; "" if it has none."""
    (found,) = (await view.service.store.read(GatesQuery(names=(gate,)))).rows
    return {"capacity": "" if found.capacity in {None, UNLIMITED} else str(found.capacity)}


AT_MOST = Field(name="capacity", label="At most", kind="number", required=True)


def _set_number(number: str, explains: str) -> Action:
    return _on_gate(
        name=f"set-gate-{number}",
        label=f"Set {number}",
        title=f"Set the {number} of {{gate}}",
        explains=explains,
        endpoint=routes.set_gate,
        call=lambda values: RouteCall(
            path={"name": values["gate"]}, body={number: int_of(values, "capacity")}
        ),
        done=f"{{gate}} has a {number} of {{capacity}}.",
        fields=(AT_MOST, REASON),
        prefill=lambda view: capacity_of(view, view.values["gate"]),
    )


CAPACITY = _set_number(
    "capacity", "This overrides what code declares until it is reset. No permit is taken back."
)
LIMIT = _set_number(
    "limit", "Starts in each window. This overrides what code declares until it is reset."
)
RESET = _on_gate(
    name="reset-gate",
    label="Reset numbers",
    title="Reset the numbers of {gate}",
    explains="What code declares applies again.",
    endpoint=routes.reset_gate,
    call=lambda values: RouteCall(path={"name": values["gate"]}),
    done="{gate} has its declared numbers again.",
)
RELEASE = Action(
    name="release-permit",
    label="Release",
    title="Take the permit of {gate} from its holder by force",
    explains="The job stays unchanged: if it still uses what the gate protects, more than the "
    "capacity will be in use. The trail records it.",
    endpoint=routes.release_permit,
    call=lambda values: RouteCall(body={"gate": values["gate"], "job": values["job"]}),
    done="The permit of {gate} is free.",
    of=("gate", "job"),
    fields=(Field(name="reason", label="Reason", required=True, hint=REASON.hint),),
    danger=True,
)

PAGE = DashboardPage(
    path="gates",
    title="Gates",
    template="gates.html",
    fragments=("gates",),
    read=read,
    permission=Permission.OBSERVE,
    reach=Caller.whole,
    params=("gate", "q", "only", "cursor"),
    actions=(CLOSE, OPEN, CAPACITY, LIMIT, RESET, RELEASE),
)
