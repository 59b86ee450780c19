"""The figures as Markdown, for docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cases import draining, dueing, enqueueing, latency
from bench.notebook import HEADWAY, Figure, Goal, digits, figures_of, goals_of
from bench.picture_names import picture

BEGIN, END = "<!-- figures: python -m bench --page -->", "<!-- end of figures -->"
COLUMNS = {
    enqueueing.ONE: "one by one /s",
    enqueueing.BULK: "in bulk /s",
    draining.DRAIN: "drain /s",
    draining.PAIR: "two processes /s",
    latency.P50: "idle p50 ms",
    latency.P99: "idle p99 ms",
    dueing.BURST_MEDIAN: "burst median s",
    dueing.BURST: "burst all s",
}


def put_into(page: Path, result: Mapping[str, Any]) -> None:
    """Replace the figures in a page with those of a run.

    Args:
        page: A page with the two markers, each on its own line.
        result: The output of `--json`.

    Raises:
        ValueError: the page has no markers.
    """
    text = page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        message = f"{page} has no lines {BEGIN!r} and {END!r}"
        raise ValueError(message)
    lines = "\n".join(_lines(result, page))
    page.write_text(f"{head}{BEGIN}\n\n{lines}\n\n{END}{tail}", encoding="utf-8")


def _lines(result: Mapping[str, Any], page: Path) -> Iterator[str]:
    yield from _list(result["about"])
    for store in result["stores"]:
        yield ""
        yield from _store(store, page)


def _store(store: Mapping[str, Any], page: Path) -> Iterator[str]:
    yield f"### {store['title']}"
    yield ""
    yield from _list(store["facts"])
    for peer in store["peers"]:
        yield f"- {peer['name']} {peer['version']}: {peer['setting']}"
    for absent in store["missing"]:
        yield f"- without {absent['name']}: {absent['why']}"
    figures = figures_of(store)
    if figures:
        yield ""
        yield from _wide(figures)
        yield from _long([one for one in figures if one.case not in COLUMNS])
    drawn = picture(page, store["store"])
    if drawn.exists():
        yield ""
        yield f"![The comparisons on {store['title']} as bars]({drawn.name})"
    if store["goals"]:
        yield ""
        yield from _goals(goals_of(store))
    for remark in (*store["remarks"], *store["faults"]):
        yield ""
        yield f"Not in order: {remark.splitlines()[0]}"


def _list(facts: Mapping[str, str]) -> Iterator[str]:
    for name, fact in facts.items():
        yield f"- {name}: {fact}"


def _wide(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield a table with one row per system: medians, minimums and maximums."""
    compared = [one for one in figures if one.case in COLUMNS]
    cases = [case for case in COLUMNS if any(one.case == case for one in compared)]
    if not cases:
        return
    yield "| " + " | ".join(["", *(COLUMNS[case] for case in cases)]) + " |"
    yield "|---" + "|---:" * len(cases) + "|"
    found = {(one.case, one.system): one for one in compared}
    for system in dict.fromkeys(one.system for one in compared):
        cells = [_cell(found.get((case, system)), found.get((case, HEADWAY))) for case in cases]
        yield "| " + " | ".join([system, *cells]) + " |"


def _cell(figure: Figure | None, ours: Figure | None) -> str:
    if figure is None:
        return ""
    ends = f"{digits(min(figure.values))} to {digits(max(figure.values))}"
    other = figure.note if figure.note and ours and figure.note != ours.note else ""
    return f"**{digits(figure.median)}** ({ends}{f'; {other}' if other else ''})"


def _long(figures: Sequence[Figure]) -> Iterator[str]:
    if not figures:
        return
    yield ""
    yield "| measure | who | median | least to most |"
    yield "|---|---|---:|---:|"
    case = ""
    for figure in figures:
        yield f"| {figure.case if figure.case != case else ''} | {_row(figure)} |"
        case = figure.case


def _row(figure: Figure) -> str:
    unit = figure.unit if figure.unit.startswith("/") else f" {figure.unit}"
    note = f", {figure.note}" if figure.note else ""
    ends = f"{digits(min(figure.values))} to {digits(max(figure.values))}"
    spread = ends if len(figure.values) > 1 else ""
    return f"{figure.system}{note} | {digits(figure.median)}{unit} | {spread}"


def _goals(goals: Iterable[Goal]) -> Iterator[str]:
    yield "| goal | measured | aim | |"
    yield "|---|---:|---:|---|"
    for goal in goals:
        sign = "≥" if goal.least else "≤"
        met = "met" if goal.met else "**goal missed**"
        yield f"| {goal.what} | {digits(goal.ratio)} | {sign} {goal.bound:g} | {met} |"
