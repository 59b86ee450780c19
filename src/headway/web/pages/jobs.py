"""Jobs: search and actions; and the live view of cascades."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import msgspec

from headway.contract.views import JobsQuery, JobView
from headway.contract.views import Page as Rows
from headway.core.check import is_job_id
from headway.core.errors import InvalidValue
from headway.core.hidden import HIDDEN, hidden_text, hidden_value
from headway.core.state import FINAL, HELD, QUEUED, State
from headway.server.caller import Permission
from headway.server.finding import bounded_page, underway_jobs
from headway.server.paging import check_number_cursor
from headway.server.routes import moves as routes
from headway.server.visibility import visible_job
from headway.web.page import (
    REASON,
    Action,
    DashboardPage,
    Field,
    FormValues,
    PageView,
    RouteCall,
    TemplateContext,
    everyone,
    int_of,
)
from headway.web.rendering import MOST_WHOLE
from headway.web.shared_reads import FRESH_S

ROWS = 50
"""Jobs per page."""
MOST_READS = 3
"""Maximum reads for one page; each examines a bounded number of jobs."""
FILTERED_S = 2.0
"""Seconds for which a search is cached: it may examine many jobs that do not match."""
MOST_EDITED = 16_000
"""Maximum length of arguments that a form offers for editing, in characters."""
FILTERS = ("lane", "kind", "tenant", "key", "subject")
STATES = tuple(str(one) for one in State)


async def read(view: PageView) -> TemplateContext:
    """Return a page of jobs that the caller may see, in the chosen order."""
    given, caller = view.values, view.caller
    query = replace(
        query_of(view, states_of(given["state"])),
        newest=given["order"] != "oldest",
        cursor=check_number_cursor(given["cursor"] or None),
        limit=ROWS,
    )
    id = given["id"].strip()
    if id:
        query = JobsQuery(ids=(id,) if is_job_id(id) else ())
    page = await find_jobs(view, query)
    near: list[JobView] = []
    if not page.rows and page.cursor is not None and query.cursor is None and not query.subject:
        seen_by = (caller.tenants, caller.lanes)
        near = await view.reads.cached(
            ("underway", query, seen_by),
            lambda: underway_jobs(view.service.store, query, caller),
            FILTERED_S,
        )
    filtered = bool(query.states) or any(given[one] for one in (*FILTERS, "id"))
    return {
        "rows": [one for one in near or page.rows if caller.sees(one)],
        "near": bool(near),
        "cursor": page.cursor,
        "filtered": filtered,
        "states": STATES,
        "counts": await _counts(view, query) if not id else {},
        "tenant": query.tenant or "",
        "filters": FILTERS,
        "kept": {one: given[one] for one in (*FILTERS, "id") if given[one]},
    }


def query_of(view: PageView, states: Sequence[State]) -> JobsQuery:
    """Return the query of a page's filters, limited to what the caller may see."""
    given, caller = view.values, view.caller
    if given["lane"]:
        caller.check_lane(given["lane"])
    # For a caller with several tenants, the first is shown until another is chosen.
    tenant = given["tenant"] or (caller.tenants[0] if caller.tenants else None)
    return JobsQuery(
        lane=given["lane"] or None,
        tenant=caller.tenant(tenant),
        kind=given["kind"] or None,
        key=given.get("key") or None,
        subject=given.get("subject") or None,
        states=tuple(states),
    )


async def find_jobs(
    view: PageView, query: JobsQuery, most_reads: int = MOST_READS
) -> Rows[JobView]:
    """Return up to the query's limit of jobs, after at most `most_reads` reads.

    The page has a cursor if there may be more.
    """

    async def find() -> Rows[JobView]:
        rows: list[JobView] = []
        cursor = query.cursor
        for _ in range(most_reads):
            asked = replace(query, cursor=cursor, limit=query.limit - len(rows))
            page = await bounded_page(view.service.store, asked)
            rows += page.rows
            cursor = page.cursor
            if cursor is None or len(rows) >= query.limit:
                break
        return Rows(rows=tuple(rows), cursor=cursor)

    if query.ids == ():
        return Rows(rows=(), cursor=None)
    plain = replace(query, newest=True, cursor=None, limit=100) == JobsQuery(newest=True)
    return await view.reads.cached(("jobs", query), find, FRESH_S if plain else FILTERED_S)


