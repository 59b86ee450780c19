"""The witness: one append-only file that stands for the real world.

Every process of a rig writes to it what it does, as it does it. The operating system appends each
line whole and in the order in which the writes came; no process can take a line back, and what a
killed process has written stays.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


class Witness:
    """Writes lines of one process.

    Args:
        path: the file; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._pid = os.getpid()

    def note(self, event: str, **facts: object) -> None:
        """Appends what happens now.

        Args:
            event: one word.
            facts: what JSON can carry.
        """
        line = json.dumps({"t": time.monotonic_ns(), "pid": self._pid, "event": event, **facts})
        # A line begins with a newline too: where a kill tears a line, the next one stays whole.
        os.write(self._file, b"\n" + line.encode() + b"\n")

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._file)
