"""A flag between processes: a file that is there or is not.

Nothing is held while one looks, so that a process that is killed leaves nothing locked behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Flag:
    """Raised once, never lowered."""

    path: Path

    def hoist(self) -> None:
        self.path.touch()

    @property
    def up(self) -> bool:
        return self.path.exists()


def enough(folder: Path) -> Flag:
    """Up when no more jobs are to be made."""
    return Flag(folder / "enough")


def stop(folder: Path) -> Flag:
    """Up when workers are to stop."""
    return Flag(folder / "stop")


def over(folder: Path) -> Flag:
    """Up when onlookers are to stop."""
    return Flag(folder / "over")


def made(folder: Path, name: str) -> Flag:
    """Up when a process has made all its jobs."""
    return Flag(folder / f"made {name}")
