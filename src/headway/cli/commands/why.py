"""`headway why`: why a job stands where it stands."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.job_facts import WHY_COLUMNS, why_facts, why_gate
from headway.cli.session import Session
from headway.contract.views import WhyQuery
from headway.core.errors import UnknownJob
from headway.runtime.records import record

app = new_command()


@command(app)
def why(session: Session, id: Annotated[str, typer.Argument(help="The job's id.")]) -> None:  # noqa: A002  (the argument's name in the help)
    """Says in one sentence why a job is not running, and the facts behind it.

    Raises:
        UnknownJob: there is no such job.
    """
    found = session.ask(WhyQuery(id=id))
    if found is None:
        message = f"there is no job {id!r}"
        raise UnknownJob(message, hint="headway jobs lists them; final ones are kept for a time")
    if session.json:
        session.terminal.document(record(found))
        return
    session.terminal.line(found.sentence, "bold")
    session.terminal.line("")
    session.terminal.facts(why_facts(session.clock, found))
    if found.closed:
        session.terminal.line("")
        session.terminal.table(
            WHY_COLUMNS,
            [why_gate(session.clock, gate, found.now) for gate in found.closed],
            empty="",
        )
