"""The gardens: bare git repositories, an `automations.toml`, and a journal of its sessions.

Each session commits to its repository and pushes, and writes its start and end to a journal next to
the repositories. The checker reads the journal and the repositories, not the engine.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from examples.demo.automations.rules import Line, Written
from examples.demo.http_client import Asking

LANE = "automations"
LIMIT = 2
"""Maximum number of sessions at once."""
GARDENS = ("beans", "herbs", "roses")
STUBBORN = "prune"
"""An automation whose session forks a child; both ignore SIGTERM, and are killed at the timeout."""
STUBBORN_MS = 1_500
BY_HAND, BY_HAND_S = "harvest", 4.0
"""The automation that is started by a request, and the interval."""
LATEST_S = 60.0
"""Maximum time to wait for running sessions at the end."""

_WORK = """
say() {{ echo "$1 $HEADWAY_SESSION_ID {repository} $(date +%s)" >> {journal}; }}
say began
sleep {seconds}
echo "$HEADWAY_SESSION_ID" >> diary.txt
git add diary.txt
git -c user.name=Ada -c user.email=ada@example.org commit -q -m "{id} $HEADWAY_SESSION_ID"
git push -q origin HEAD:main
say ended
"""
_STUBBORN = """
say() {{ echo "$1 $HEADWAY_SESSION_ID {repository} $(date +%s)" >> {journal}; }}
trap '' TERM
say began
(trap '' TERM; while :; do say alive; sleep 0.2; done) &
while :; do sleep 0.2; done
"""
_ENTRY = """
[[automation]]
id = "{id}"
repository = "{folder}/{repository}.git"
schedule = "{schedule}"
timeout = "{timeout_ms}ms"
grace = "300ms"
command = '''{command}'''
"""
Notify = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One automation of the demo.

    Attributes:
        repository: One of the gardens.
        every_s: Its period; 0 if it is only started by hand.
        seconds: Duration of its session.
    """

    id: str
    repository: str
    every_s: int
    seconds: float


ENTRIES = (
    Entry(id="water", repository="beans", every_s=2, seconds=0.5),
    Entry(id="weed", repository="beans", every_s=3, seconds=0.7),
    Entry(id="sow", repository="herbs", every_s=3, seconds=0.3),
    Entry(id=STUBBORN, repository="roses", every_s=6, seconds=0),
    Entry(id=BY_HAND, repository="roses", every_s=0, seconds=0.4),
)


def missing() -> str:
    """Return why sessions cannot run on this machine; empty if they can."""
    if sys.platform != "linux":
        return "they need Linux"
    return "" if shutil.which("git") else "git is not installed"


