"""The witness: one append-only file that represents the real world.

Every process of a rig writes its actions to it as they happen. The operating system appends each
line atomically, in the order of the writes; no process can take a line back, and what a killed
process has written stays.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


class Witness:
    """Writes the lines of one process.

    Args:
        path: the file; created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._pid = os.getpid()

    def note(self, event: str, **facts: object) -> None:
        """Append an event that happens now.

        Args:
            event: one word.
            facts: JSON values.
        """
        line = json.dumps({"t": time.monotonic_ns(), "pid": self._pid, "event": event, **facts})
        # A line starts with a newline, too: if a kill tears a line, the next one stays intact.
        os.write(self._file, b"\n" + line.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
