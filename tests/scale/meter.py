"""Count what SQLite does: rows written, and steps of its virtual machine.

Steps measure work as time does, but are the same on a slow or a busy machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import apsw


@dataclass(slots=True)
class Reading:
    """Work done within one measurement.

    Attributes:
        rows: rows inserted, changed or deleted.
        steps: steps of the virtual machine.
        scanned: rows visited by full scans.
        statements: how often each statement was run.
    """

    rows: int = 0
    steps: int = 0
    scanned: int = 0
    statements: Counter[str] = field(default_factory=Counter)


class Meter:
    """Watches every connection that is opened inside `watching`."""

    def __init__(self) -> None:
        self._reading: Reading | None = None
        self._changes: dict[int, int] = {}

    @contextmanager
    def watching(self) -> Generator[None]:
        """Watch stores opened in this block from their first statement on."""
        apsw.connection_hooks.append(self._watch)
        try:
            yield
        finally:
            apsw.connection_hooks.remove(self._watch)

    @contextmanager
    def reading(self) -> Generator[Reading]:
        """Count the work done in this block; earlier operations must have been awaited."""
        self._reading = reading = Reading()
        try:
            yield reading
        finally:
            self._reading = None

    def _watch(self, db: apsw.Connection) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note, id=self)

    def _note(self, event: dict[str, Any]) -> None:
        name, changes = id(event["connection"]), event["total_changes"]
        written = changes - self._changes.get(name, 0)
        self._changes[name] = changes
        reading = self._reading
        if reading is None:
            return
        reading.rows += written
        reading.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        reading.scanned += event["stmt_status"]["SQLITE_STMTSTATUS_FULLSCAN_STEP"]
        reading.statements[event["sql"]] += 1
