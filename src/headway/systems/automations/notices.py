"""Notices: events of sessions and faults of the file, logged and sent to the file's channels."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headway.runtime.timing import Timing
from headway.server.alerts.rules import Severity
from headway.server.alerts.watch import DRAIN_S, Alert, AlertSink
from headway.systems.automations.config import ConfigFault, NotificationsTable
from headway.systems.automations.folders import log

NoticeEvent = Literal["invalid_entry", "spawn_failure", "recovery", "start", "complete", "error"]

RECENT = 100
"""Notices kept for listing."""
RUNBOOK = "docs/how-to/automations.md#when-a-session-does-not-run"
_SEVERITY = {"invalid_entry": Severity.P1, "spawn_failure": Severity.P1, "error": Severity.P1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """An event that is reported once.

    Attributes:
        at: when it happened, ms UTC.
        automation_id: id of the entry; None for the whole file.
        session_id: id of the session; None for an entry.
        text: one sentence with the facts.
    """

    at: int
    event: NoticeEvent
    automation_id: str | None
    session_id: str | None
    text: str


class _Message(Alert):
    """A notice in the form that sinks accept."""

    __slots__ = ()

    @property
    def title(self) -> str:
        return f"{self.subject}: {self.rule.replace('_', ' ')}"


@dataclass(kw_only=True)
class Notices:
    """Sends notices, and keeps the latest.

    Attributes:
        memory: file with the faults that were reported, so that a restart does not repeat them.
        table: which notices to send, and where.
        recent: newest first.
    """

    timing: Timing
    memory: Path
    table: NotificationsTable = field(default_factory=NotificationsTable)
    recent: deque[Notice] = field(default_factory=lambda: deque(maxlen=RECENT))
    _sinks: list[AlertSink] = field(default_factory=list[AlertSink])
    _known: list[list[str | None]] | None = None

    def use(self, table: NotificationsTable) -> None:
        """Apply the settings of the file, whose channels have been validated."""
        if table.channels != self.table.channels:
            self.close(0)
            if table.channels:
                # Optional dependency, only needed with channels.
                from headway.server.alerts.apprise_sink import AppriseSink  # noqa: PLC0415

                self._sinks = [
                    AppriseSink(url, f"notifications: channel {number}")
                    for number, url in enumerate(table.channels, start=1)
                ]
        self.table = table

    def add(
        self,
        event: NoticeEvent,
        text: str,
        *,
        automation_id: str | None = None,
        session_id: str | None = None,
    ) -> None:
        """Keep, log and send a notice, unless its event is switched off."""
        if event in {"start", "complete", "error"} and not getattr(self.table, f"on_{event}"):
            return
        notice = Notice(
            at=self.timing.wall_at(),
            event=event,
            automation_id=automation_id,
            session_id=session_id,
            text=text,
        )
        self.recent.appendleft(notice)
        facts = {"automation_id": automation_id, "session_id": session_id, "text": text}
        log(logging.INFO, "notice", {"notice": event} | facts)
        message = _Message(
            rule=event,
            severity=_SEVERITY.get(event, Severity.P3),
            subject=automation_id or "automations.toml",
            text=text if session_id is None else f"{text}\n{session_id}",
            runbook=RUNBOOK,
            healed=event in {"start", "complete"},
        )
        for sink in self._sinks:
            sink.send(message)

    def add_faults(self, faults: Sequence[ConfigFault]) -> None:
        """Send a notice of each fault of the file, once until it is repaired."""
        known = self._known or []
        if self._known is None:
            with suppress(OSError, ValueError):
                known = json.loads(self.memory.read_text(encoding="utf-8"))
        # Without the line: an edit above a fault does not make it a new one.
        now = [[one.automation_id, one.error] for one in faults]
        for fault, key in zip(faults, now, strict=True):
            if key not in known:
                self.add("invalid_entry", str(fault), automation_id=fault.automation_id)
        self._known = now
        if now != known:
            with suppress(OSError):
                self.memory.write_text(json.dumps(now), encoding="utf-8")
                self.memory.chmod(0o600)

    def close(self, drain_s: float = DRAIN_S) -> None:
        """Stop the sending threads once all notices are sent, or after `drain_s` seconds."""
        for sink in self._sinks:
            sink.close(drain_s)
        self._sinks = []
