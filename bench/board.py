"""How far the workers are: a number for each, in memory that all processes see.

A worker writes its own number at each execution, which costs it less than a tenth of a microsecond;
nobody is asked and nothing is sent while the clock runs.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

PLACES = 64
WIDTH = 8
LOOK_S = 0.004
STALLED_S = 20.0
"""Work that does not go on for so long is given up; what is missing is then told as lost."""


class Board:
    """A file of as many numbers as there may be workers.

    Args:
        path: of the file; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(PLACES * WIDTH))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), PLACES * WIDTH)
        self.places = memoryview(self._map).cast("q")

    def total(self) -> int:
        """Executions seen by all workers."""
        return sum(self.places)

    def wait_for(self, count: int, look: Callable[[], None]) -> bool:
        """Waits until there are so many executions, or none any more for long.

        Args:
            count: executions.
            look: called while it waits; may raise.

        Returns:
            Whether they were reached.
        """
        seen, at = self.total(), time.monotonic()
        while seen < count:
            time.sleep(LOOK_S)
            look()
            now = self.total()
            if now != seen:
                seen, at = now, time.monotonic()
            elif time.monotonic() - at > STALLED_S:
                return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.places.release()
        self._map.close()
