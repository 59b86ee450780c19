"""River, a queue in Go: built into the cache the first time, where there is a toolchain."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

from bench.systems.lines import LineChild, LineProducer, LineWorker, NoProgram, started
from bench.systems.overlay import cache

SOURCES = Path(__file__).parents[1] / "go"
BUILD_S = 600
PLACES = 1_000


class RiverSystem:
    """River on PostgreSQL.

    Attributes:
        seconds: how long each handler waits.
        places: jobs at once of each process.
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
    """The program; it is built the first time.

    Raises:
        NoProgram: that is not possible here.
    """
    go = shutil.which("go")
    if go is None:
        message = "there is no Go toolchain"
        raise NoProgram(message)
    told = subprocess.check_output([go, "version"])
    sources = sorted(SOURCES.iterdir())
    key = sha256(told + b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    program = cache() / f"go-{key}" / "river"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_name("fresh")
        try:
            done = subprocess.run(
                [go, "build", "-o", str(fresh), "."],
                check=False,
                capture_output=True,
                cwd=SOURCES,
                timeout=BUILD_S,
                env={**os.environ, "GOFLAGS": "-mod=readonly"},
            )
        except subprocess.TimeoutExpired as error:
            message = f"go did not build River in {BUILD_S} s"
            raise NoProgram(message) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            message = f"go cannot build River: {said[-1] if said else 'go failed'}"
            raise NoProgram(message)
        fresh.rename(program)
    return program
