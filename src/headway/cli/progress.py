"""Progress of long work, drawn on standard error while somebody watches."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from headway.cli.printable import printable
from headway.cli.terminal import Terminal


class Meter(Protocol):
    """How far the work is."""

    def __call__(self, done: float, total: float | None = None) -> None:
        """Moves the bar.

        Args:
            done: of the total, from the beginning.
            total: if it has changed.
        """
        ...


@contextmanager
def progress(
    terminal: Terminal, what: str, total: float | None = None, *, counted: bool = True
) -> Generator[Meter]:
    """A bar for as long as the work lasts; nothing where nobody watches.

    Args:
        terminal: where.
        what: the work, in a few words.
        total: how much there is; None if that is not known.
        counted: whether to show numbers; else a percentage.

    Yields:
        The meter to be told.
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
    """The meter that nobody watches."""
    del done, total
