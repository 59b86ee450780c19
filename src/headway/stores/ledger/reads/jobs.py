"""Views of jobs, and of the flows of a lane or a gate with their first jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from headway.contract.views import (
    FlowsQuery,
    JobQuery,
    JobsQuery,
    JobView,
    NoteView,
    Page,
    RunView,
    WaitingFlow,
)
from headway.core.errors import InvalidValue
from headway.core.gates.spec import MAX_CAPACITY
from headway.core.records import field_names
from headway.core.state import HELD, State
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.paging import check_limit, read_place
from headway.stores.ledger.rows import JobRow, RunRow, TrailRow
from headway.stores.ledger.step import run_error, run_of

NOTES = 100
"""Most lines of the trail shown with a job."""


def _copying(view: type, row: type, *others: str) -> Callable[[object], dict[str, Any]]:
    """Return a function that returns the fields that a row has in common with its view.

    Args:
        others: fields with another meaning in the row.
    """
    same = [name for name in field_names(view) if name in {*field_names(row)} - {*others}]
    values = attrgetter(*same)
    return lambda one: dict(zip(same, values(one), strict=True))


_of_job = _copying(JobView, JobRow, "policy", "worker")
_of_run = _copying(RunView, RunRow)


def read_job(ledger: Ledger, query: JobQuery) -> JobView | None:
    """Return one job with its runs and trail."""
    row = ledger.jobs.load([query.id]).get(query.id)
    if row is None:
        return None
    runs = ledger.jobs.runs([row.id]).get(row.id, [])
    keys = _keys(ledger, [row.id])
    notes = _notes(ledger.trail.page(row.id, None, NOTES))
    return job_view(ledger, row, runs_of(row, runs, keys), notes, shown(ledger, row))


_Keys = Mapping[tuple[str, int], Sequence[str]]
"""Signal keys by job and run."""


def _keys(ledger: Ledger, jobs: Sequence[str]) -> _Keys:
    found: dict[tuple[str, int], list[str]] = {}
    known = ledger.signals.known_as(jobs) if jobs else []
    for key, job, run in sorted(known):
        if key != f"{job}:{run}":
            found.setdefault((job, run), []).append(key)
    return found


def _notes(lines: Sequence[TrailRow]) -> tuple[NoteView, ...]:
    return tuple(
        NoteView(
            at=one.at,
            what=f"{one.verb} {one.detail}".strip(),
            author=one.author,
            reason=one.reason,
        )
        for one in reversed(lines)
    )


def read_jobs(ledger: Ledger, query: JobsQuery) -> Page[JobView]:
    """Return a page of a listing."""
    check_limit(query.limit)
    rows, cursor = _rows(ledger, query)
    ids = [row.id for row in rows] if query.runs else []
    runs = ledger.jobs.runs(ids) if ids else {}
    keys = _keys(ledger, ids)
    traced = [row.id for row in rows] if query.trail else []
    lines = ledger.trail.of_targets(traced, NOTES)
    views = (
        job_view(
            ledger,
            row,
            runs_of(row, runs.get(row.id, []), keys) if query.runs else (),
            _notes(lines.get(row.id, ())),
            str(row.state),
        )
        for row in rows
    )
    return Page(rows=tuple(views), cursor=cursor)


def _rows(ledger: Ledger, query: JobsQuery) -> tuple[list[JobRow], str | None]:
    if query.ids is not None:
        found = ledger.jobs.load(query.ids)
        return [found[one] for one in query.ids if one in found], None
    if query.key is not None:
        place = (query.tenant or "", query.key)
        known = ledger.keys.load([place]).get(place)
        if known is None:
            return [], None
        return [one for one in ledger.jobs.load([known.job]).values() if _fits(one, query)], None
    if query.worker is not None:
        held = [one.id for one in ledger.jobs.held_by(query.worker, query.limit)]
        rows = ledger.jobs.load(held)
        return [rows[one] for one in held if one in rows], None
    return ledger.jobs.page(query)


def _fits(row: JobRow, query: JobsQuery) -> bool:
    """Return whether a job found by its key matches the rest of a query."""
    return (
        query.lane in {None, row.lane}
        and query.kind in {None, row.kind}
        and query.subject in {None, row.subject}
        and (not query.states or row.state in query.states)
    )


def runs_of(row: JobRow, ended: list[RunRow], keys: _Keys) -> tuple[RunView, ...]:
    """Return all runs of a job, including the last, oldest first."""
    runs = list(ended)
    if row.claimed_at is not None:
        runs.append(run_of(row, row.finished_at, row.outcome, run_error(row)))
    return tuple(
        RunView(
            **_of_run(one),
            permits=one.members,
            keys=tuple(keys.get((row.id, one.run), ())),
        )
        for one in runs
    )


def shown(ledger: Ledger, row: JobRow) -> str:
    """Return the displayed state: a waiting job is `ready` if its flow can run, else `blocked`."""
    if row.state is State.PARKED:
        return "blocked"
    if row.state is not State.WAITING:
        return str(row.state)
    cache = GateCache(ledger)
    flow = ledger.jobs.flow(row.flow)
    can_run = all(view.fits(1) for view in cache.implicit_of(flow)) and all(
        cache.view(use).fits(use.amount, row.order) for use in flow.shared
    )
    return "ready" if can_run else "blocked"


def job_view(
    ledger: Ledger,
    row: JobRow,
    runs: tuple[RunView, ...],
    trail: tuple[NoteView, ...],
    as_shown: str,
) -> JobView:
    """Return the view of a row."""
    return JobView(
        **_of_job(row),
        shown=as_shown,
        gates=(*ledger.jobs.flow(row.flow).shared, *row.keyed),
        policy=ledger.jobs.policy(row.policy),
        worker=row.worker if row.state in HELD else None,
        runs=runs,
        trail=trail,
    )


COUNTED = 1_000
"""The waiting jobs of a flow are counted up to this number."""
MOST = 100
"""Most flows on a page, and most jobs listed of each."""
LAST = 2**31 - 1
"""The highest number of a flow."""


def check_flows(query: FlowsQuery) -> int:
    """Return the number of the flow after which the page starts; -1 for the first page.

    Raises:
        InvalidValue: the page is too large, or the cursor belongs to another listing.
    """
    if not (1 <= query.limit <= MOST and 1 <= query.first <= MOST):
        message = f"a page of {query.limit} flows with {query.first} jobs of each is not valid"
        raise InvalidValue(message, hint=f"both numbers must be 1 to {MOST}")
    place = read_place(query.cursor, LAST)
    return -1 if place is None else place


def read_flows(ledger: Ledger, query: FlowsQuery) -> Page[WaitingFlow]:
    """Return a page of flows, by number."""
    after, gate, jobs = check_flows(query), query.gate, ledger.jobs
    rows: list[WaitingFlow] = []
    if gate is None:
        numbers = jobs.flows_waiting(query.lane, after, query.limit)
        counts = jobs.waiting_counts(query.lane, numbers, COUNTED)
        for number in numbers:
            ids = [head.id for head in jobs.heads(number, query.first)]
            rows.append(_view(ledger, number, None, ids, counts.get(number, 0)))
    else:
        rows += _unfit(ledger, gate, query.first) if after < 0 else []
        numbers = jobs.parked_flows(gate, after, query.limit)
        parked = jobs.parked_ids(gate, numbers, query.first)
        rows += [_view(ledger, one, gate, parked[one]) for one in numbers if one in parked]
    more = len(numbers) == query.limit
    return Page(rows=tuple(rows), cursor=str(numbers[-1]) if more else None)


def _unfit(ledger: Ledger, gate: str, limit: int) -> list[WaitingFlow]:
    """Return the first unfit jobs of a gate, by flow."""
    ids = ledger.jobs.unfit_at(gate, MAX_CAPACITY, limit)
    found = ledger.jobs.load(ids)
    flows: dict[int, list[str]] = {}
    for one in ids:
        flows.setdefault(found[one].flow, []).append(one)
    return [_view(ledger, number, gate, some, unfit=True) for number, some in flows.items()]


def _view(
    ledger: Ledger,
    number: int,
    gate: str | None,
    ids: Sequence[str],
    count: int | None = None,
    *,
    unfit: bool = False,
) -> WaitingFlow:
    flow = ledger.jobs.flow(number)
    return WaitingFlow(
        lane=flow.lane,
        tenant=flow.tenant,
        kind=flow.kind,
        shared=flow.shared,
        parked_at=gate,
        unfit=unfit,
        count=len(ids) if count is None else count,
        first=tuple(ids),
    )
