"""Progress of long work, drawn on standard error if it is a terminal."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from headway.cli.terminal import STYLES, Terminal
from headway.cli.text import printable
from headway.contract.store import Store
from headway.contract.views import StatsQuery, StatsView
from headway.runtime.timing import REAL


class Meter(Protocol):
    """How far the work is."""

    def __call__(self, done: float, total: float | None = None) -> None:
        """Move the bar.

        Args:
            done: of the total, from the beginning.
        """
        ...


@contextmanager
def progress(
    terminal: Terminal, what: str, total: float | None = None, *, counted: bool = True
) -> Generator[Meter]:
    """Show a bar while the work lasts; nothing without a terminal.

    Args:
        total: how much there is; None if that is not known.
        counted: whether to show numbers; else a percentage.
    """
    if not terminal.live:
        yield silent
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn() if counted else TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=terminal.remarks, transient=True) as bar:
        task = bar.add_task(printable(what), total=total)

        def move(done: float, total: float | None = None) -> None:
            if total is None:
                bar.update(task, completed=done)
            else:
                bar.update(task, completed=done, total=total)

        yield move


def silent(done: float, total: float | None = None) -> None:
    """Print nothing: a meter without output."""
    del done, total


_EVERY_S = 0.5
_SHOWN = ("scheduled", "waiting", "parked", "running", "awaiting", "succeeded", "dead")


async def keep_status_line(store: Store, terminal: Terminal) -> None:
    """Show the line until it is cancelled; nothing without a terminal."""
    if not terminal.live:
        return
    with Live(console=terminal.remarks, auto_refresh=False, transient=True) as live:
        before = await store.read(StatsQuery())
        since = REAL.monotonic()
        while True:
            stats = await store.read(StatsQuery())
            now = REAL.monotonic()
            live.update(status_text(stats, before, max(now - since, 0.001)), refresh=True)
            before, since = stats, now
            await REAL.pause(_EVERY_S)


def status_text(stats: StatsView, before: StatsView, seconds: float) -> Text:
    """Return the status line.

    Returns:
        The states that hold jobs with their numbers, and starts a second.
    """
    line = Text()
    for state in _SHOWN:
        number = stats.counts.get(state, 0)
        if number:
            line.append(f"{number:,} {state}", style=STYLES.get(state, ""))
            line.append("  ")
    started = stats.totals.get("started", 0) - before.totals.get("started", 0)
    line.append(f"{started / seconds:,.0f}/s", style="bold")
    return line
