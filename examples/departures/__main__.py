"""Run a day of departures from its file to a checked, summarized and plotted history.

Each step is a command that you could type yourself, and is printed when it runs.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path

import msgspec
from rich.console import Console

from examples.departures.flight import read_flight
from examples.departures.history import Departure, read_departures
from examples.departures.pace import check_speed
from examples.departures.run import STORE, Run
from examples.departures.summary import summary_table

DAY = Path(__file__).parent / "departures-2013-01-15.jsonl"


class NoFlight(Exception):
    """A file contains no flight."""


def first_moment(day: Path) -> datetime:
    """Return the earliest scheduled time in a file.

    Args:
        day: The file; lines that are not flights are skipped here, and reported by the import.

    Raises:
        NoFlight: no line is a flight.
    """
    moments: list[datetime] = []
    with day.open("rb") as lines:
        for line in lines:
            with suppress(ValueError):
                moments.append(read_flight(msgspec.json.decode(line)).moment)
    if not moments:
        message = f"{day} contains no flight"
        raise NoFlight(message)
    return min(moments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the day.

    Args:
        arguments: Command line arguments; None for the program's own.

    Returns:
        The exit code: 0 if the checker found no violation.
    """
    asked = _arguments(arguments)
    console = Console()
    try:
        opens_at = first_moment(asked.day)
        asked.out.mkdir(parents=True, exist_ok=True)
        fine = _whole_day(Run(asked.day, asked.speed, asked.out), opens_at, asked.plot, console)
    except (OSError, NoFlight) as error:
        print(f"stopped: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        # The command's own message is printed above, or is in the worker's log.
        command = shlex.join(error.cmd[2:])
        print(f"stopped: `{command}` ended with {error.returncode}", file=sys.stderr)
        return 1
    print(f"All of it is in {asked.out}")
    return 0 if fine else 1


def _whole_day(run: Run, opens_at: datetime, plot: str, console: Console) -> bool:
    pace = run.import_rows(opens_at)
    run.dispatch(pace, console)
    run.export()
    fine = run.check()
    with run.history.open() as lines:
        departures = read_departures(lines, run.speed)
    console.print(summary_table(departures, run.speed))
    if plot != "none":
        draw(departures, run.out / f"day.{plot}", f"{run.day.stem}, {run.speed:g} times as fast")
    return fine


def draw(departures: Sequence[Departure], path: Path, title: str) -> None:
    """Plot the day if matplotlib is installed; otherwise print how to install it.

    Args:
        departures: All departures of the day.
        path: The file to write.
        title: Title of the plot.

    Raises:
        ModuleNotFoundError: another module is missing.
    """
    try:
        plot = import_module("examples.departures.plot")
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print("no picture: matplotlib is missing (pip install 'headway[plot]')", file=sys.stderr)
        return
    plot.plot_day(departures, path, title)
    print(f"drawn in {path}")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.departures",
        description="Dispatch a real day of departures, sped up, and check the result.",
    )
    parser.add_argument("day", type=Path, nargs="?", default=DAY, help="JSON Lines file")
    parser.add_argument(
        "--speed", type=_speed, default=600.0, help="speed relative to the real day (600)"
    )
    parser.add_argument("--out", type=Path, help="output folder (a temporary one)")
    parser.add_argument("--plot", choices=("png", "svg", "none"), default="png")
    asked = parser.parse_args(arguments)
    if asked.out is None:
        asked.out = Path(tempfile.mkdtemp(prefix="departures-"))
    elif (asked.out / STORE).exists():
        parser.error(f"{asked.out} contains an earlier run; name another folder")
    return asked


def _speed(text: str) -> float:
    try:
        return check_speed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
