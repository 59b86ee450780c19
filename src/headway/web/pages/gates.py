"""Gates: how full each is, who holds it, who waits, when it opens, and changing it."""

from __future__ import annotations

from headway.contract.views import GatesQuery, GateState, JobsQuery, JobView, StatsQuery
from headway.core.state import State
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.asking import unwrapped, wrapped
from headway.server.routes import gates as routes
from headway.web.page import (
    REASON,
    UNTIL,
    Action,
    Call,
    Facts,
    Field,
    Look,
    Page,
    Values,
    int_of,
    reason_of,
    until_of,
)
from headway.web.sight import GateTrack
from headway.web.stuck import some_jobs

ROWS = 50
"""Gates of a page."""
WAITERS = 25
"""Jobs that are looked at for those that wait at a gate."""


async def read(look: Look) -> Facts:
    """A page of gates; or one of them, whole."""
    store = look.service.store
    seen = await look.sight.overview()
    facts: dict[str, object] = {"now": seen.stats.now, "tracks": look.sight.history.gates}
    if name := look.values["gate"]:
        return {**facts, "gate": await _one(look, name)}
    sought, only = look.values["q"].casefold(), look.values["only"]
    if sought or only:
        rows = [one for one in seen.gates if sought in one.name.casefold() and _fits(one, only)]
        cursor = None
        rows, more = rows[:ROWS], len(rows) > ROWS or seen.more_gates
    else:
        after = unwrapped(look.values["cursor"] or None)
        page = await store.read(GatesQuery(cursor=after, limit=ROWS))
        rows, cursor, more = list(page.rows), wrapped(page.cursor), False
    return {**facts, "gate": None, "rows": rows, "cursor": cursor, "more": more}


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


async def _one(look: Look, name: str) -> dict[str, object]:
    store = look.service.store
    (gate,) = (await store.read(GatesQuery(names=(name,)))).rows
    now = (await store.read(StatsQuery())).now
    track = look.sight.history.gates.setdefault(name, GateTrack())
    if not track.used or track.used[-1][0] < now:
        track.note(gate, now)
    holders = [one.job for one in gate.holders]
    jobs = await store.read(JobsQuery(ids=tuple(holders), limit=100)) if holders else None
    return {
        "view": gate,
        "implicit": gate.kind == "implicit",
        "by_id": {} if jobs is None else {one.id: one for one in jobs.rows},
        "waiters": await look.sight.once(("waiters", name), lambda: _waiters(look, gate), 2.0),
        "track": track,
    }


async def _waiters(look: Look, gate: GateState) -> list[JobView]:
    """The first jobs that wait at a gate, of those that a bounded look finds."""
    found: list[JobView] = []
    states = (State.WAITING, State.PARKED)
    what, _, name = gate.name.partition(":")
    if what == "lane" and gate.kind == "implicit":
        queries = [JobsQuery(lane=name, states=states, limit=WAITERS)]
    else:
        seen = await look.sight.overview()
        held = [
            one.name
            for one in seen.lanes
            if one.counts.get(State.WAITING) or one.counts.get(State.PARKED)
        ]
        queries = [JobsQuery(lane=one, states=states, limit=WAITERS) for one in held[:20]]
    for query in queries:
        jobs = await some_jobs(look.service.store, query)
        found += [one for one in jobs if _waits_at(one, gate)]
    return sorted(found, key=lambda one: (one.due_at, one.seq))[:WAITERS]


def _waits_at(job: JobView, gate: GateState) -> bool:
    if gate.kind == "implicit":
        return gate.name in {"all", f"lane:{job.lane}", f"kind:{job.kind}", f"tenant:{job.tenant}"}
    pool = gate.name.partition("/")[0]
    return any(one.name in {gate.name, pool} for one in job.gates)


def _gate(caller: Caller, values: Values) -> None:
    caller.check_gate(values.get("gate", ""))


CLOSE = Action(
    name="close-gate",
    label="Close",
    title="Close the gate {gate}",
    explains="Nothing more passes it, also of what already waits. It stops no job that runs.",
    endpoint=routes.close,
    call=lambda values: Call(
        body={"gate": values["gate"], **until_of(values), **reason_of(values)}
    ),
    done="{gate} is closed.",
    of=("gate",),
    fields=(REASON, UNTIL),
    reach=_gate,
    danger=True,
)
OPEN = Action(
    name="open-gate",
    label="Open",
    title="Open the gate {gate}",
    explains="Ends its closing, whoever made it. Its numbers and hours still hold.",
    endpoint=routes.open_,
    call=lambda values: Call(path={"gate": values["gate"]}),
    done="{gate} is not closed any more.",
    of=("gate",),
    fields=(),
    reach=_gate,
)


async def _capacity(look: Look) -> Values:
    query = GatesQuery(names=(look.values["gate"],))
    (gate,) = (await look.service.store.read(query)).rows
    return {"capacity": "" if gate.capacity is None else str(gate.capacity)}


_AT_MOST = Field(name="capacity", label="At most", kind="number", required=True)
CAPACITY = Action(
    name="set-gate-capacity",
    label="Set capacity",
    title="Set the capacity of {gate}",
    explains="It wins over what code declares until it is reset, and takes no permit back.",
    endpoint=routes.set_numbers,
    call=lambda values: Call(
        path={"name": values["gate"]},
        body={"capacity": int_of(values, "capacity"), **reason_of(values)},
    ),
    done="{gate} has a capacity of {capacity}.",
    of=("gate",),
    fields=(_AT_MOST, REASON),
    reach=_gate,
    prefill=_capacity,
)
LIMIT = Action(
    name="set-gate-limit",
    label="Set limit",
    title="Set the limit of {gate}",
    explains="Starts in each window. It wins over what code declares until it is reset.",
    endpoint=routes.set_numbers,
    call=lambda values: Call(
        path={"name": values["gate"]},
        body={"limit": int_of(values, "capacity"), **reason_of(values)},
    ),
    done="{gate} has a limit of {capacity}.",
    of=("gate",),
    fields=(_AT_MOST, REASON),
    reach=_gate,
    prefill=_capacity,
)
RESET = Action(
    name="reset-gate",
    label="Reset numbers",
    title="Reset the numbers of {gate}",
    explains="What code declares holds again.",
    endpoint=routes.reset,
    call=lambda values: Call(path={"name": values["gate"]}),
    done="{gate} is as declared.",
    of=("gate",),
    fields=(),
    reach=_gate,
)
RELEASE = Action(
    name="release-permit",
    label="Release",
    title="Take the permit of {gate} from its holder by force",
    explains="The job is left as it is: if it still uses what the gate protects, more than the "
    "capacity will be in use. It is on the trail.",
    endpoint=routes.release,
    call=lambda values: Call(
        body={"gate": values["gate"], "job": values["job"], **reason_of(values)}
    ),
    done="The permit of {gate} is free.",
    of=("gate", "job"),
    fields=(Field(name="reason", label="Reason", required=True, hint=REASON.hint),),
    danger=True,
)

PAGE = Page(
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
