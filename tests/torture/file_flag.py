"""A flag between processes: a file that exists or does not.

Checking it holds no lock, so a process that is killed leaves nothing locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that is raised once and never lowered."""

    path: Path

    def hoist(self) -> None:
        self.path.touch()

    @property
    def up(self) -> bool:
        return self.path.exists()


def enough(folder: Path) -> Flag:
    """Return the flag that is up when no more jobs are to be created."""
    return Flag(folder / "enough")


def stop(folder: Path) -> Flag:
    """Return the flag that is up when workers are to stop."""
    return Flag(folder / "stop")


def over(folder: Path) -> Flag:
    """Return the flag that is up when onlookers are to stop."""
    return Flag(folder / "over")


def made(folder: Path, name: str) -> Flag:
    """Return the flag that is up when a process has created all its jobs."""
    return Flag(folder / f"made {name}")
