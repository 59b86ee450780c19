"""Progress of long operations, shown on standard error if it is a terminal."""

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
    """Reports progress."""

    def __call__(self, done: float, total: float | None = None) -> None:
        """Set the progress: `done` of `total`; without a total, the last one is kept."""
        ...


@contextmanager
def progress(
    terminal: Terminal, what: str, total: float | None = None, *, counted: bool = True
) -> Generator[Meter]:
    """Show a progress bar while the block runs, if there is a terminal.

    Args:
        total: Amount of work; None if unknown.
        counted: Show numbers instead of a percentage.
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
    """Show nothing: a meter without output."""
    del done, total


_EVERY_S = 0.5
_SHOWN = ("scheduled", "waiting", "parked", "running", "awaiting", "succeeded", "dead")


async def keep_status_line(store: Store, terminal: Terminal) -> None:
    """Show the status line until cancelled, if there is a terminal."""
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
    """Return the status line: the number of jobs by state, and starts per second."""
    line = Text()
    for state in _SHOWN:
        number = stats.counts.get(state, 0)
        if number:
            line.append(f"{number:,} {state}", style=STYLES.get(state, ""))
            line.append("  ")
    started = stats.totals.get("started", 0) - before.totals.get("started", 0)
    line.append(f"{started / seconds:,.0f}/s", style="bold")
    return line
