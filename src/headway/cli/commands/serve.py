"""`headway serve`: the engine over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.directory import SystemNames
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.serving import ServeOptions, for_systems, signal_place, trace_if_asked
from headway.cli.serving import serve as serve_jobs
from headway.cli.session import Session
from headway.core.errors import InvalidValue
from headway.runtime import event_loop

with needs_extra("server"):
    from headway.cli.http_serving import HttpServing
    from headway.cli.server_address import AddressOptions
    from headway.cli.systems import make_systems

app = new_command()


@command(app)
def serve(
    session: Session,
    address: AddressOptions,
    options: ServeOptions,
    app_name: Annotated[
        str | None,
        typer.Option("--app", metavar="APP", help="Makes jobs by the kinds of this App."),
    ] = None,
    system: SystemNames = None,
    work: Annotated[
        bool | None,
        typer.Option(
            "--work/--no-work",
            help="Also runs the App's jobs here; if not given, only those of systems.",
        ),
    ] = None,
) -> None:
    """Serve the HTTP API until SIGTERM or Ctrl-C, and do the store's chores.

    On loopback, and as long as the store has no token, every caller is allowed. Elsewhere it starts
    only with a token, and with TLS or an option that says that the network is private.

    Raises:
        InvalidValue: a worker's options were given without `--work`.
    """
    configure_logging(session.settings)
    opened = open_app(session, app_name)
    systems = make_systems(system or (), session.settings, session.store_url)
    lanes = systems.declare(opened)
    if not (work or (work is None and lanes)) and options != ServeOptions():
        message = "the options of a worker were given, and this server runs no jobs"
        raise InvalidValue(message, hint="give --work too, or leave out --lanes and the others")
    trace_if_asked(opened, session.settings)
    serving = HttpServing(app=opened, systems=systems, address=address, settings=session.settings)
    settled = 0
    if work or (work is None and lanes):
        settled = event_loop.run(
            serve_jobs(
                opened,
                for_systems(options, lanes, whole=bool(work)),
                serving.beside,
                settings=session.settings,
                signals=signal_place(session.settings, address.url),
                around=systems.opened(serving.base_url),
            )
        )
    else:
        event_loop.run(serving.run())
    if session.json:
        session.terminal.document({"settled": settled})