async def _counts(view: PageView, query: JobsQuery) -> dict[str, int]:
    """Return the number of jobs by state, in total or in a lane; empty if they are not counted.

    The store has no counts by tenant, kind, key or subject.
    """
    caller = view.caller
    others = (query.tenant, query.kind, query.key, query.subject)
    if Permission.OBSERVE not in caller.may or caller.tenants is not None or any(others):
        return {}
    seen = await view.reads.overview()
    if query.lane is None:
        return dict(seen.stats.counts) if caller.lanes is None else {}
    return {
        state: n for one in seen.lanes if one.name == query.lane for state, n in one.counts.items()
    }


def states_of(text: str) -> tuple[State, ...]:
    """Parse a comma-separated list of states.

    Raises:
        InvalidValue: a name is not a state.
    """
    names = [one.strip() for one in text.split(",") if one.strip()]
    for one in names:
        if one not in STATES:
            message = f"{one[:40]!r} is not a state"
            raise InvalidValue(message, hint=f"one of {', '.join(STATES)}")
    return tuple(State(one) for one in dict.fromkeys(names))


def carried(data: bytes | None) -> str:
    """Return a job's JSON indented and with secrets masked; "" for None.

    Of large JSON it is a beginning that is longer than pages show: to mask 1 MB takes a second,
    and an open page does so every second.
    """
    if data is None:
        return ""
    try:
        value = hidden_value(_beginning(msgspec.json.decode(data), [2 * MOST_WHOLE]))
    except msgspec.DecodeError:
        return hidden_text(data[: 2 * MOST_WHOLE].decode(errors="replace"))
    text = json.dumps(value, indent=2, ensure_ascii=False)
    # Invisible characters are written as escapes, so that they can be read and edited.
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=2)


def _beginning(value: object, room: list[int]) -> object:
    """Return a decoded JSON value without what follows the first `room[0]` characters."""
    room[0] -= 4
    match value:
        case str():
            room[0] -= len(value)
            return value[: max(0, room[0] + len(value))]
        case dict():
            found: dict[object, object] = {}
            for key, one in cast("dict[str, object]", value).items():
                if room[0] <= 0:
                    break
                name = _beginning(key, room)
                found[name] = _beginning(one, room)
            return found
        case list():
            return [_beginning(one, room) for one in cast("list[object]", value) if room[0] > 0]
        case _:
            return value


def _one(values: FormValues) -> RouteCall:
    return RouteCall(path={"id": values["job"]})


_on_job = partial(Action, call=_one, of=("job",), fields=(REASON,))

CANCEL = _on_job(
    name="cancel-job",
    label="Cancel",
    title="Cancel the job {job}",
    explains="A queued job is cancelled at once. A running or awaiting one is asked to stop, and "
    "is cancelled when its run or its deadline ends.",
    endpoint=routes.cancel,
    done="Cancel: {answer}. The job is {state}.",
    danger=True,
)
RETRY = _on_job(
    name="retry-job",
    label="Retry",
    title="Retry the job {job}",
    explains="Runs the job again, with all its attempts. Earlier runs stay on its page.",
    endpoint=routes.retry,
    done="Retried: the job is {state}.",
)
RUN_NOW = _on_job(
    name="run-job-now",
    label="Run now",
    title="Make the job {job} due now",
    explains="It no longer waits for its due time, but must still pass every gate.",
    endpoint=routes.run_now,
    done="The job is due now: it is {state}.",
)


def _edit(values: FormValues) -> RouteCall:
    body: dict[str, object] = {}
    if text := values.get("args", "").strip():
        body["args"] = _arguments(text)
    if values.get("priority", "").strip():
        body["priority"] = int_of(values, "priority")
    if due := values.get("due", "").strip():
        body["due"] = due
    return replace(_one(values), body=body)


def _arguments(text: str) -> dict[str, object]:
    if HIDDEN in text:
        message = f"the arguments have {HIDDEN} in them, which represents a secret"
        raise InvalidValue(message, hint="enter the value itself")
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        message = f"the arguments are not a JSON object: {error}"
        raise InvalidValue(message) from None


async def _stored(view: PageView) -> FormValues:
    job = await visible_job(view.service, view.caller, view.values["job"])
    text = carried(job.args)
    fits = HIDDEN not in text and len(text) <= MOST_EDITED
    return {"args": text if fits else "", "priority": str(job.priority)}


