"""One run of a day: its files, and the commands that make them."""

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
"""Room for the twelve agents of three airports, and for all that lands meanwhile."""
STORE = "day.db"
SOON = timedelta(seconds=3)
"""Enough to import a day before its first flight is due."""


class Run:
    """One run of a day: its files, and the commands that make them.

    Args:
        day: the file of the day.
        speed: seconds of the day in one second of the run.
        out: a folder for what is made.
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
        """Makes a job of each row; malformed ones are reported and skipped.

        Args:
            opens_at: the moment of the day with which the run begins.

        Returns:
            The pace at which the day will pass.
        """
        start_at = datetime.now(UTC) + SOON
        self.environment |= {OPENS: opens_at.isoformat(), START: start_at.isoformat()}
        said = self._headway("import", _near(self.day), "--app", APP, "--lenient", "--json")
        self.refused.write_text(said)
        for row in json.loads(said)["refused"]:
            print(f"{_near(self.day)}, line {row['line']}: {row['error']}", file=sys.stderr)
        return Pace(speed=self.speed, start_at=start_at, opens_at=opens_at)

    def dispatch(self, pace: Pace, console: Console) -> None:
        """Works until every flight has ended, and shows how far it is.

        Args:
            pace: of the run.
            console: where to show it.

        Raises:
            CalledProcessError: the worker failed; its log says how.
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
        """Writes the whole history, one job a line."""
        self._headway("export", "--out", _near(self.history))

    def check(self) -> bool:
        """Whether the checker, a program of its own, finds no violation."""
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
    """A path as it is typed from here: relative if it lies below."""
    whole, here = path.resolve(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def _show(command: Sequence[str]) -> None:
    print(f"$ {shlex.join(command)}", flush=True)
