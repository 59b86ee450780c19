"""The terminal: where a command prints, and how. Text goes out only in printable form."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.cli.json_text import to_json
from headway.cli.printable import printable, printable_json

_WIDE = 100_000


class Terminal:
    """Standard output for answers, standard error for everything else.

    Attributes:
        json: answers are one JSON document each.
        answers: the console on standard output.
        remarks: the console on standard error.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.answers = _console(stderr=False)
        self.remarks = _console(stderr=True)

    @property
    def live(self) -> bool:
        """Whether somebody watches: progress is drawn only then."""
        return self.remarks.is_terminal

    def document(self, document: object) -> None:
        """Prints one JSON document on one line."""
        typer.echo(printable_json(to_json(document).decode()))

    def line(self, text: str, style: str = "") -> None:
        """Prints a line of the answer."""
        self.answers.print(shown(text, style))

    def remark(self, text: str, style: str = "") -> None:
        """Prints a line beside the answer, on standard error."""
        self.remarks.print(shown(text, style))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
        """Prints rows under their headings.

        Args:
            columns: the headings.
            rows: a text for each column.
            empty: what to say instead when there are none.
        """
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(shown(column), overflow="fold")
        for row in rows:
            table.add_row(*(shown(cell, STYLES.get(cell, "")) for cell in row))
        if table.row_count:
            self.answers.print(table)
        else:
            self.remark(empty, "dim")

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Prints names and values, one pair a line; empty values are left out."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in pairs:
            if value:
                table.add_row(shown(name), shown(value, STYLES.get(value, "")))
        if table.row_count:
            self.answers.print(table)

    def confirmed(self, question: str) -> bool:
        """Asks on a terminal; where nobody can answer, the answer is no."""
        if not sys.stdin.isatty():
            return False
        return typer.confirm(printable(question), err=True)


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
"""The colours of states."""


def shown(text: str, style: str = "") -> Text:
    """Text that is safe to be shown, never read as markup."""
    return Text(printable(text), style=style)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        # Nobody's window ends here: rows stay on one line each.
        console.width = _WIDE
    return console