_CHANGES = (
    Field(
        name="args",
        label="Arguments",
        kind="area",
        hint="A JSON object that replaces all the old ones; leave empty to keep them. It is empty "
        "now if they contain a secret or are long.",
    ),
    Field(name="priority", label="Priority", kind="number", hint="Smaller numbers start first."),
    Field(name="due", label="Due", hint="20m, or 2026-12-01T10:00Z; leave empty to keep it."),
    REASON,
)
RETRY_EDITED = _on_job(
    name="edit-and-retry-job",
    label="Edit and retry",
    title="Edit and retry the job {job}",
    explains="Runs the job again with these arguments. Earlier runs stay on its page.",
    endpoint=routes.retry,
    call=_edit,
    done="Retried: the job is {state}.",
    fields=_CHANGES,
    prefill=_stored,
)
EDIT = _on_job(
    name="edit-job",
    label="Edit",
    title="Edit the job {job}",
    explains="It continues to wait with these arguments, priority and due time.",
    endpoint=routes.edit,
    call=_edit,
    done="The job was changed: it is {state}.",
    fields=_CHANGES,
    prefill=_stored,
)


def actions_for(state: State) -> tuple[str, ...]:
    """Return the names of the actions for jobs in a state, most likely first."""
    if state in {State.DEAD, State.CANCELLED}:
        return RETRY.name, RETRY_EDITED.name
    if state in FINAL:
        return ()
    return (RUN_NOW.name, EDIT.name, CANCEL.name) if state in QUEUED else (CANCEL.name,)


PAGE = DashboardPage(
    path="jobs",
    title="Jobs",
    template="jobs.html",
    fragments=("states", "jobs"),
    read=read,
    permission=Permission.READ,
    reach=everyone,
    params=("id", "state", *FILTERS, "order", "cursor"),
)


MOST_CASCADES = 50
"""Maximum cascades shown."""
CASCADES_LOOKED = 100
"""Limit of jobs per query."""
MOST_KINDS = 20
"""Maximum kinds of the App that are queried by name."""
_TAKING = ((State.AWAITING,), (State.RUNNING,))
"""Queried separately: awaiting jobs have an index, so they are found among many others."""
_BETWEEN = (State.WAITING, State.PARKED, State.SCHEDULED)
"""States of a cascade between two turns, or before the first."""


async def read_cascades(view: PageView) -> TemplateContext:
    """Return the cascades in a turn, by its deadline, then those between two turns."""
    caller, kind = view.caller, view.values["kind"]
    app = view.service.app
    kinds = [] if app is None else [one.name for one in app.kinds.values() if one.options.cascade]
    asked = [kind] if kind else kinds[:MOST_KINDS]
    wanted: list[tuple[str | None, tuple[State, ...]]] = [
        (one, states) for one in asked for states in (*_TAKING, _BETWEEN)
    ]
    wanted += [(kind or None, states) for states in _TAKING]
    queries = [
        JobsQuery(kind=one, tenant=tenant, states=states, limit=CASCADES_LOOKED, newest=True)
        for tenant in caller.tenants or (None,)
        for one, states in wanted
    ]
    key = ("cascades", caller.tenants, caller.lanes, kind)
    found = await view.reads.cached(key, lambda: _find_cascades(view, queries))
    return {
        "rows": found[:MOST_CASCADES],
        "more": max(0, len(found) - MOST_CASCADES),
        "kinds": sorted(
            {*kinds[:MOST_KINDS], *(one.kind for one in found), *([kind] if kind else [])}
        ),
        "looked": CASCADES_LOOKED,
    }


async def _find_cascades(view: PageView, queries: Sequence[JobsQuery]) -> list[JobView]:
    found: dict[str, JobView] = {}
    for query in queries:
        page = await bounded_page(view.service.store, query)
        found |= {
            one.id: one for one in page.rows if one.cascade is not None and view.caller.sees(one)
        }
    return sorted(found.values(), key=_order)


def _order(job: JobView) -> tuple[bool, int, int]:
    # A turn without a deadline has a running handler: it comes before jobs that wait.
    return job.state not in HELD, job.deadline_at or 1 << 62, job.seq


CASCADES = DashboardPage(
    path="cascades",
    title="Cascades",
    template="cascades.html",
    fragments=("cascades",),
    read=read_cascades,
    permission=Permission.READ,
    reach=everyone,
    params=("kind",),
    actions=(CANCEL,),
)
