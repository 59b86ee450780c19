"""`headway run`: everything that an App needs, in one process."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.progress import keep_status_line
from headway.cli.serving import Beside, ServeOptions, serve, signal_place, trace_if_asked
from headway.cli.session import Session
from headway.contract.store import Store
from headway.runtime import event_loop
from headway.runtime.app import App
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
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Also serves the HTTP API, at this port of loopback."),
    ] = None,
) -> None:
    """Run an App in one process, with a status line; until Ctrl-C.

    It is a worker of all the App's lanes that also does the store's chores: what has to be
    swept, and the fires of the timetable. Any number of workers may run beside it.
    """
    configure_logging(session.settings)
    opened = open_app(session, app_name)
    trace_if_asked(opened, session.settings)

    async def status(store: Store, worker: Worker) -> None:
        del worker
        await keep_status_line(store, session.terminal)

    beside: list[Beside] = [status] if session.terminal.live else []
    signals = signal_place(session.settings)
    if port is not None:
        server, url = _server(session, opened, port)
        beside.append(server)
        signals = signal_place(session.settings, url)
    work = serve(opened, options, *beside, settings=session.settings, signals=signals)
    settled = event_loop.run(work)
    if session.json:
        session.terminal.document({"settled": settled})


def _server(session: Session, opened: App, port: int) -> tuple[Beside, str | None]:
    """What serves beside the worker, and where; loaded now, for it needs an extra."""
    with needs_extra("server"):
        from headway.cli.http_serving import HttpServing  # noqa: PLC0415  (not before it is asked)
        from headway.cli.server_address import AddressOptions  # noqa: PLC0415  (see above)
    address = AddressOptions(port=port)
    return HttpServing(app=opened, address=address, settings=session.settings).beside, address.url
