"""`headway job`: one job and its whole record."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.job_facts import RUN_COLUMNS, job_facts, run_row
from headway.cli.session import Session
from headway.contract.views import JobQuery
from headway.core.errors import UnknownJob
from headway.runtime.records import job_record

app = new_command()


@command(app)
def job(session: Session, id: Annotated[str, typer.Argument(help="The job's id.")]) -> None:  # noqa: A002  (the argument's name in the help)
    """Show a job: what it is, its runs, its trail.

    With --json: the fields of `headway export`, with the trail.

    Raises:
        UnknownJob: there is no such job.
    """
    found = session.ask(JobQuery(id=id))
    if found is None:
        message = f"there is no job {id!r}"
        raise UnknownJob(message, hint="headway jobs lists them; final ones are kept for a time")
    if session.json:
        session.terminal.document(job_record(found))
        return
    session.terminal.facts(job_facts(session.clock, found))
    if found.runs:
        session.terminal.line("")
        session.terminal.table(
            RUN_COLUMNS,
            [run_row(session.clock, run) for run in found.runs],
            empty="",
        )
    if found.trail:
        session.terminal.line("")
        session.terminal.table(
            ["AT", "WHAT", "BY", "REASON"],
            [(session.clock.at(n.at), n.what, n.author, n.reason) for n in found.trail],
            empty="",
        )
    lines = found.error.rstrip().splitlines()
    if len(lines) > 1:
        session.terminal.line("")
        for line in lines[1:]:
            session.terminal.line(line, "dim")
