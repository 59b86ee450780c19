"""The figures as Markdown tables, for docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.notebook import Figure, Notebook, digits

BEGIN, END = "<!-- figures: python -m bench --page -->", "<!-- end of figures -->"


def put_into(page: Path, about: Mapping[str, str], notebook: Notebook) -> None:
    """Replaces the tables of a page by those of this run.

    Args:
        page: has the two marks, each on a line of its own.
        about: the machine.
        notebook: what was measured.

    Raises:
        ValueError: the page has no place for them.
    """
    text = page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        message = f"{page} has no lines {BEGIN!r} and {END!r}"
        raise ValueError(message)
    tables = "\n".join(_lines(about, notebook))
    page.write_text(f"{head}{BEGIN}\n\n{tables}\n\n{END}{tail}", encoding="utf-8")


def _lines(about: Mapping[str, str], notebook: Notebook) -> Iterator[str]:
    for name, fact in about.items():
        yield f"- {name}: {fact}"
    yield ""
    yield "| measure | who | median | least to most |"
    yield "|---|---|---:|---:|"
    case = ""
    for figure in notebook.figures:
        yield f"| {figure.case if figure.case != case else ''} | {_row(figure)} |"
        case = figure.case
    yield ""
    yield "| goal | measured | aim | |"
    yield "|---|---:|---:|---|"
    for goal in notebook.goals:
        sign = "≥" if goal.least else "≤"
        met = "met" if goal.met else "**goal missed**"
        yield f"| {goal.what} | {digits(goal.ratio)} | {sign} {goal.bound:g} | {met} |"


def _row(figure: Figure) -> str:
    unit = figure.unit if figure.unit.startswith("/") else f" {figure.unit}"
    note = f", {figure.note}" if figure.note else ""
    ends = f"{digits(min(figure.values))} to {digits(max(figure.values))}"
    spread = ends if len(figure.values) > 1 else ""
    return f"{figure.system}{note} | {digits(figure.median)}{unit} | {spread}"
