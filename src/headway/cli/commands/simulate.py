"""`headway simulate`: runs a scenario in virtual time, a day in seconds."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from headway.cli.command import command, new_command
from headway.cli.failures import NO
from headway.cli.progress import progress
from headway.cli.session import CommandSession
from headway.lab.plots import check_plotting, draw
from headway.lab.simulate import as_json, simulate
from headway.lab.tables import show

app = new_command()


@command(app, "simulate")
def simulate_(
    session: CommandSession,
    scenario: Annotated[
        Path, typer.Argument(help="Scenario file (TOML); see docs/how-to/simulate.md.")
    ],
    seed: Annotated[
        int | None, typer.Option(help="Random seed; overrides the one in the file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for plots of gates and waiting times.")
    ] = None,
    plots: Annotated[Literal["png", "svg"], typer.Option(help="Format of the plots.")] = "png",
) -> None:
    """Run a scenario in virtual time on the real engine, and check the outcome.

    The same file and seed always give the same results. Exits with 1 if the engine broke one of its
    promises. With --json: {"reports": [...]}, the base case first, then each what-if.

    Raises:
        Exit: with code 1, a promise was broken.
    """
    session.refuse_store("omit it: a scenario runs in memory")
    if out is not None:
        check_plotting(out)
    with (
        _quiet(logging.getLogger("headway")),
        progress(session.terminal, scenario.name, 1.0, counted=False) as meter,
    ):
        found = simulate(scenario, seed=seed, progress=lambda _, share: meter(share))
    files = [] if out is None else draw(found.reports, out, kind=plots)
    if session.json:
        session.terminal.document(msgspec.Raw(as_json(found)))
    else:
        show(session.terminal.answers, found.reports)
        for file in files:
            session.terminal.remark(f"drawn: {file}")
    if found.violated:
        raise typer.Exit(NO)


@contextmanager
def _quiet(log: logging.Logger) -> Generator[None]:
    """Log no failures of simulated jobs, which are in the report."""
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
