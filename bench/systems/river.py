"""River, a queue in Go: built into the cache the first time, if there is a toolchain."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

from bench.systems.lines import LineChild, LineProducer, LineWorker, started
from bench.systems.overlay import Unavailable, cache, install

SOURCES = Path(__file__).parents[1] / "go"
BUILD_S = 600
PLACES = 1_000


class RiverSystem:
    """River on PostgreSQL.

    Attributes:
        seconds: Seconds for which each handler waits.
        places: Number of jobs at once per process.
    """

    name = "river"
    setting = "COPY for many, 1,000 jobs at once, a fetch each 2 ms at most"
    bulk = True
    bursts = True
    slow = False

    def __init__(self) -> None:
        self.seconds, self.places = 0.0, PLACES
        self._program = built()
        found = re.search(r"riverqueue/river v(\S+)", (SOURCES / "go.mod").read_text())
        self.version = found[1] if found else "unknown"

    def producing(self) -> AbstractContextManager[LineChild]:
        return self._started(LineProducer, "produce")

    def working(
        self, url: str, board: Path, place: int, clock: str | None = None
    ) -> AbstractContextManager[LineChild]:
        words = (url, str(board), str(place), clock or "none", str(self.seconds), str(self.places))
        return self._started(LineWorker, "consume", *words)

    def _started(self, kind: type[LineChild], *words: str) -> AbstractContextManager[LineChild]:
        return started(kind, [str(self._program), *words], self._program.parent)


def built() -> Path:
    """Return the program; build it if this version is not in the cache yet.

    Raises:
        Unavailable: there is no Go toolchain, or the build fails.
    """
    go = shutil.which("go")
    if go is None:
        message = "there is no Go toolchain"
        raise Unavailable(message)
    toolchain = subprocess.check_output([go, "version"])
    sources = sorted(SOURCES.iterdir())
    key = sha256(toolchain + b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    program = cache() / f"go-{key}" / "river"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_name("fresh")
        command = [go, "build", "-o", str(fresh), "."]
        install("River", command, BUILD_S, SOURCES, {"GOFLAGS": "-mod=readonly"})
        fresh.rename(program)
    return program
