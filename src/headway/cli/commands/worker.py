"""`headway worker`: claims jobs and runs them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.directory import complete_system
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.processes import TETHER, Processes
from headway.cli.progress import Meter, progress, silent
from headway.cli.serving import (
    Beside,
    Drain,
    ServeOptions,
    for_systems,
    serve,
    signal_place,
    trace_if_asked,
    wait_until_drained,
)
from headway.cli.session import Session
from headway.contract.store import Store
from headway.runtime import event_loop
from headway.runtime.app import App
from headway.runtime.worker.worker import Worker

app = new_command()


class _WorkerCommand(TyperCommand):
    """Lets `--drain` stand alone: it then means all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (typer's own context type is private)
        """Read the arguments."""
        whole = ["--drain=all" if one == "--drain" else one for one in args]
        return super().parse_args(ctx, whole)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkOptions:
    """What is run, and by how many."""

    processes: Annotated[
        int, typer.Option(min=1, max=256, help="So many worker processes; what dies is restarted.")
    ] = 1
    drain: Annotated[
        Drain | None,
        typer.Option(
            metavar="[=due]",
            help="End when the lanes hold no job that is not final; =due passes over what is "
            "not due yet.",
        ),
    ] = None
    system: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Runs the jobs of a ready-made system; repeatable.",
            autocompletion=complete_system,
        ),
    ] = None
    tether: Annotated[int | None, typer.Option(TETHER, hidden=True)] = None


@command(app, cls=_WorkerCommand)
def worker(
    session: Session,
    options: ServeOptions,
    what: WorkOptions,
    app_name: Annotated[
        str | None,
        typer.Argument(metavar="APP", help="The file or module[:name] of your App."),
    ] = None,
) -> None:
    """Claim jobs of its lanes and run them, until SIGTERM or Ctrl-C.

    The first signal stops claiming, lets handlers end and hands back what was not started; a
    second one does not wait for handlers. Without an App, only jobs of the kind `noop` can run.

    Raises:
        Exit: with the exit code of a process that could not begin.
    """
    configure_logging(session.settings)
    if what.processes > 1:
        children = Processes(
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
    trace_if_asked(opened, session.settings)
    serving = partial(
        serve,
        opened,
        options,
        settings=session.settings,
        tether=what.tether,
        signals=signal_place(session.settings),
        around=around,
    )
    if what.drain is None:
        settled = event_loop.run(serving())
    else:
        # One of several processes draws nothing: their lines would be drawn over each other.
        watched = (
            progress(session.terminal, "drain") if what.tether is None else nullcontext(silent)
        )
        with watched as meter:
            settled = event_loop.run(serving(_drainer(opened, what.drain, meter)))
    if session.json:
        session.terminal.document({"settled": settled})


def _with_systems(
    session: Session, app: App, options: ServeOptions, names: Sequence[str], *, whole: bool
) -> tuple[AbstractAsyncContextManager[None] | None, ServeOptions]:
    """Add the kinds of systems to an app.

    Args:
        session: whose settings the systems have.
        options: of the worker, as given.
        whole: whether the App's own jobs are run as well.

    Returns:
        What must be open while it works, and the worker's options.
    """
    if not names:
        return None, options
    # Only those who ask for a system have what it needs.
    with needs_extra("systems"):
        from headway.cli.systems import make_systems  # noqa: PLC0415

    systems = make_systems(names, session.settings, session.store_url)
    lanes = systems.declare(app)
    around = systems.opened(session.settings.public_url)
    return around, for_systems(options, lanes, whole=whole)


def _drainer(app: App, drain: Drain, meter: Meter) -> Beside:
    async def drained(store: Store, worker: Worker) -> None:
        # What only the sources know of so far counts as well.
        await app.look_at_sources()
        lanes = [lane for lane, _ in worker.settings.lanes]
        await wait_until_drained(store, lanes, drain, meter)

    return drained


def _child(
    session: Session, options: ServeOptions, app_name: str | None, what: WorkOptions
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
