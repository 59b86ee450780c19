"""`headway resume`: ends a pause."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.completing import complete_target
from headway.cli.defining import define
from headway.cli.options import Signed
from headway.cli.session import Session
from headway.contract.definitions import OpenGate

app = new_command()


@command(app)
def resume(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(
            help="all, lane:NAME, tenant:NAME, kind:NAME, or any gate.",
            autocompletion=complete_target,
        ),
    ],
    signed: Signed,
) -> None:
    """End a pause, by any author; a gate that is not closed stays as it is."""
    define(session, OpenGate(name=target), signed, done=f"{target} is not closed any more")
