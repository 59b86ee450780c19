"""The progress of the day: flights departed, in the air, and waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import headway as hw
from examples.departures.pace import Pace
from headway.contract.views import LanesQuery

LANE = "departures"
EVERY_S = 0.2
TELLS_EACH = 50
"""Without a terminal, a line is printed once per this many updates."""


class Watch:
    """Shows a progress bar on a terminal, and otherwise a line at intervals."""

    def __init__(self, store: str, pace: Pace, console: Console) -> None:
        self._store = store
        self._pace = pace
        self._console = console

    async def until(self, over: Callable[[], bool]) -> None:
        """Show the progress until `over` returns true; it is called a few times per second."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        hidden = not self._console.is_terminal
        looks = 0
        async with hw.App(self._store) as app:
            with Progress(*columns, console=self._console, transient=True, disable=hidden) as bar:
                task = bar.add_task("")
                while not over():
                    counts = await self._counts(app)
                    left = counts.get("awaiting", 0) + counts.get("succeeded", 0)
                    total = sum(counts.values()) - counts.get("cancelled", 0)
                    said = self._sentence(counts)
                    bar.update(task, description=said, completed=left, total=total)
                    looks += 1
                    if hidden and looks % TELLS_EACH == 0:
                        print(f"{said}, {left} of {total} have left", flush=True)
                    await asyncio.sleep(EVERY_S)

    async def _counts(self, app: hw.App) -> Mapping[str, int]:
        lanes = await app.store.read(LanesQuery(names=(LANE,)))
        return lanes[0].counts if lanes else {}

    def _sentence(self, counts: Mapping[str, int]) -> str:
        passed = (datetime.now(UTC) - self._pace.start_at) * self._pace.speed
        clock = self._pace.opens_at + passed
        waiting = counts.get("waiting", 0) + counts.get("parked", 0)
        return f"{clock:%H:%M}  {counts.get('awaiting', 0)} in the air, {waiting} due and waiting"
