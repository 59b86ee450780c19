"""Real repositories, and sessions as real processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from headway.runtime.timing import REAL
from headway.systems.automations.config import Automation, parse_config
from headway.systems.automations.folders import Folders
from headway.systems.automations.session import AutomationSession, End, session_id

LIMIT_S = 120
JOB = str(uuid4())
"""Concurrent tests have other ids: processes of a session are identified by its id."""
WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org"}
WHO |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **WHO},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def new_repository(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Create a repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, files or {"hello.txt": "hello\n"})
    return folder


def commit(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "a change")


def automation(repository: Path | str, command: str, **more: Any) -> Automation:
    """Return an entry of a file."""
    values: dict[str, Any] = {"id": "one", "repository": str(repository), "schedule": "30m"}
    values |= {"command": command, **more}
    lines = [f"{name} = {_toml(value)}" for name, value in values.items()]
    config = parse_config("\n".join(["[[automation]]", *lines]), Path("/srv/automations.toml"))
    assert config.faults == (), config.faults
    return config.automations[values["id"]]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f"'''{value}'''" if isinstance(value, str) else str(value)


@dataclass(kw_only=True)
class Play:
    """A running session, and its owner."""

    folders: Folders
    session: AutomationSession
    lease_s: float = 60.0
    renewals: list[Mapping[str, object]] = field(default_factory=list)
    lost: bool = False
    renewing: bool = True

    async def renew(self, facts: Mapping[str, object]) -> float | None:
        self.renewals.append(facts)
        if self.lost:
            return None
        if not self.renewing:
            await asyncio.Event().wait()
        return REAL.monotonic() + self.lease_s

    async def end(self, every_s: float = 1.0) -> End:
        until = REAL.monotonic() + self.lease_s
        async with asyncio.timeout(LIMIT_S):
            end = await self.session.run_to_end(self.folders, REAL, until, self.renew, every_s)
            await self.session.prune(self.folders)
            return end

    @property
    def log(self) -> str:
        return self.folders.log(self.session.id).read_text()


def play(tmp_path: Path, one: Automation, *, run: int = 1, **more: Any) -> Play:
    folders = Folders(root=tmp_path / "state")
    folders.make()
    session = AutomationSession(id=session_id(one.id, JOB), automation=one, run=run)
    return Play(folders=folders, session=session, **more)


async def until(condition: Any) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await REAL.pause(0.02)


def lives(pid: int) -> bool:
    """Return whether a process is alive; an unreaped dead process is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def pids(folder: Path) -> list[int]:
    """Return the pids that processes have written, each to its own file."""
    return [int(text) for one in folder.glob("*.pid") if (text := one.read_text().strip())]
