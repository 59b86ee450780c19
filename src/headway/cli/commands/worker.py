"""`headway worker`, `headway run`: claim jobs and run their handlers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import structlog
import typer
from typer.core import TyperCommand

from headway.cli.app_file import open_app, require_app
from headway.cli.command import command, new_command
from headway.cli.directory import complete_system
from headway.cli.extras import needs_extra
from headway.cli.failures import CALLER, DONE
from headway.cli.logging import configure_logging
from headway.cli.progress import Meter, keep_status_line, progress, silent
from headway.cli.serving import (
    Beside,
    Drain,
    ServeOptions,
    for_systems,
    serve,
    trace_if_enabled,
    wait_until_drained,
)
from headway.cli.session import CommandSession
from headway.contract.store import Store
from headway.runtime import event_loop
from headway.runtime.app import App
from headway.runtime.timing import REAL
from headway.runtime.worker.worker import Worker

TETHER = "--tether"
"""Hidden option that passes a child the read end of a pipe, which closes when its parent exits."""

_HEALTHY_S = 10.0
_LONGEST_S = 30.0
_SHORTEST_S = 0.2

log = structlog.stdlib.get_logger("headway.processes")


class _Processes:
    """Child processes that run the same command.

    Args:
        arguments: Arguments of each child, without the program's name.
        drain: Whether a child that exits with 0 has done its work and is not restarted.
    """

    def __init__(self, arguments: Sequence[str], *, count: int, drain: bool) -> None:
        self._arguments = list(arguments)
        self._count = count
        self._drain = drain
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._wrong: int | None = None
        self.restarts = 0

    async def run(self) -> int:
        """Run until stopped by a signal, or until all children have drained.

        Each SIGTERM and SIGINT is passed on to the children as SIGTERM.

        Returns:
            0, or the exit code of a child that found the call invalid.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        read_end, write_end = os.pipe()
        try:
            await asyncio.gather(*(self._keep(place, read_end) for place in range(self._count)))
        finally:
            os.close(read_end)
            os.close(write_end)
        return DONE if self._wrong is None else self._wrong

    def _stop(self) -> None:
        self._stopping.set()
        for child in self._children.values():
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)

    async def _keep(self, place: int, tether: int) -> None:
        pause_s = _SHORTEST_S
        while not self._stopping.is_set():
            started = REAL.monotonic()
            code = await self._once(place, tether)
            if self._stopping.is_set() or (code == DONE and self._drain):
                return
            if code == CALLER:
                self._wrong = code
                self._stop()
                return
            lived_s = REAL.monotonic() - started
            pause_s = _SHORTEST_S if lived_s > _HEALTHY_S else min(pause_s * 2, _LONGEST_S)
            pid = self._children[place].pid
            log.warning("worker process died", pid=pid, code=code, again_in_s=pause_s)
            self.restarts += 1
            await REAL.wait(self._stopping, pause_s)

    async def _once(self, place: int, tether: int) -> int:
        # In a separate session, so that Ctrl-C reaches the children only through this process.
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headway",
            self._arguments[0],
            f"{TETHER}={tether}",
            *self._arguments[1:],
            pass_fds=(tether,),
            start_new_session=True,
        )
        self._children[place] = child
        if self._stopping.is_set():
            child.send_signal(signal.SIGTERM)
        return await child.wait()


run_app = new_command()

AppFile = Annotated[
    str | None, typer.Argument(metavar="APP", help="Your App: a file, or module[:name].")
]


@command(run_app)
def run(
    session: CommandSession,
    options: ServeOptions,
    app_name: AppFile = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Also serve the HTTP API on this loopback port."),
    ] = None,
) -> None:
    """Run an App in one process, with a status line, until Ctrl-C.

    It serves all lanes of the App and does the store's maintenance: sweeps and timetable fires.
    Any number of other workers may run at the same time.
    """
    configure_logging(session.settings)
    require_app(session, app_name)
    opened = open_app(session, app_name)
    trace_if_enabled(opened, session.settings)

    async def status(store: Store, worker: Worker) -> None:
        del worker
        await keep_status_line(store, session.terminal)

    beside: list[Beside] = [status] if session.terminal.live else []
    url = None
    if port is not None:
        server, url = _server(session, opened, port)
        beside.append(server)
    work = serve(opened, options, *beside, settings=session.settings, server_url=url)
    settled = event_loop.run(work)
    if session.json:
        session.terminal.document({"settled": settled})


