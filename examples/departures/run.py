"""One run of a day: its files, and the commands that create them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from examples.departures.pace import OPENS, SPEED, START, Pace
from examples.departures.watch import Watch

HERE = Path(__file__).parent
APP = "examples.departures.app"
LANES = "departures,landings"
HANDLERS = ("--concurrency", "32")
"""Enough handlers for the twelve agents of three airports, and for landings."""
STORE = "day.db"
SOON = timedelta(seconds=3)
"""Time for the import, before the first flight is due."""


class Run:
    """One run of a day: its files, and the commands that create them.

    Args:
        day: File of the day.
        speed: Seconds of the day per second of the run.
        out: Output folder.
    """

    def __init__(self, day: Path, speed: float, out: Path) -> None:
        self.day = day
        self.speed = speed
        self.out = out
        self.store = f"sqlite:///{out.resolve() / STORE}"
        self.history = out / "history.jsonl"
        self.refused = out / "import.json"
        self.environment = {**os.environ, SPEED: str(speed), "HEADWAY_STORE": self.store}
        root = str(HERE.parents[1])
        paths = [root, os.environ.get("PYTHONPATH", "")]
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    def import_rows(self, opens_at: datetime) -> Pace:
        """Create a job for each row; malformed rows are reported and skipped.

        Args:
            opens_at: Instant of the day at which the run starts.

        Returns:
            The pace of the run.
        """
        start_at = datetime.now(UTC) + SOON
        self.environment |= {OPENS: opens_at.isoformat(), START: start_at.isoformat()}
        said = self._headway("import", _near(self.day), "--app", APP, "--lenient", "--json")
        self.refused.write_text(said)
        for row in json.loads(said)["refused"]:
            print(f"{_near(self.day)}, line {row['line']}: {row['error']}", file=sys.stderr)
        return Pace(speed=self.speed, start_at=start_at, opens_at=opens_at)

    def dispatch(self, pace: Pace, console: Console) -> None:
        """Run a worker until every flight has ended, and show the progress.

        Raises:
            CalledProcessError: the worker failed; its log has the error.
        """
        command = self._command("worker", APP, "--lanes", LANES, "--drain", *HANDLERS)
        with (self.out / "worker.log").open("wb") as log:
            worker = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                asyncio.run(
                    Watch(self.store, pace, console).until(lambda: worker.poll() is not None)
                )
            finally:
                worker.terminate()
                code = worker.wait()
        if code:
            raise subprocess.CalledProcessError(code, command)

    def export(self) -> None:
        """Write the whole history, one job per line."""
        self._headway("export", "--out", _near(self.history))

    def check(self) -> bool:
        """Run the checker, a separate program; return whether it finds no violation."""
        command = [_near(HERE / "checker.py"), _near(self.history), _near(self.day)]
        command += ["--speed", f"{self.speed:g}", "--refused", _near(self.refused)]
        _show(["python", *command])
        return subprocess.run([sys.executable, *command], check=False).returncode == 0

    def _headway(self, *arguments: str) -> str:
        command = self._command(*arguments)
        done = subprocess.run(
            command, env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    def _command(self, *arguments: str) -> list[str]:
        _show(["headway", *arguments])
        return [sys.executable, "-m", "headway", *arguments]


def _near(path: Path) -> str:
    """Return a path as one would type it: relative if it is below the working directory."""
    whole, here = path.resolve(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def _show(command: Sequence[str]) -> None:
    print(f"$ {shlex.join(command)}", flush=True)
