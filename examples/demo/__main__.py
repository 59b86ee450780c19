"""Run the demo: `python -m examples.demo [--for SECONDS] [--json]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

import headway as hw
from examples.demo.logs import log_to
from examples.demo.show import Refused, run, say
from examples.demo.verdict import Verdict
from examples.departures.pace import check_speed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and print its summary.

    Args:
        arguments: Command line arguments; None for the program's own.

    Returns:
        The exit code: 0 if no checker found a violation.
    """
    asked = _arguments(arguments)
    # With --json only the document is on standard output.
    console = Console(highlight=False, stderr=asked.json)
    folder = Path(tempfile.mkdtemp(prefix="headway-demo-"))
    url = asked.store or f"sqlite:///{folder / 'demo.db'}"
    log_to(folder / "demo.log")
    try:
        verdict, served = asyncio.run(run(asked, url, folder, console))
    except (hw.HeadwayError, Refused) as error:
        print(f"stopped: {error}", file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps({"store": url, "server": served} | _document(verdict), indent=2))
    else:
        _report(console, verdict)
        say(console, f"Look around in it: headway lanes --store {url}")
        port = served.rpartition(":")[2]
        say(console, f"Serve it again at {served} (/v1, /docs, /metrics, /events):")
        say(console, f"  headway serve --system lanes --port {port} --store {url}")
    return 1 if verdict.violations else 0


def _report(console: Console, verdict: Verdict) -> None:
    """Print a row for each system, then the violations."""
    table = Table(title="What was done, and whether all of it was right", title_justify="left")
    for heading in ("system", "what it did", "checked against"):
        table.add_column(heading, overflow="fold")
    table.add_column("violations", justify="right")
    for one in verdict.systems:
        did = ", ".join(f"{count} {what}" for what, count in one.did.items())
        count = Text(str(len(one.violations)), style="red" if one.violations else "green")
        table.add_row(one.system, did or "left out", one.judge, count if did else "")
    console.print(table)
    say(console, f"{verdict.jobs} jobs checked: {len(verdict.violations)} violations")
    for line in verdict.violations:
        say(console, f"violation: {line}")


def _document(verdict: Verdict) -> dict[str, object]:
    """Return the verdict for JSON output."""
    return {
        "jobs": verdict.jobs,
        "violations": len(verdict.violations),
        "systems": [asdict(one) for one in verdict.systems],
    }


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description=(
            "A real day of departures, sped up, a call centre, repairs that are offered by "
            "telephone, a mail room, and sessions on git repositories."
        ),
    )
    parser.add_argument(
        "--for", dest="seconds", type=float, metavar="SECONDS", help="stop after this time"
    )
    parser.add_argument("--speed", type=_speed, default=600.0, help="speed of the day (600)")
    parser.add_argument("--store", type=_store, help="a sqlite:/// URL (a new temporary file)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (1)")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live screen")
    parser.add_argument(
        "--json", action="store_true", help="print the summary as JSON; all else to stderr"
    )
    return parser.parse_args(arguments)


def _speed(text: str) -> float:
    try:
        return check_speed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _store(text: str) -> str:
    if not text.startswith("sqlite:///"):
        message = f"{text!r} is not a sqlite:/// URL: the demo runs on the embedded store"
        raise argparse.ArgumentTypeError(message)
    return text


if __name__ == "__main__":
    sys.exit(main())
