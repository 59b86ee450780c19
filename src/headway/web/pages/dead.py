"""Dead jobs, grouped by error; retrying one, many, or all that match a filter."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from headway.contract.views import JobView
from headway.core.errors import InvalidValue
from headway.core.hidden import hidden_text
from headway.core.state import State
from headway.server.caller import Permission
from headway.server.paging import check_number_cursor
from headway.server.routes import moves as routes
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
from headway.web.pages.jobs import FILTERED_S, RETRY, find_jobs, query_of

SAMPLE = 500
"""Number of newest dead jobs that are grouped."""
MOST_READS = 3
"""Maximum reads for one sample."""
ROWS = 50
"""Jobs of a group that are shown."""
AT_ONCE = 100
"""Maximum jobs of a group that one button retries: its URL contains their ids."""
COUNTED = 1_000
"""Maximum jobs that are counted for a filter before they are retried."""
LONGEST = 240
"""Characters of an error that are compared for grouping."""
FILTERS = ("lane", "kind", "tenant")

_VARIES = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]+"), "<address>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
)
"""Patterns of what varies between errors of the same cause, and their placeholders."""


@dataclass(slots=True)
class Group:
    """Dead jobs with the same error.

    Attributes:
        error: The error, with placeholders for what varies.
        digest: Digest of the error, for the page's URL.
        jobs: Those of the sample, newest first.
    """

    error: str
    digest: str
    jobs: list[JobView] = field(default_factory=list[JobView])

    @property
    def kinds(self) -> list[str]:
        """Their kinds, most frequent first."""
        return [one for one, _ in Counter(job.kind for job in self.jobs).most_common()]

    @property
    def lanes(self) -> list[str]:
        """Their lanes, most frequent first."""
        return [one for one, _ in Counter(job.lane for job in self.jobs).most_common()]

    @property
    def newest_at(self) -> int | None:
        """When the last of them died, ms UTC."""
        return max((one.finished_at or 0 for one in self.jobs), default=None)


def error_of(job: JobView) -> str:
    """Return the error that a job died of, in one line, with placeholders for what varies.

    The last line of a traceback has the exception; a job that died without an error has only a
    reason.
    """
    text = job.error.strip() or job.reason.strip()
    line = text.splitlines()[-1].strip() if text else "no reason is known"
    return _without_what_varies(line[:LONGEST])


@lru_cache(4 * SAMPLE)
def _without_what_varies(line: str) -> str:
    line = hidden_text(line)
    for pattern, instead in _VARIES:
        line = pattern.sub(instead, line)
    return line


def group(jobs: Iterable[JobView]) -> list[Group]:
    """Group dead jobs by error, largest group first."""
    found: dict[str, Group] = {}
    for job in jobs:
        error = error_of(job)
        if error not in found:
            found[error] = Group(error, hashlib.sha256(error.encode()).hexdigest()[:12])
        found[error].jobs.append(job)
    return sorted(found.values(), key=lambda one: -len(one.jobs))


async def read(view: PageView) -> TemplateContext:
    """Return the newest dead jobs that the caller may see, grouped, and the selected group."""
    given = view.values
    query = replace(
        query_of(view, (State.DEAD,)),
        newest=True,
        cursor=check_number_cursor(given["cursor"] or None),
        limit=SAMPLE,
    )
    page = await find_jobs(view, query, MOST_READS)

    async def grouped() -> list[Group]:
        return group(one for one in page.rows if view.caller.sees(one))

    seen_by = (view.caller.tenants, view.caller.lanes)
    groups = await view.reads.cached(("dead", query, *seen_by), grouped, FILTERED_S)
    seen = sum(len(one.jobs) for one in groups)
    chosen = next((one for one in groups if one.digest == given["error"]), None)
    return {
        "groups": groups,
        "chosen": chosen,
        "rows": chosen.jobs[:ROWS] if chosen else [],
        "ids": ",".join(one.id for one in chosen.jobs[:AT_ONCE]) if chosen else "",
        "seen": seen,
        "more": page.cursor is not None,
        "cursor": page.cursor,
        "total": await _total(view),
        "at_once": AT_ONCE,
        "tenant": query.tenant or "",
        "kept": {one: given[one] for one in FILTERS if given[one]},
        "filter": {**dict.fromkeys(FILTERS, ""), **_filter(given), "tenant": query.tenant or ""},
    }


async def _total(view: PageView) -> int | None:
    """Return the number of dead jobs, in total or in a lane; None if the store does not count them.

    The store has no counts by kind or tenant.
    """
    caller, given = view.caller, view.values
    if Permission.OBSERVE not in caller.may or caller.tenants is not None:
        return None
    if given["kind"] or given["tenant"]:
        return None
    seen = await view.reads.overview()
    if given["lane"]:
        return next((n.counts.get("dead", 0) for n in seen.lanes if n.name == given["lane"]), 0)
    return seen.stats.counts.get("dead", 0) if caller.lanes is None else None


def _filter(values: FormValues) -> dict[str, str]:
    return {one: values[one] for one in FILTERS if values.get(one)}


def _ids(values: FormValues) -> Sequence[str]:
    return [one for one in values.get("ids", "").split(",") if one]


async def _counted(view: PageView) -> FormValues:
    if not (ids := _ids(view.values)):
        message = "no job is selected"
        raise InvalidValue(message, hint="go back, and select the jobs to retry")
    return {"count": str(len(ids))}


async def _fitting(view: PageView) -> FormValues:
    """Return the number of dead jobs that match the filter, after a bounded number of reads."""
    query = replace(query_of(view, (State.DEAD,)), limit=COUNTED)
    page = await find_jobs(view, query, MOST_READS)
    fits = sum(map(view.caller.sees, page.rows))
    what = ", ".join(f"{name} {value}" for name, value in _filter(view.values).items())
    count = f"the first {fits}" if page.cursor is not None else f"all {fits}"
    return {"limit": str(fits or 1), "count": count, "what": what or "any"}


CHOSEN = Action(
    name="retry-jobs",
    label="Retry these",
    title="Retry {count} dead jobs",
    explains="Runs each job again, with all its attempts. Jobs that are no longer dead stay as "
    "they are.",
    endpoint=routes.move_jobs,
    call=lambda values: RouteCall(body={"verb": "retry", "ids": _ids(values)}),
    done="{done} retried, {refused} no longer dead, {unknown} not found.",
    of=("ids",),
    fields=(REASON,),
    prefill=_counted,
)
ALL = Action(
    name="retry-all-dead",
    label="Retry all",
    title="Retry {count} dead jobs of {what}",
    explains="Runs each job again, with all its attempts, oldest arrivals first.",
    endpoint=routes.move_jobs,
    call=lambda values: RouteCall(
        body={
            "verb": "retry",
            "filter": _filter(values),
            "limit": int_of(values, "limit"),
        }
    ),
    done="{done} retried, {refused} no longer dead.",
    of=FILTERS,
    fields=(
        Field(
            name="limit",
            label="At most",
            kind="number",
            required=True,
            hint="Defaults to the number found; at most 10,000.",
        ),
        REASON,
    ),
    prefill=_fitting,
    danger=True,
)

PAGE = DashboardPage(
    path="dead",
    title="Dead",
    template="dead.html",
    fragments=("dead",),
    read=read,
    permission=Permission.READ,
    reach=everyone,
    params=(*FILTERS, "error", "cursor"),
    actions=(RETRY, CHOSEN, ALL),
)