class Gardens:
    """Repositories with automations, under one folder.

    Args:
        folder: Folder for the repositories, the file, the journal and the state directory.
        notify: Called for each event, with a word and a sentence.

    Attributes:
        counts: Number of lines in the journal so far, by word.
    """

    def __init__(self, folder: Path, notify: Notify) -> None:
        self.counts: Counter[str] = Counter()
        self._folder = folder / "automations"
        self._notify = notify
        self._server: Asking | None = None
        self._shown = 0
        self._started: list[str] = []
        self._off_at = 0

    @property
    def settings(self) -> dict[str, object]:
        """The table [automations] of the system."""
        return {"file": str(self._file), "state_dir": str(self._folder / "state"), "lease": "30s"}

    @property
    def _file(self) -> Path:
        return self._folder / "automations.toml"

    @property
    def _journal(self) -> Path:
        return self._folder / "journal.txt"

    def make(self) -> None:
        """Create the repositories, each with one commit, and write the file."""
        self._folder.mkdir()
        self._journal.touch()
        for name in GARDENS:
            path = self._folder / f"{name}.git"
            _git("init", "-q", "--bare", "-b", "main", str(path))
            tree = _git("-C", str(path), "hash-object", "-w", "-t", "tree", "/dev/null")
            first = _git("-C", str(path), "commit-tree", tree, "-m", "Begin")
            _git("-C", str(path), "update-ref", "refs/heads/main", first)
        self._write(enabled=True)

    def connect(self, url: str) -> None:
        """Use the server at a URL, which now runs the sessions."""
        self._server = Asking(url)

    async def work(self) -> None:
        """Start a session by hand at intervals, and report the journal's lines, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._server is not None:
                tasks.create_task(self._by_hand(self._server))
            while True:
                self.watch()
                await asyncio.sleep(0.5)

    def watch(self) -> None:
        """Report new lines of the journal."""
        lines = self._lines()
        for line in lines[self._shown :]:
            self.counts[line.word] += 1
            if line.word != "alive":
                self._notify(line.word, f"session {line.automation} in {line.repository}")
        self._shown = len(lines)

    async def finish(self) -> None:
        """Disable all automations, and wait until no session runs."""
        self._off_at = int(time() * 1000)
        self._write(enabled=False)
        server = self._server
        if server is None:
            return
        await server.ask("POST", "/api/automations/dispatch")
        loop = asyncio.get_running_loop()
        until = loop.time() + LATEST_S
        while await self._unfinished(server) and loop.time() < until:  # noqa: ASYNC110  (over HTTP)
            await asyncio.sleep(0.1)
        self.watch()

    async def written(self) -> Written:
        """Return the records of the sessions, the repositories and the server, for the checker."""
        server = self._server
        rows = [] if server is None else await server.rows("/v1/jobs", lane=LANE)
        # Fires created ahead were cancelled when the automations were disabled.
        rows = [row for row in rows if row["state"] != "cancelled" or row["due_at"] <= self._off_at]
        return Written(
            limit=LIMIT,
            stubborn=STUBBORN,
            lines=tuple(self._lines()),
            commits={name: await asyncio.to_thread(self._commits, name) for name in GARDENS},
            sessions={f"cron:{_automation(row)}:{row['id']}": row for row in rows},
            by_hand=tuple(self._started),
            periods_ms={one.id: one.every_s * 1000 for one in ENTRIES if one.every_s},
        )

    async def close(self) -> None:
        """Close the connection."""
        if self._server is not None:
            await self._server.close()

    async def _by_hand(self, server: Asking) -> None:
        while True:
            await asyncio.sleep(BY_HAND_S)
            reply = await server.ask("POST", f"/api/automations/{BY_HAND}/run")
            self._started.append(reply["session_id"])

    @staticmethod
    async def _unfinished(server: Asking) -> bool:
        rows = await server.rows("/v1/jobs", lane=LANE)
        return any(row["finished_at"] is None for row in rows)

    def _write(self, *, enabled: bool) -> None:
        """Write the file atomically, so that no incomplete file is read."""
        text = f"[dispatcher]\nenabled = {str(enabled).lower()}\nmax_concurrent = {LIMIT}\n"
        for one in ENTRIES:
            work = _STUBBORN if one.id == STUBBORN else _WORK
            values = {"id": one.id, "repository": one.repository, "seconds": one.seconds}
            text += _ENTRY.format(
                **values,
                folder=self._folder,
                schedule=f"{one.every_s}s" if one.every_s else "@yearly",
                timeout_ms=STUBBORN_MS if one.id == STUBBORN else 60_000,
                command=work.format(**values, journal=self._journal),
            )
        new = self._file.with_suffix(".new")
        new.write_text(text, "utf-8")
        new.replace(self._file)

    def _lines(self) -> list[Line]:
        text = self._journal.read_text("utf-8")
        return [Line.read(one) for one in text.split("\n")[:-1]]

    def _commits(self, name: str) -> list[str]:
        path = self._folder / f"{name}.git"
        return _git("-C", str(path), "log", "--format=%s", "main").splitlines()


def _automation(row: Mapping[str, Any]) -> str:
    return str(row["args"]["automation"])


def _git(*arguments: str) -> str:
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _ADA}
    done = subprocess.run(
        ["git", *arguments], check=True, capture_output=True, text=True, env=os.environ | who
    )
    return done.stdout.strip()


_ADA = (("NAME", "Ada"), ("EMAIL", "ada@example.org"))
