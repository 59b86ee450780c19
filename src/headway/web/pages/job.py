"""One job: why it is in its state, its timeline, its runs, and its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from headway.contract.views import JobQuery, JobsQuery, JobView, RunView
from headway.core.check import is_job_id
from headway.core.job import derived_id
from headway.core.state import FINAL, State
from headway.server.caller import Permission
from headway.server.finding import run_times
from headway.server.visibility import visible_why
from headway.web.page import DashboardPage, PageView, TemplateContext, everyone
from headway.web.pages.jobs import CANCEL, EDIT, RETRY, RETRY_EDITED, RUN_NOW, actions_for, carried
from headway.web.shared_reads import SLOW_S

MOST_RUNS = 25
"""Number of runs shown, from the last."""
LEAST_SHARE = 0.008
"""Minimum share of the bar's width for a span, so that it is visible."""
ASKED = 3
"""Number of reconciling jobs of a run that are looked up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Span:
    """A part of a job's time.

    Attributes:
        what: "waiting", "parked", "running" or "awaiting": the class in the style sheet.
        since: When it started, ms UTC, if it has not ended.
    """

    what: str
    words: str
    ms: int
    since: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A line of the timeline: a run, or the wait for the next.

    Attributes:
        run: The run; None for the wait.
        spans: The parts of its time, in order.
        parts: Classes and shares of a bar, in proportion to the longest row.
    """

    run: RunView | None
    spans: tuple[_Span, ...]
    parts: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        """Text of the bar for screen readers."""
        return ", ".join(f"{one.words} {one.ms} ms" for one in self.spans) or "no time yet"


async def read(view: PageView) -> TemplateContext:
    """Return a job that the caller may see."""
    job, why = await visible_why(view.service, view.caller, view.values["id"])
    rows = timeline(job, why.now)

    async def relatives() -> tuple[list[JobView], JobView | None]:
        return await _follows(view, job), await _cause(view, job)

    known = (job.id, job.run, job.life, job.state, view.caller.tenants, view.caller.lanes)
    follows, cause = await view.reads.cached(("relatives", *known), relatives, SLOW_S)
    return {
        "now": why.now,
        "job": job,
        "why": why,
        "rows": rows,
        "runs": len(job.runs),
        "final": job.state in FINAL,
        "carries": [
            (name, carried(data))
            for name, data in (
                ("Arguments", job.args), ("Progress", job.progress), ("Result", job.result),
            )
            if data is not None
        ],
        "follows": follows,
        "cause": cause,
        "actions": actions_for(job.state),
        "whole": Permission.OBSERVE in view.caller.may and view.caller.sees_all,
    }  # fmt: skip


def timeline(job: JobView, now: int) -> list[_Row]:
    """Return how a job spent its time: one row per run, and one for the current wait.

    Args:
        now: The store's time, ms UTC.
    """
    rows = [_Row(run=run, spans=_of_run(job, run, now)) for run in job.runs[-MOST_RUNS:]]
    if job.state in {State.WAITING, State.PARKED}:
        since = max(job.due_at, job.created_at)
        held = job.state is State.PARKED or job.shown == "blocked"
        what, words = ("parked", "at a gate") if held else ("waiting", "for a worker")
        span = _Span(what=what, words=words, ms=max(0, now - since), since=since)
        rows.append(_Row(run=None, spans=(span,)))
    longest = max((sum(span.ms for span in row.spans) for row in rows), default=0) or 1
    return [replace(row, parts=_parts(row.spans, longest)) for row in rows]


def _parts(spans: Sequence[_Span], longest: int) -> tuple[tuple[str, float], ...]:
    parts = [(one.what, max(one.ms / longest, LEAST_SHARE)) for one in spans]
    # Rounded to steps, so that a growing bar does not change the fragment with every read.
    parts = [(what, round(part * 250) / 250 or LEAST_SHARE) for what, part in parts]
    rest = max(0.0, 1.0 - sum(part for _, part in parts))
    return (*parts, ("ground", rest))


def _of_run(job: JobView, run: RunView, now: int) -> tuple[_Span, ...]:
    times = run_times(job, run, now)
    lives = run.ended_at is None
    running = run.claimed_at if lives and run.handed_at is None else None
    awaiting = run.handed_at if lives else None
    spans = (
        _Span(what="parked", words="at a gate", ms=times.at_gates),
        _Span(what="waiting", words="for a worker", ms=times.for_worker),
        _Span(what="running", words="ran", ms=times.ran, since=running),
        _Span(what="awaiting", words="awaited its end", ms=times.awaited, since=awaiting),
    )
    return tuple(one for one in spans if one.ms or one.since is not None)


def _derived(job: JobView) -> list[str]:
    """Return the possible ids of the jobs that follow from this one."""
    runs = [run.run for run in job.runs[-MOST_RUNS:]]
    found = [derived_id("on_final", job.id, life) for life in range(1, min(job.life, 20) + 1)]
    if job.policy.on_accepted is not None:
        found += [derived_id("on_accepted", job.id, run) for run in runs]
    if job.policy.reconcile is not None:
        found += [derived_id("reconcile", job.id, run, n) for run in runs for n in range(ASKED + 1)]
    return found


async def _follows(view: PageView, job: JobView) -> list[JobView]:
    page = await view.service.store.read(JobsQuery(ids=tuple(_derived(job)), limit=1_000))
    return [one for one in page.rows if view.caller.sees(one)]


async def _cause(view: PageView, job: JobView) -> JobView | None:
    """Return the job that this one follows from, or None.

    The arguments contain its id, and this job's id must be derived from it.
    """
    try:
        args = msgspec.json.decode(job.args, type=dict[str, object])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    id = args.get("job")
    if not isinstance(id, str) or not is_job_id(id):
        return None
    found = await view.service.store.read(JobQuery(id=id))
    if found is None or not view.caller.sees(found) or job.id not in _derived(found):
        return None
    return found


PAGE = DashboardPage(
    path="jobs/{id}",
    title="Job",
    template="job.html",
    fragments=("why", "timeline", "facts"),
    read=read,
    permission=Permission.READ,
    reach=everyone,
    actions=(CANCEL, RETRY, RUN_NOW, EDIT, RETRY_EDITED),
    menu=False,
)
