"""Printing of reports as text tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.core.duration import format_duration
from headway.core.instant import format_instant
from headway.lab.report import Percentiles, Report

_SHOWN = 20
"""Maximum number of violations or refused rows printed; more are only counted."""


def plain(text: str, style: str = "") -> Text:
    """Return text with unprintable characters escaped, such as terminal control sequences."""
    printable = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return Text(printable, style=style)


def show(console: Console, reports: Sequence[Report]) -> None:
    """Print every report, the base first, and a comparison if there are several."""
    for report in reports:
        console.print(Group(*_parts(report)))
    if len(reports) > 1:
        console.print(comparison(reports))


def _parts(report: Report) -> Iterator[RenderableType]:
    title = f"{report.name}: {report.start} to {report.end}, seed {report.seed}"
    yield Text("")
    yield plain(title, style="bold")
    yield plain(_summary(report))
    yield _kinds(report)
    yield _waits(report)
    yield _lanes(report)
    if report.gates:
        yield _gates(report)
    for line in _shortened(report.refused, "rows"):
        yield plain(f"refused: {line}", style="yellow")
    if not report.violations:
        yield plain("no violation found", style="green")
    for line in _shortened([f"{rule}: {where}" for rule, where in report.violations], "violations"):
        yield plain(f"violation: {line}", style="bold red")


def _summary(report: Report) -> str:
    last = "none of them ended"
    if report.last_final_at is not None:
        last = f"the last one ended at {format_instant(report.last_final_at, report.tz)}"
    return f"{report.jobs:,} jobs, {report.unfinished:,} of them unfinished; {last}"


def _shortened(lines: Sequence[str], what: str) -> list[str]:
    more = [f"… and {len(lines) - _SHOWN} more {what}"] if len(lines) > _SHOWN else []
    return [*lines[:_SHOWN], *more]


def _table(title: str, first: str, *others: str | Text) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right")
    return table


def _kinds(report: Report) -> Table:
    heads = ("jobs", "succeeded", "dead", "cancelled", "unfinished", "starts")
    table = _table("Jobs", "kind", *heads)
    table.add_column("outcomes of attempts", overflow="fold")
    for row in report.kinds:
        counts = (row.jobs, row.succeeded, row.dead, row.cancelled, row.unfinished, row.runs)
        outcomes = ", ".join(f"{name} {count:,}" for name, count in row.outcomes.items())
        table.add_row(plain(row.kind), *(f"{count:,}" for count in counts), plain(outcomes))
    return table


def _waits(report: Report) -> Table:
    table = _table("Waits, from due to start", "kind", "", "starts", "p50", "p90", "p99", "max")
    for row in report.waits:
        if not row.total.count:
            continue
        for name, spread in (
            ("all", row.total),
            ("eligible", row.eligible),
            ("behind gates", row.behind),
        ):
            kind, count = (row.kind, f"{spread.count:,}") if name == "all" else ("", "")
            table.add_row(plain(kind), name, count, *_spans(spread))
    return table


def _spans(spread: Percentiles) -> list[str]:
    return [format_duration(ms) for ms in (spread.p50, spread.p90, spread.p99, spread.most)]


def _lanes(report: Report) -> Table:
    table = _table("Starts", "lane", "starts", "per hour", "max per hour")
    for row in report.lanes:
        table.add_row(
            plain(row.lane),
            f"{row.starts:,}",
            f"{row.mean_per_hour:,.1f}",
            f"{row.most_per_hour:,}",
        )
    return table


def _gates(report: Report) -> Table:
    heads = ("kind", "limit", "starts", "mean use", "peak", "full", "closed")
    table = _table("Gates", "gate", *heads)
    for row in report.gates:
        name = row.gate if row.instances == 1 else f"{row.gate} (each of {row.instances:,})"
        table.add_row(
            plain(name),
            row.kind,
            "" if row.capacity is None else f"{row.capacity:,}",
            f"{row.starts:,}",
            "" if row.mean is None else f"{row.mean:,.2f}",
            "" if row.mean is None else f"{row.peak:,}",
            "" if row.full is None else f"{row.full:.1%}",
            f"{row.shut:.1%}" if row.shut else "",
        )
    return table


def comparison(reports: Sequence[Report]) -> Table:
    """Return the reports side by side, the base first."""
    table = _table("What if", "", *(plain(report.name) for report in reports))
    for name, cells in _compared(reports):
        table.add_row(plain(name), *cells)
    return table


def _compared(reports: Sequence[Report]) -> Iterator[tuple[str, list[str]]]:
    yield "jobs", [f"{one.jobs:,}" for one in reports]
    yield "succeeded", [f"{sum(row.succeeded for row in one.kinds):,}" for one in reports]
    yield "dead", [f"{sum(row.dead for row in one.kinds):,}" for one in reports]
    yield "unfinished", [f"{one.unfinished:,}" for one in reports]
    yield "last end after the start", [_last(one) for one in reports]
    for kind in dict.fromkeys(row.kind for one in reports for row in one.waits):
        found = [{row.kind: row.total for row in one.waits}.get(kind) for one in reports]
        if kind.endswith(".reconcile") or not any(spread and spread.count for spread in found):
            continue
        for label, read in (("p50", 0), ("p90", 1), ("p99", 2), ("max", 3)):
            yield f"{kind}: wait {label}", ["" if s is None else _spans(s)[read] for s in found]
    for gate in dict.fromkeys(row.gate for one in reports for row in one.gates):
        uses = [{row.gate: row for row in one.gates}.get(gate) for one in reports]
        if all(use is None or use.member or use.capacity is None for use in uses):
            continue
        yield f"{gate}: mean use", ["" if u is None else f"{u.mean or 0:,.2f}" for u in uses]
        yield f"{gate}: full", ["" if u is None else f"{u.full or 0:.1%}" for u in uses]
    yield "violations", [f"{len(one.violations):,}" for one in reports]


def _last(report: Report) -> str:
    if report.last_final_at is None:
        return ""
    return format_duration(report.last_final_at - report.start_at)