def _server(session: CommandSession, opened: App, port: int) -> tuple[Beside, str | None]:
    """Return a server to run alongside the worker, and its URL."""
    with needs_extra("server"):
        from headway.cli.http_serving import AddressOptions, HttpServing  # noqa: PLC0415
    address = AddressOptions(port=port)
    return HttpServing(app=opened, address=address, settings=session.settings).beside, address.url


app = new_command()


class _WorkerCommand(TyperCommand):
    """Lets `--drain` be passed without a value, which means all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (typer's own context type is private)
        """Parse the arguments."""
        whole = ["--drain=all" if one == "--drain" else one for one in args]
        return super().parse_args(ctx, whole)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkOptions:
    """Options of the command that are not those of a worker."""

    processes: Annotated[
        int,
        typer.Option(
            min=1, max=256, help="Number of worker processes; one that dies is restarted."
        ),
    ] = 1
    drain: Annotated[
        Drain | None,
        typer.Option(
            metavar="[=due|=idle]",
            help="Exit once all jobs in the lanes are final. =due ignores jobs that are not due "
            "yet; =idle exits as soon as no job can start, even if jobs wait at gates.",
        ),
    ] = None
    system: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also run the jobs of a built-in system; repeatable.",
            autocompletion=complete_system,
        ),
    ] = None
    tether: Annotated[int | None, typer.Option(TETHER, hidden=True)] = None


@command(app, cls=_WorkerCommand)
def worker(
    session: CommandSession,
    options: ServeOptions,
    what: WorkOptions,
    app_name: AppFile = None,
) -> None:
    """Claim jobs from its lanes and run them, until SIGTERM or Ctrl-C.

    The first signal stops claiming, lets handlers finish and returns jobs that have not started.
    The second stops waiting for handlers; the third kills the process at once, even with a handler
    in a thread.

    Raises:
        Exit: with the exit code of a process that could not start.
    """
    configure_logging(session.settings)
    if not what.system:
        require_app(session, app_name)
    if what.processes > 1:
        children = _Processes(
            _child(session, options, app_name, what),
            count=what.processes,
            drain=what.drain is not None,
        )
        code = event_loop.run(children.run())
        if session.json:
            session.terminal.document({"processes": what.processes, "restarts": children.restarts})
        raise typer.Exit(code)
    opened = open_app(session, app_name)
    around, options = _with_systems(
        session,
        opened,
        options,
        what.system or (),
        whole=bool(app_name or session.settings.app),
    )
    trace_if_enabled(opened, session.settings)
    serving = partial(
        serve,
        opened,
        options,
        settings=session.settings,
        tether=what.tether,
        around=around,
    )
    if what.drain is None or what.drain is Drain.IDLE:
        settled = event_loop.run(serving(until_idle=what.drain is Drain.IDLE))
    else:
        # One of several processes shows no progress: their bars would overwrite each other.
        watched = (
            progress(session.terminal, "drain") if what.tether is None else nullcontext(silent)
        )
        with watched as meter:
            settled = event_loop.run(serving(_drainer(opened, what.drain, meter)))
    if session.json:
        session.terminal.document({"settled": settled})


def _with_systems(
    session: CommandSession, app: App, options: ServeOptions, names: Sequence[str], *, whole: bool
) -> tuple[AbstractAsyncContextManager[None] | None, ServeOptions]:
    """Add the kinds of systems to an app.

    Args:
        whole: Whether the App's own jobs are run as well.

    Returns:
        The context to keep open while the worker runs, and the worker's options.
    """
    if not names:
        return None, options
    with needs_extra("systems"):
        from headway.cli.systems import make_systems  # noqa: PLC0415

    systems = make_systems(names, session.settings, session.store_url)
    lanes = systems.declare(app)
    around = systems.opened(session.settings.public_url)
    return around, for_systems(options, lanes, whole=whole)


def _drainer(app: App, drain: Drain, meter: Meter) -> Beside:
    async def drained(store: Store, worker: Worker) -> None:
        # Jobs that so far exist only in the sources count as well.
        await app.scan_sources()
        lanes = [lane for lane, _ in worker.settings.lanes]
        await wait_until_drained(store, lanes, drain, meter)

    return drained


def _child(
    session: CommandSession, options: ServeOptions, app_name: str | None, what: WorkOptions
) -> list[str]:
    systems = (f"--system={name}" for name in what.system or ())
    line = ["worker", *options.for_child(), *systems]
    if session.named_store is not None:
        line.append(f"--store={session.named_store}")
    if what.drain is not None:
        line.append(f"--drain={what.drain.value}")
    if app_name is not None:
        line += ["--", app_name]
    return line
