"""`headway audit`: compares what is counted with what is there."""

from __future__ import annotations

import typer

from headway.cli.audits import whole_audit
from headway.cli.command import command, new_command
from headway.cli.failures import NO
from headway.cli.progress import progress
from headway.cli.session import Session
from headway.runtime.records import record

app = new_command()


@command(app)
def audit(session: Session) -> None:
    """Compare permits with their holders, and count with permits; find nothing, ever.

    It may run at any time and stops no worker. The exit code is 1 if there is a difference,
    which is a bug: please report it with what is printed here.

    Raises:
        Exit: with code 1, there are differences.
    """
    with progress(session.terminal, "audit") as meter:
        found = session.with_store(lambda store: whole_audit(store, meter))
    if session.json:
        session.terminal.document(record(found))
    else:
        looked = f"{found.gates} gates, {found.permits} permits, {found.held} held jobs"
        if found.differences:
            session.terminal.table(
                ["WHERE", "DIFFERENCE"], [(one.where, one.what) for one in found.differences], ""
            )
            session.terminal.remark(f"{len(found.differences)} differences in {looked}", "red")
        else:
            session.terminal.line(f"no difference in {looked}")
    if found.differences:
        raise typer.Exit(NO)
