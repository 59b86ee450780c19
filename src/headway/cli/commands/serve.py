"""`headway serve`: the engine over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.serving import ServeOptions, signal_place
from headway.cli.serving import serve as serve_jobs
from headway.cli.session import Session
from headway.cli.tracing import trace_if_asked
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
    system: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A ready-made system, such as lanes; repeatable."),
    ] = None,
    work: Annotated[
        bool, typer.Option("--work", help="Also runs the App's jobs, in the same process.")
    ] = False,
) -> None:
    """Serves the HTTP API until SIGTERM or Ctrl-C, and does the store's chores.

    On loopback, and as long as the store has no token, anybody may call. Anywhere else it starts
    only when there is a token, and with TLS, or told that something else keeps it private.

    Raises:
        InvalidValue: a worker's options were given without `--work`.
    """
    if not work and options != ServeOptions():
        message = "the options of a worker were given, and this server runs no jobs"
        raise InvalidValue(message, hint="give --work too, or leave out --lanes and the like")
    configure_logging(session.settings)
    opened = open_app(session, app_name)
    trace_if_asked(opened, session.settings)
    serving = HttpServing(
        app=opened,
        systems=make_systems(system or (), session.settings),
        address=address,
        settings=session.settings,
    )
    settled = 0
    if work:
        signals = signal_place(session.settings, address.url)
        settled = event_loop.run(serve_jobs(opened, options, serving.beside, signals=signals))
    else:
        event_loop.run(serving.run())
    if session.json:
        session.terminal.document({"settled": settled})
