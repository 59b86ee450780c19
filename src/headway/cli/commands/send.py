"""`headway send`: makes jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.completing import complete_kind
from headway.cli.options import AppName
from headway.cli.progress import progress
from headway.cli.sending import SendOptions, Sent, kind_job, plain_job, read_pairs, send_jobs
from headway.cli.session import Session
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.errors import InvalidValue
from headway.core.job import NewJob
from headway.core.moment import optional_moment

app = new_command()


@command(app)
def send(
    session: Session,
    kind: Annotated[str, typer.Argument(help="The job's kind.", autocompletion=complete_kind)],
    options: SendOptions,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="JSON where it is JSON, else text."),
    ] = None,
    app_name: AppName = None,
    count: Annotated[int, typer.Option(min=1, help="Make so many of them.")] = 1,
) -> None:
    """Make a job, or many of the same, and print its id.

    With --app, the arguments are checked against the handler, and the job gets its kind's gates
    and policy. Without, they are taken as they are and the job has no gates; the kind `noop`
    does nothing and needs no App.

    With --json: {"jobs": [{"id", "created"}], "created": n}; of many, the first thousand.

    Raises:
        InvalidValue: an option is unusable, or a key is given for many.
    """
    if options.key is not None and count > 1:
        message = f"--key makes one job, and --count asks for {count}"
        raise InvalidValue(message, hint="leave one of them out")
    with_app = app_name is not None or session.settings.app is not None
    opened = open_app(session, app_name) if with_app else None
    texts = read_pairs(arguments or [])
    due = optional_moment("--due", options.due)

    async def into(store: Store) -> Sent:
        now = (await store.read(StatsQuery())).now
        due_at = None if due is None else due.resolved(now)

        def make() -> NewJob:
            if opened is not None:
                return kind_job(opened, kind, texts, options, due_at)
            return plain_job(kind, texts, options, due_at, now)

        return await send_jobs(store, make, count, meter)

    with progress(session.terminal, "send jobs", count) as meter:
        if opened is None:
            sent = session.with_store(into, make=True)
        else:
            sent = session.with_app(opened, into)
    _print_sent(session, sent)


def _print_sent(session: Session, sent: Sent) -> None:
    if session.json:
        jobs = [{"id": one.id, "created": one.created} for one in sent.replies]
        session.terminal.document({"jobs": jobs, "created": sent.created})
    elif len(sent.replies) == 1:
        session.terminal.line(sent.replies[0].id)
        if not sent.created:
            session.terminal.remark("this key has a job already", "dim")
    else:
        session.terminal.line(f"{sent.created} jobs sent")
