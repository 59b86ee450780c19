"""`headway audit`: compares what is counted with what is there."""

from __future__ import annotations

import typer

from headway.cli.command import command, new_command
from headway.cli.exits import NO
from headway.cli.progress import Meter, progress
from headway.cli.records import record
from headway.cli.session import Session
from headway.contract.store import Store
from headway.contract.views import AuditQuery, AuditView, Difference

app = new_command()


@command(app)
def audit(session: Session) -> None:
    """Compares permits with their holders, and counts with permits; finds nothing, ever.

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


async def whole_audit(store: Store, meter: Meter) -> AuditView:
    """Audits everything, page after page.

    Args:
        store: which store.
        meter: told how many gates were looked at.

    Returns:
        All differences, and the sums of what was looked at.
    """
    differences: list[Difference] = []
    gates = permits = held = 0
    cursor: str | None = None
    while True:
        page = await store.read(AuditQuery(cursor=cursor))
        differences += page.differences
        gates, permits, held = gates + page.gates, permits + page.permits, held + page.held
        meter(gates)
        cursor = page.cursor
        if cursor is None:
            break
    return AuditView(differences=tuple(differences), gates=gates, permits=permits, held=held)
