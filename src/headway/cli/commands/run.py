"""`headway run`: everything that an App needs, in one process."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.logging import configure_logging
from headway.cli.serving import ServeOptions, serve
from headway.cli.session import Session
from headway.cli.status_line import keep_status_line
from headway.cli.tracing import trace_if_asked
from headway.contract.store import Store
from headway.runtime import event_loop
from headway.runtime.worker.worker import Worker

app = new_command()


@command(app)
def run(
    session: Session,
    options: ServeOptions,
    app_name: Annotated[
        str | None,
        typer.Argument(metavar="APP", help="The file or module[:name] of your App."),
    ] = None,
) -> None:
    """Runs an App in one process, with a line that tells what happens; until Ctrl-C.

    It is a worker of all the App's lanes that also does the store's chores: what has to be
    swept, and the fires of the timetable. Any number of workers may run beside it.
    """
    configure_logging(session.settings)
    opened = open_app(session, app_name)
    trace_if_asked(opened, session.settings)

    async def status(store: Store, worker: Worker) -> None:
        del worker
        await keep_status_line(store, session.terminal)

    beside = [status] if session.terminal.live else []
    settled = event_loop.run(serve(opened, options, *beside))
    if session.json:
        session.terminal.document({"settled": settled})
