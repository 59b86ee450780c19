"""`headway retry`: a new life for jobs that are dead or cancelled."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from headway.cli.acting import Move, move_jobs
from headway.cli.command import command, new_command
from headway.cli.options import JobFilter, Signed, Yes
from headway.cli.sending import read_object
from headway.cli.session import Session
from headway.contract.operate import Edit, Verb
from headway.core.state import State

app = new_command()


@command(app)
def retry(
    session: Session,
    wanted: JobFilter,
    signed: Signed,
    ids: Annotated[list[str] | None, typer.Argument(help="The jobs' ids.")] = None,
    args: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="New arguments, in place of all the old."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Retry dead or cancelled jobs by id, or all dead ones that fit a filter.

    The job keeps its id and its runs, and has all its attempts again. A filter takes in
    cancelled jobs only with --state cancelled. The exit code is 1 if a job that was named is
    unknown or is neither dead nor cancelled.
    """
    if wanted.state is None:
        wanted = replace(wanted, state=[State.DEAD])
    move = Move(
        verb=Verb.RETRY,
        edit=Edit(args=None if args is None else read_object("--args", args)),
        author=session.author(signed.author),
        reason=signed.reason,
    )
    move_jobs(session, move, ids or [], wanted, yes=yes)
