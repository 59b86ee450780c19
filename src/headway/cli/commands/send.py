"""`headway send`: makes jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.named_values import read_pairs
from headway.cli.options import AppName
from headway.cli.session import Session
from headway.core.errors import InvalidValue
from headway.core.job import MAX_PRIORITY

app = new_command()

_LISTED = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SendOptions:
    """What is said of a job beside its arguments."""

    due: Annotated[
        str | None,
        typer.Option(help='When: "20m" from now, or an instant with its offset; else now.'),
    ] = None
    lane: Annotated[
        str | None, typer.Option(help="Where it waits; else as its kind says, or main.")
    ] = None
    priority: Annotated[
        int | None, typer.Option(min=0, max=MAX_PRIORITY, help="Smaller first; 512 is usual.")
    ] = None
    tenant: Annotated[str | None, typer.Option(help="For whom it is.")] = None
    subject: Annotated[str | None, typer.Option(help="What it is about.")] = None
    key: Annotated[
        str | None, typer.Option(help="Makes one job, however often it is sent with this key.")
    ] = None
    expires: Annotated[
        str | None, typer.Option(help='How long after it is due it may still start, as "1h".')
    ] = None


@command(app)
def send(
    session: Session,
    kind: Annotated[str, typer.Argument(help="The job's kind.")],
    options: SendOptions,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="JSON where it is JSON, else text."),
    ] = None,
    app_name: AppName = None,
    count: Annotated[int, typer.Option(min=1, help="Make so many of them.")] = 1,
) -> None:
    """Makes a job, or many of the same.

    With --app, the arguments are checked against the handler and the job gets its kind's gates
    and policy. Without, they are taken as they are and the job has no gates; the kind `noop`
    does nothing and needs no App.

    With --json: {"jobs": [{"id", "created"}, ...], "created": n}; of many, the first thousand.

    Raises:
        InvalidValue: an option is unusable, or a key is given for many.
    """
    if options.key is not None and count > 1:
        message = f"--key makes one job, and --count asks for {count}"
        raise InvalidValue(message, hint="leave one of them out")
    values = read_pairs(arguments or [])
    sent, created = _send(session, kind, values, options, app_name, count)
    if session.json:
        jobs = [{"id": one.id, "created": one.created} for one in sent]
        session.terminal.document({"jobs": jobs, "created": created})
    elif count == 1:
        session.terminal.line(sent[0].id)
        if not sent[0].created:
            session.terminal.remark("this key has a job already", "dim")
    else:
        session.terminal.line(f"{created} jobs sent")
