"""The system's folders outside the store, and its log."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field

from headway.core.errors import InvalidValue
from headway.runtime.log_file import LogFile
from headway.runtime.settings_table import OpenTable, read_table
from headway.systems.automations.config import Span

PRIVATE = 0o700
LOG_SIZE = 10_000_000
LOG_KEEP = 5
_FOLDERS = ("logs", "mirrors", "work", "artifacts")

_log = logging.getLogger("headway.automations")
# Commands report errors themselves; without this handler, logging would print them as well.
_log.addHandler(logging.NullHandler())


def log(level: int, event: str, facts: Mapping[str, object]) -> None:
    """Log an event with its facts."""
    fields = " ".join(f"{name}={value}" for name, value in facts.items())
    _log.log(level, "%s %s", event, fields, extra={"event": event, "facts": facts})


class AutomationsSettings(OpenTable):
    """The [automations] settings of headway.toml.

    Attributes:
        state_dir: folder of logs, mirrors, worktrees and artefacts; None for the user's own.
        lease: how long a repository stays locked after its session's lease was last renewed.
        look_each: how often the file is checked for edits.
    """

    file: Path = Path("automations.toml")
    state_dir: Path | None = None
    lease: Span = 60_000
    look_each: Span = 1_000
    alerts: dict[str, object] = Field(default={})


def read_settings(written: Mapping[str, object]) -> AutomationsSettings:
    """Read the [automations] settings."""
    return read_table("automations", AutomationsSettings, written)


@dataclass(frozen=True, kw_only=True)
class Folders:
    """The folders of the system, accessible to their owner only.

    Attributes:
        logs: `dispatcher.log` and the run logs.
        mirrors: a cache; can be recreated.
        work: worktrees of running sessions.
        artifacts: artefacts that sessions have left.
    """

    root: Path
    logs: Path = field(init=False)
    mirrors: Path = field(init=False)
    work: Path = field(init=False)
    artifacts: Path = field(init=False)

    def __post_init__(self) -> None:
        self.__dict__.update({name: self.root / name for name in _FOLDERS})

    def make(self) -> None:
        """Create the folders.

        Raises:
            InvalidValue: a folder cannot be created, or belongs to another user.
        """
        try:
            for one in (self.root, *(self.root / name for name in _FOLDERS)):
                one.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
                one.chmod(PRIVATE)
        except OSError as error:
            message = f"{self.root} cannot be created or is not yours: {error.strerror}"
            raise InvalidValue(message, hint="set [automations] state_dir") from None

    def log(self, session: str) -> Path:
        """Return the run log of a session."""
        return self.logs / f"{session.replace(':', '_')}.log"


def read_folders(state_dir: Path | None) -> Folders:
    """Return the folders under a state directory; None for the user's state directory."""
    if state_dir is not None:
        return Folders(root=state_dir.expanduser().absolute())
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Folders(root=Path(base) / "headway" / "automations")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.getMessage()),
        }
        return json.dumps(line | getattr(record, "facts", {}), default=str)


def write_log(folders: Folders) -> None:
    """Also write the system's log to `dispatcher.log`."""
    path = folders.logs / "dispatcher.log"
    for old in [one for one in _log.handlers if isinstance(one, LogFile)]:
        _log.removeHandler(old)
        old.close()
    handler = LogFile(path, size=LOG_SIZE, keep=LOG_KEEP)
    handler.setFormatter(_JsonLines())
    _log.addHandler(handler)
