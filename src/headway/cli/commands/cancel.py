"""`headway cancel`: cancel jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from headway.cli.acting import Move, move_jobs
from headway.cli.command import command, new_command
from headway.cli.options import JobFilter, Signed, Yes
from headway.cli.session import Session
from headway.contract.operate import Edit, Verb
from headway.core.state import FINAL, State

app = new_command()


@command(app)
def cancel(
    session: Session,
    wanted: JobFilter,
    signed: Signed,
    ids: Annotated[list[str] | None, typer.Argument(help="The jobs' ids.")] = None,
    yes: Yes = False,
) -> None:
    """Cancel jobs by id, or all that fit a filter and are not final.

    A queued job is cancelled at once. A running or awaiting one: its worker is notified, and it
    ends cancelled when its run or its deadline ends. The exit code is 1 if a job that was
    named is unknown or final.
    """
    if wanted.state is None:
        wanted = replace(wanted, state=[state for state in State if state not in FINAL])
    move = Move(
        verb=Verb.CANCEL, edit=Edit(), author=session.author(signed.author), reason=signed.reason
    )
    move_jobs(session, move, ids or [], wanted, yes=yes)
