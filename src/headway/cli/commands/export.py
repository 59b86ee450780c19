"""`headway export`: all jobs with their whole record, as JSON Lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.export_file import output, write_export
from headway.cli.options import JobFilter
from headway.cli.progress import progress
from headway.cli.session import Session

app = new_command()


@command(app)
def export(
    session: Session,
    wanted: JobFilter,
    out: Annotated[
        Path | None, typer.Option(help="The file to make; else standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    trail: Annotated[
        bool, typer.Option(help="With each job's trail of moves, notes and signals.")
    ] = True,
) -> None:
    """Write jobs with their runs and trails as JSON Lines: a header, then one job a line.

    The order is that of arrival. The format is described in docs/reference/export.md; it is the
    same with and without --json. Each page of a thousand jobs is a snapshot, so what runs
    meanwhile is shown as it was when its page was read; every job is written once.
    """
    with output(out, force=force) as write, progress(session.terminal, "export jobs") as meter:
        count = session.with_store(
            lambda store: write_export(store, wanted, write, meter, trail=trail)
        )
    if out is not None:
        session.terminal.remark(f"{count} jobs written to {out}")
