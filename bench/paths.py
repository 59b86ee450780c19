"""Number of Headway's Python calls, and their files, in one warm operation on each store.

It counts calls of functions of this package, on all threads, until all of them are idle again, and
a coroutine or generator once, however often it resumes. Calls in drivers and the standard library
do not count. Shorter paths are easier to read.

Run: `python -m bench.paths [--files]`; takes half a minute. `--files` lists the files.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

from rich.console import Console
from rich.table import Table

import headway as hw
from bench.costs import on_postgres, on_redis, on_sqlite
from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded

PACKAGE = str(Path(hw.__file__).parent)
WARM, COUNTED = 30, 21
QUIET = 0.02
"""Threads are idle if they call nothing for this time, in seconds. It is longer than PostgreSQL's
`NOTIFY_EVERY`, so that each commit notifies by itself, and leaves nothing to the next operation."""
STORES = {"SQLite": on_sqlite, "PostgreSQL": on_postgres, "Redis": on_redis}

Seen = Counter[str]
"""Calls by file."""
Reply = TypeVar("Reply")


class Calls:
    """Counts calls of functions in this package."""

    def __init__(self) -> None:
        # Kept until they are counted: another call could get the memory of a frame that was freed.
        self._frames: set[FrameType] = set()
        self._on = False

    @contextmanager
    def watching(self) -> Generator[None]:
        """Profile this thread and those that start while the block runs."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            threading.setprofile(None)
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        # The event is the same if a coroutine or generator resumes, but so is the frame.
        if self._on and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self._frames.add(frame)

    async def counted(self, work: Awaitable[Reply]) -> tuple[Reply, Seen]:
        """Await an operation; return its reply and its calls."""
        self._on = True
        try:
            reply = await work
            await self._until_idle()
            files = [frame.f_code.co_filename for frame in self._frames.copy()]
        finally:
            self._on = False
            self._frames.clear()
        return reply, Counter(name.removeprefix(PACKAGE) for name in files)

    async def _until_idle(self) -> None:
        """Wait for threads that go on after the reply, such as SQLite's, with its checkpoint."""
        before = -1
        # Any function may be the last one, so there is no event to wait for.
        while (now := len(self._frames)) != before:
            before = now
            await asyncio.sleep(QUIET)


async def measure(url: str) -> dict[str, Seen]:
    """Return the calls of each operation: the median of several executions."""
    calls = Calls()
    found: dict[str, list[Seen]] = {}

    async def count(name: str, work: Awaitable[Reply]) -> Reply:
        reply, seen = await calls.counted(work)
        found.setdefault(name, []).append(seen)
        return reply

    with calls.watching():
        app = hw.App(url, name="paths")

        @app.job(name="hello", lane="greetings")
        async def hello(name: str) -> None:
            del name

        async with app:
            for turn in range(1, WARM + COUNTED + 1):
                await count("send", app.send_async("hello", name="world"))
                request = ClaimRequest(worker="w", request=turn, lanes=(("greetings", 1),))
                claimed = await count("claim", app.store.claim(request))
                outcomes = tuple(Succeeded(run.id, run.run) for run in claimed.jobs)
                assert len(outcomes) == 1
                await count(
                    "settle", app.store.settle(SettleRequest(worker="w", outcomes=outcomes))
                )
                if turn == WARM:
                    found.clear()
    return {
        name: sorted(seen, key=lambda one: one.total())[COUNTED // 2]
        for name, seen in found.items()
    }


def main() -> None:
    files = sys.argv[1:] == ["--files"]
    if sys.argv[1:] and not files:
        sys.exit("usage: python -m bench.paths [--files]")
    table = Table("store", "operation", "calls", "files")
    for name, opened in STORES.items():
        with opened() as (place, _):
            for operation, seen in asyncio.run(measure(place.url)).items():
                table.add_row(name, operation, str(seen.total()), str(len(seen)))
                for file, calls in seen.most_common() if files else ():
                    table.add_row("", "", str(calls), file)
    Console().print(table)


if __name__ == "__main__":
    main()
