"""A report as pictures: gate use over time, and how the waits are spread. Needs matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from headway.core.errors import InvalidValue
from headway.lab.gate_use import Curve
from headway.lab.report import Report

FORMATS = ("png", "svg")
_MOST_GATES = 8
_FULL = "#c0392b"
_USE = "#2c6fbb"
_KINDS = ("#2c6fbb", "#d98324", "#3c8d5a", "#8e5ea2", "#7f7f7f")


def check_plotting() -> None:
    """Lets the call pass if pictures can be drawn.

    Raises:
        InvalidValue: matplotlib is not installed.
    """
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        message = "no plots can be drawn: matplotlib is not installed"
        raise InvalidValue(message, hint='install "headway[plot]", or leave --plot out') from None


def draw(reports: Sequence[Report], folder: Path, *, kind: str = "png") -> list[Path]:
    """Draws the gates and the waits of each report.

    Args:
        reports: the base first.
        folder: where the files go; is made if it is not there.
        kind: "png" or "svg".

    Returns:
        The files.

    Raises:
        InvalidValue: matplotlib is not installed, or the kind is another.
    """
    check_plotting()
    if kind not in FORMATS:
        message = f"a plot cannot be a {kind!r}"
        raise InvalidValue(message, hint=" or ".join(FORMATS))
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for report in reports:
        stem = "".join(one if one.isalnum() else "-" for one in report.name)[:80]
        for what, figure in (("gates", _gates(report)), ("waits", _waits(report))):
            path = folder / f"{stem}.{what}.{kind}"
            # Without a date in it, the same numbers give the same file.
            figure.savefig(path, metadata={"Date": None} if kind == "svg" else {"Software": None})
            files.append(path)
    return files


def _figure(rows: int, title: str) -> tuple[Any, list[Any]]:
    # A figure of its own, without pyplot: no global state and no window.
    made: Any = importlib.import_module("matplotlib.figure")
    importlib.import_module("matplotlib").rcParams["svg.hashsalt"] = "headway"
    figure = made.Figure(figsize=(11, 1.0 + 2.1 * rows), dpi=110, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    axes = figure.subplots(rows, 1, squeeze=False)
    return figure, [axes[row][0] for row in range(rows)]


def _gates(report: Report) -> Any:  # noqa: ANN401  (matplotlib has no types)
    curves = sorted(report.curves, key=lambda one: -max(one.mean, default=0))[:_MOST_GATES]
    kept = [curve for curve in report.curves if curve in curves]
    left = len(report.curves) - len(kept)
    title = f"{report.name}: gate use" + (
        f" (the {len(kept)} busiest of {left + len(kept)})" * bool(left)
    )
    figure, axes = _figure(max(1, len(kept)), title)
    if not kept:
        axes[0].text(0.5, 0.5, "no gate was used", ha="center", va="center")
    for axis, curve in zip(axes, kept, strict=False):
        _curve(axis, curve, report, last=curve is kept[-1])
    return figure


def _curve(axis: Any, curve: Curve, report: Report, *, last: bool) -> None:  # noqa: ANN401
    zone, points = ZoneInfo(report.tz), len(curve.mean)
    span_ms = report.end_at - report.start_at
    edges = [
        datetime.fromtimestamp((report.start_at + span_ms * part / points) / 1000, UTC)
        for part in range(points + 1)
    ]
    axis.stairs(curve.peak, edges, color=_USE, alpha=0.25, fill=True, label="peak")
    axis.stairs(curve.mean, edges, color=_USE, linewidth=1.4, label="mean", baseline=None)
    if all(one is not None for one in curve.capacity):
        limits = [one or 0 for one in curve.capacity]
        axis.stairs(limits, edges, color=_FULL, linestyle="--", label="limit", baseline=None)
    axis.set_title(curve.gate, loc="left", fontsize=10)
    axis.set_ylim(bottom=0)
    axis.set_xlim(edges[0], edges[-1])
    axis.yaxis.set_major_locator(_ticker().MaxNLocator(integer=True, nbins=5))
    axis.grid(visible=True, alpha=0.3)
    axis.legend(loc="upper right", fontsize=8, ncols=3, framealpha=0.9)
    dates: Any = importlib.import_module("matplotlib.dates")
    locator = dates.AutoDateLocator(tz=zone)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))
    axis.tick_params(labelbottom=last)
    if last:
        axis.set_xlabel(f"time in {report.tz}")


def _ticker() -> Any:  # noqa: ANN401  (matplotlib has no types)
    return importlib.import_module("matplotlib.ticker")


def _waits(report: Report) -> Any:  # noqa: ANN401
    shapes = [shape for shape in report.shapes if sum(shape.counts)]
    figure, axes = _figure(max(1, len(shapes)), f"{report.name}: waits, from due to start")
    if not shapes:
        axes[0].text(0.5, 0.5, "nothing started", ha="center", va="center")
    spreads = {row.kind: row.total for row in report.waits}
    for place, (axis, shape) in enumerate(zip(axes, shapes, strict=False)):
        unit, size = _unit(shape.edges[-1])
        spread = spreads[shape.kind]
        edges = [edge / size for edge in shape.edges]
        axis.stairs(shape.counts, edges, fill=True, color=_KINDS[place % len(_KINDS)], alpha=0.8)
        for name, value in (("p50", spread.p50), ("p90", spread.p90), ("p99", spread.p99)):
            axis.axvline(value / size, color="black", linestyle=":", linewidth=1)
            axis.annotate(
                name,
                (value / size, 0.97),
                xycoords=("data", "axes fraction"),
                fontsize=8,
                rotation=90,
                va="top",
                ha="right",
            )
        # The many that do not wait would hide the few that do.
        axis.set_yscale("symlog", linthresh=10)
        axis.set_ylim(bottom=0)
        axis.set_title(f"{shape.kind} ({spread.count:,} starts)", loc="left", fontsize=10)
        axis.set_xlabel(unit)
        axis.set_ylabel("starts")
        axis.grid(visible=True, alpha=0.3)
    return figure


def _unit(most_ms: int) -> tuple[str, int]:
    for unit, size in (("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1_000)):
        if most_ms >= 3 * size:
            return unit, size
    return "milliseconds", 1
