"""Runs the demo: `python -m examples.demo [--for SECONDS]`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

import headway as hw
from examples.demo.logs import log_to
from examples.demo.show import Refused, run
from examples.departures.pace import check_speed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo and prints its summary.

    Args:
        arguments: of the command line; None for the program's own.

    Returns:
        The exit code: 0 if no checker found a violation.
    """
    asked = _arguments(arguments)
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="headway-demo-"))
    url = asked.store or f"sqlite:///{folder / 'demo.db'}"
    print(f"The store is {url}; what is written beside it is in {folder}", flush=True)
    log_to(folder / "demo.log")
    try:
        verdict, served = asyncio.run(run(asked, url, folder, console))
    except (hw.HeadwayError, Refused) as error:
        print(f"stopped: {error}", file=sys.stderr)
        return 2
    print(
        f"{verdict.flights} flights left, {verdict.calls} calls were dialled, "
        f"{verdict.repairs} repairs were taken, "
        f"{verdict.letters} letters arrived ({verdict.doubled} of them twice); "
        f"{verdict.jobs} jobs checked: {len(verdict.violations)} violations"
    )
    for line in verdict.violations:
        print(f"violation: {line}")
    print(f"Look around in it: headway lanes --store {url}")
    port = served.rpartition(":")[2]
    print(f"Serve it again at {served} (/v1, /docs, /metrics, /events):")
    print(f"  headway serve --system lanes --port {port} --store {url}")
    return 1 if verdict.violations else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description=(
            "A real day of departures, sped up, a call centre, repairs that are offered by "
            "telephone, and a mail room."
        ),
    )
    parser.add_argument(
        "--for", dest="seconds", type=float, metavar="SECONDS", help="end after so long"
    )
    parser.add_argument("--speed", type=_speed, default=600.0, help="of the day (600 times)")
    parser.add_argument("--store", type=_store, help="a sqlite:/// URL (a new temporary file)")
    parser.add_argument("--seed", type=int, default=1, help="of what comes in (1)")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live screen")
    return parser.parse_args(arguments)


def _speed(text: str) -> float:
    try:
        return check_speed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _store(text: str) -> str:
    if not text.startswith("sqlite:///"):
        message = f"{text!r} is no sqlite:/// URL: the demo runs on the embedded store"
        raise argparse.ArgumentTypeError(message)
    return text


if __name__ == "__main__":
    sys.exit(main())
