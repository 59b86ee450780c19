"""`headway serve`, `headway dispenserd`: the engine over HTTP."""

from __future__ import annotations

from typing import Annotated

import structlog
import typer

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.directory import SystemNames
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.options import Port
from headway.cli.serving import ServeOptions, for_systems, signal_place, trace_if_asked
from headway.cli.serving import serve as serve_jobs
from headway.cli.session import Session
from headway.cli.settings import Settings
from headway.core.errors import InvalidValue
from headway.runtime import event_loop
from headway.runtime.app import App

with needs_extra("server"):
    from headway.cli.http_serving import AddressOptions, HttpServing
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


with needs_extra("server"):
    from headway.cli.http_serving import LOOPBACK, allow_many_files, is_loopback
    from headway.server.build import alive
    from headway.server.listener import ListenAddress, Listener
    from headway.server.service import ServerOptions, Service
    from headway.systems.lanes.dispenserd import dispenserd as make_app

dispenserd_app = new_command()

log = structlog.stdlib.get_logger("headway.dispenserd")


@command(dispenserd_app)
def dispenserd(
    session: Session,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The name or address to listen at.")
    ] = "127.0.0.1",
    port: Port = 8282,
    exposed: Annotated[
        bool,
        typer.Option(
            "--exposed",
            help="Beyond loopback: any client of the port may take jobs; there are no tokens.",
        ),
    ] = False,
) -> None:
    """Serve clients of dispenserd as they are, until SIGTERM or Ctrl-C.

    A drop-in: the same routes, bodies and replies, but jobs are kept in the store. Its lanes are
    named dispenserd/LANE there.

    Raises:
        InvalidValue: others could reach it, and that was not asked for.
    """
    configure_logging(session.settings)
    local = is_loopback(host)
    if not local and not exposed:
        message = f"at {host} others could reach the queue, and its clients have no tokens"
        raise InvalidValue(message, hint="give --exposed if the network keeps strangers out")
    hosts = (*LOOPBACK, host) if local else None
    opened = open_app(session, None)
    event_loop.run(_serve(opened, session.settings, ListenAddress(host=host, port=port), hosts))


async def _serve(
    opened: App, settings: Settings, address: ListenAddress, hosts: tuple[str, ...] | None
) -> None:
    allow_many_files()
    await opened.reach(settings.store_wait)
    async with opened:
        service = Service(opened.store, ServerOptions(open_here=True, hosts=hosts))
        listener = Listener(make_app(service), address, on_stop=service.begin_stop)
        event_loop.on_signals(lambda now: listener.stop(now=now))
        async with alive(service):
            service.spawn(_log_start(listener, exposed=hosts is None), "startup log")
            await listener.run()


async def _log_start(listener: Listener, *, exposed: bool) -> None:
    await listener.answers()
    if exposed:
        log.warning("any client that reaches this port may take and add jobs: it asks for no token")
    log.info("dispenserd listens", url=listener.url)
