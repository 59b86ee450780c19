"""`headway serve`, `headway dispenserd`: the engine over HTTP."""

from __future__ import annotations

from typing import Annotated

import structlog
import typer

from headway.cli.app_file import open_app, require_app
from headway.cli.command import command, new_command
from headway.cli.directory import SystemNames
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.options import HostOption, KindsApp, PortOption
from headway.cli.serving import ServeOptions, for_systems, trace_if_enabled
from headway.cli.serving import serve as serve_jobs
from headway.cli.session import CommandSession
from headway.cli.settings import Settings
from headway.core.errors import InvalidValue
from headway.runtime import event_loop
from headway.runtime.app import App

with needs_extra("server"):
    from headway.cli.http_serving import (
        LOOPBACK,
        AddressOptions,
        HttpServing,
        allow_many_files,
        is_loopback,
    )
    from headway.cli.systems import make_systems
    from headway.server.build import alive
    from headway.server.listener import ListenAddress, Listener
    from headway.server.service import ServerOptions, Service
    from headway.systems.lanes.dispenserd import dispenserd as make_app

app = new_command()


@command(app)
def serve(
    session: CommandSession,
    address: AddressOptions,
    options: ServeOptions,
    app_name: KindsApp = None,
    system: SystemNames = None,
    work: Annotated[
        bool | None,
        typer.Option(
            "--work/--no-work",
            help="Also run the App's jobs in this process. By default only jobs of systems run.",
        ),
    ] = None,
) -> None:
    """Serve the HTTP API and do the store's maintenance, until SIGTERM or Ctrl-C.

    On loopback, all callers are allowed until the store has a token. On any other address it
    requires a token, and either TLS or --plain-http.

    Raises:
        InvalidValue: worker options were passed, but the server runs no jobs.
    """
    configure_logging(session.settings)
    if work:
        require_app(session, app_name)
    opened = open_app(session, app_name)
    systems = make_systems(system or (), session.settings, session.store_url)
    lanes = systems.declare(opened)
    if not (work or (work is None and lanes)) and options != ServeOptions():
        message = "worker options were passed, but this server runs no jobs"
        raise InvalidValue(message, hint="add --work, or omit --lanes and the other worker options")
    trace_if_enabled(opened, session.settings)
    serving = HttpServing(app=opened, systems=systems, address=address, settings=session.settings)
    settled = 0
    if work or (work is None and lanes):
        settled = event_loop.run(
            serve_jobs(
                opened,
                for_systems(options, lanes, whole=bool(work)),
                serving.beside,
                settings=session.settings,
                server_url=address.url,
                around=systems.opened(serving.base_url),
            )
        )
    else:
        event_loop.run(serving.run())
    if session.json:
        session.terminal.document({"settled": settled})


dispenserd_app = new_command()

log = structlog.stdlib.get_logger("headway.dispenserd")


@command(dispenserd_app)
def dispenserd(
    session: CommandSession,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8282,
    exposed: Annotated[
        bool,
        typer.Option(
            "--exposed",
            help="Allow an address beyond loopback. There are no tokens: any client may take jobs.",
        ),
    ] = False,
) -> None:
    """Serve unmodified dispenserd clients, until SIGTERM or Ctrl-C.

    A drop-in replacement: the same routes, bodies and replies, but jobs are kept in the store, in
    lanes named dispenserd/LANE.

    Raises:
        InvalidValue: the address is beyond loopback, and --exposed was not passed.
    """
    configure_logging(session.settings)
    local = is_loopback(host)
    if not local and not exposed:
        message = (
            f"on {host} the queue would be reachable by others, and its clients have no tokens"
        )
        raise InvalidValue(message, hint="pass --exposed if the network is private")
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
        log.warning("any client that can reach this port can take and add jobs without a token")
    log.info("dispenserd listens", url=listener.url)
