"""`headway pause`: nothing more passes a gate."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.completing import complete_target
from headway.cli.defining import close
from headway.cli.options import Signed, Until
from headway.cli.session import Session

app = new_command()


@command(app)
def pause(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(
            help="all, lane:NAME, tenant:NAME, kind:NAME, or any gate.",
            autocompletion=complete_target,
        ),
    ],
    signed: Signed,
    until: Until = None,
) -> None:
    """Stop what passes a gate: everything, a lane, a tenant, a kind, or any gate.

    It reaches what already waits, and stops no job that runs. `headway pause all` is the kill
    switch. `headway resume` ends it.
    """
    close(session, target, until=until, signed=signed)
