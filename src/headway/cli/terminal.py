"""Output of commands: results, remarks and tables, with control characters escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.cli.text import printable, printable_json, to_json
from headway.core.duration import format_duration
from headway.core.instant import format_instant, parse_instant
from headway.core.local_time import MAX_AT

_FOR_GOOD_AT = parse_instant("9999-01-01T00:00Z")


class LocalClock:
    """Formats instants in a time zone.

    Args:
        zone: IANA zone; None for the system's.
    """

    def __init__(self, zone: str | None) -> None:
        self._zone = zone

    def at(self, instant: int | None, *, exact: bool = False) -> str:
        """Format an instant.

        Args:
            instant: ms UTC.
            exact: Whether to show milliseconds; otherwise they are cut off.

        Returns:
            The local time with its offset, such as "2026-12-01 10:00:00+01:00"; "" for None, and
            "indefinitely" from the year 9999 on.
        """
        if instant is None:
            return ""
        if instant >= _FOR_GOOD_AT:
            return "indefinitely"
        if not 0 <= instant <= MAX_AT:
            return f"{instant} ms"
        shown_at = instant if exact else instant // 1000 * 1000
        if self._zone is not None:
            return format_instant(shown_at, self._zone).replace("T", " ")
        moment = datetime.fromtimestamp(shown_at // 1000, UTC).astimezone()
        moment = moment.replace(microsecond=shown_at % 1000 * 1000)
        return moment.isoformat(sep=" ", timespec="milliseconds" if shown_at % 1000 else "seconds")

    def around(self, instant: int | None, now: int) -> str:
        """Return the local time and its distance from now, such as "… (in 5m)"; "" for None."""
        if instant is None or instant >= _FOR_GOOD_AT:
            return self.at(instant)
        far = rounded_duration(abs(instant - now))
        return f"{self.at(instant)} ({f'in {far}' if instant > now else f'{far} ago'})"


def rounded_duration(span_ms: int) -> str:
    """Format a duration; milliseconds are shown only below one second."""
    return format_duration(span_ms if span_ms < 1000 else span_ms // 1000 * 1000)


_UNSEEN_WIDTH = 160
"""Width of output without a terminal, in columns."""


class Terminal:
    """Prints results to standard output, everything else to standard error.

    Attributes:
        json: Whether to print a result as one JSON document.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.answers = _console(stderr=False)
        self.remarks = _console(stderr=True)

    @property
    def live(self) -> bool:
        """Whether standard error is a terminal; only then progress is shown."""
        return self.remarks.is_terminal

    def document(self, document: object) -> None:
        """Print one JSON document on one line, as UTF-8 whatever the locale is."""
        typer.echo(printable_json(to_json(document).decode()).encode())

    def reply(self, document: object, text: str) -> None:
        """Print a result: the document with --json, otherwise the line of text."""
        if self.json:
            self.document(document)
        else:
            self.line(text)

    def listing(
        self, document: object, columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str
    ) -> None:
        """Print a result: the document with --json, otherwise the rows, as `table` does."""
        if self.json:
            self.document(document)
        else:
            self.table(columns, rows, empty)

    def line(self, text: str, style: str = "") -> None:
        """Print a line of the result."""
        self.answers.print(shown(text, style), soft_wrap=True)

    def remark(self, text: str, style: str = "") -> None:
        """Print a line to standard error."""
        self.remarks.print(shown(text, style), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
        """Print a table, or the remark `empty` if there are no rows."""
        cells = [[printable(cell) for cell in row] for row in rows]
        if not cells:
            self.remark(empty, "dim")
        elif self.answers.is_terminal:
            self._drawn(columns, cells)
        else:
            self._aligned([list(columns), *cells])

    def section(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print an empty line and a table, or nothing if there are no rows."""
        if rows:
            self.line("")
            self.table(columns, rows, empty="")

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Print names and values, one pair per line; empty values are omitted."""
        self._aligned([[name, printable(value)] for name, value in pairs if value])

    def confirmed(self, question: str) -> bool:
        """Ask for confirmation; without a terminal, return False."""
        if not sys.stdin.isatty():
            return False
        return typer.confirm(printable(question), err=True)

    def _drawn(self, columns: Sequence[str], rows: list[list[str]]) -> None:
        """Print a table for a terminal: in colour, without empty columns, folded if too wide."""
        shown = [n for n in range(len(columns)) if n == 0 or any(row[n].strip("0") for row in rows)]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for n in shown:
            # The first column names the row, and must be possible to copy.
            table.add_column(Text(columns[n]), overflow="fold", no_wrap=n == 0)
        for row in rows:
            table.add_row(*(Text(row[n], style=STYLES.get(row[n], "")) for n in shown))
        self.answers.print(table)

    def _aligned(self, rows: list[list[str]]) -> None:
        """Print one line per row, whatever its width, for programs that read lines."""
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            padded = (
                cell + " " * (w - cell_len(cell)) for cell, w in zip(row, widths, strict=True)
            )
            typer.echo("  ".join(padded).rstrip())


STYLES = {
    "scheduled": "blue",
    "waiting": "cyan",
    "ready": "cyan",
    "parked": "yellow",
    "blocked": "yellow",
    "running": "green",
    "awaiting": "magenta",
    "succeeded": "dim green",
    "dead": "red",
    "cancelled": "dim",
    "open": "green",
    "closed": "red",
    "full": "yellow",
}
"""Styles of the states of jobs and gates."""


def shown(text: str, style: str = "") -> Text:
    """Return a text that is safe to print, and never interpreted as markup."""
    return Text(printable(text), style=style)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNSEEN_WIDTH
    return console
