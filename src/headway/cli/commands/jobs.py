"""`headway jobs`, `job`, `why`: a filtered list of jobs, one job, and why it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, TypeVar

import typer

from headway.cli.app_file import at_app
from headway.cli.command import command, new_command
from headway.cli.facts import RUN_COLUMNS, WHY_COLUMNS, job_facts, run_row, why_facts, why_gate
from headway.cli.options import PAGE, AppName, JobFilter
from headway.cli.session import CommandSession
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobsQuery, JobView, Page, WhyQuery
from headway.core.errors import InvalidValue, UnknownJob
from headway.runtime.records import job_record, record
from headway.server.finding import ended_since, underway_jobs

app = new_command()

MOST_EMPTY = 40
"""Pages without a job that are passed over; each examines up to 5,000 jobs."""
_COLUMNS = ("ID", "KIND", "LANE", "TENANT", "SUBJECT", "STATE", "DUE", "TRY", "REASON")


@command(app)
def jobs(  # noqa: PLR0913, PLR0917  (one for each option)
    session: CommandSession,
    wanted: JobFilter,
    app_name: AppName = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="Maximum number of rows.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Cursor of the previous page.")] = None,
    newest: Annotated[bool, typer.Option("--newest", help="List the newest jobs first.")] = False,
    worker: Annotated[
        str | None,
        typer.Option(help="Only running and awaiting jobs of this worker; excludes other filters."),
    ] = None,
) -> None:
    """List jobs, oldest first; with --app, jobs in the store of that App.

    Keys and subjects belong to a tenant: without --tenant, only jobs without a tenant match. A page
    reads a limited number of jobs; if the first page has no match, waiting and running jobs are
    also looked up by lane, gate and worker. With --json: {"jobs": [...], "cursor": ...}; the cursor
    is null on the last page, and the fields are those of `headway export`.

    Raises:
        InvalidValue: --worker was combined with another filter.
    """
    if worker is not None and (newest or cursor or wanted != JobFilter()):
        message = (
            "--worker lists what a worker runs or awaits, and cannot be combined with other filters"
        )
        raise InvalidValue(message, hint="keep only --limit")
    if app_name is not None:
        session = at_app(session, app_name)
    query = replace(wanted.query, limit=limit, cursor=cursor, newest=newest, worker=worker)
    page = session.with_store(lambda store: _page(store, query, wanted))
    if not page.rows and page.cursor is None:
        session.notes(session.with_store(wanted.unknown_names))
    session.terminal.listing(
        {"jobs": [job_record(job) for job in page.rows], "cursor": page.cursor},
        _COLUMNS,
        [_row(session, job) for job in page.rows],
        empty="no jobs among those looked at" if page.cursor else "no jobs",
    )
    if page.cursor is not None and not session.json:
        session.terminal.remark(f"there may be more: --cursor {page.cursor}", "dim")


async def _page(store: Store, query: JobsQuery, wanted: JobFilter) -> Page[JobView]:
    since = await wanted.since(store)
    page = await store.read(query)
    begins = query.cursor is None and query.key is None and query.subject is None
    if not page.rows and page.cursor is not None and begins:
        page = replace(page, rows=tuple(await underway_jobs(store, query)))
    rows = [job for job in page.rows if ended_since(job, since)]
    for _ in range(MOST_EMPTY):
        if page.cursor is None or len(rows) == query.limit or (rows and since is None):
            break
        rest = replace(query, cursor=page.cursor, limit=query.limit - len(rows))
        page = await store.read(rest)
        rows += [job for job in page.rows if ended_since(job, since)]
    return replace(page, rows=tuple(rows))


def _row(session: CommandSession, job: JobView) -> list[str]:
    return [
        job.id,
        job.kind,
        job.lane,
        job.tenant,
        job.subject or "",
        job.shown,
        session.clock.at(job.due_at),
        str(job.attempt),
        (job.reason or job.error)[:60],
    ]


Found = TypeVar("Found")


def _existing(found: Found | None, id: str) -> Found:
    if found is None:
        message = f"there is no job {id!r}"
        hint = "headway jobs lists them; final jobs are removed after their retention"
        raise UnknownJob(message, hint=hint)
    return found


job_app = new_command()


@command(job_app)
def job(session: CommandSession, id: Annotated[str, typer.Argument(help="Id of the job.")]) -> None:
    """Show a job with its runs and trail.

    With --json: the fields of `headway export`, including the trail.

    Raises:
        UnknownJob: there is no such job.
    """
    found = _existing(session.ask(JobQuery(id=id)), id)
    if session.json:
        session.terminal.document(job_record(found))
        return
    session.terminal.facts(job_facts(session.clock, found))
    session.terminal.section(RUN_COLUMNS, [run_row(session.clock, run) for run in found.runs])
    session.terminal.section(
        ["AT", "WHAT", "BY", "REASON"],
        [(session.clock.at(n.at), n.what, n.author, n.reason) for n in found.trail],
    )
    lines = found.error.rstrip().splitlines()
    if len(lines) > 1:
        session.terminal.line("")
        for line in lines[1:]:
            session.terminal.line(line, "dim")


why_app = new_command()


@command(why_app)
def why(session: CommandSession, id: Annotated[str, typer.Argument(help="Id of the job.")]) -> None:
    """Explain in one sentence why a job is not running, with the details behind it.

    Raises:
        UnknownJob: there is no such job.
    """
    found = _existing(session.ask(WhyQuery(id=id)), id)
    if session.json:
        session.terminal.document(record(found))
        return
    session.terminal.line(found.sentence, "bold")
    session.terminal.line("")
    session.terminal.facts(why_facts(session.clock, found))
    session.terminal.section(
        WHY_COLUMNS, [why_gate(session.clock, gate, found.now) for gate in found.closed]
    )
