"""Plots of a report: gate use over time, and the distribution of waits. Needs matplotlib."""

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
_TICKS = (
    ("0", 0),
    ("1 s", 1),
    ("10 s", 10),
    ("1 min", 60),
    ("10 min", 600),
    ("1 h", 3_600),
    ("6 h", 21_600),
    ("1 d", 86_400),
    ("1 week", 604_800),
)
_MOST_GATES = 8
_FULL = "#c0392b"
_USE = "#2c6fbb"
_KINDS = ("#2c6fbb", "#d98324", "#3c8d5a", "#8e5ea2", "#7f7f7f")


def check_plotting(folder: Path) -> None:
    """Check that plots can be drawn, and create their folder if it does not exist.

    Raises:
        InvalidValue: matplotlib is not installed, or the folder cannot be created.
    """
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        message = "cannot draw plots: matplotlib is not installed"
        raise InvalidValue(message, hint="pip install 'headway[plot]', or omit --out") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder {folder} cannot be created: {error.strerror}"
        raise InvalidValue(message, hint="choose another") from None


def draw(reports: Sequence[Report], folder: Path, *, kind: str = "png") -> list[Path]:
    """Plot the gates and the waits of each report, and return the files written.

    Args:
        folder: created if it does not exist.
        kind: "png" or "svg".

    Raises:
        InvalidValue: matplotlib is not installed, the kind is not supported, or the folder cannot
            be created.
    """
    check_plotting(folder)
    if kind not in FORMATS:
        message = f"{kind!r} is not a supported plot format"
        raise InvalidValue(message, hint=" or ".join(FORMATS))
    files: list[Path] = []
    stems: set[str] = set()
    for report in reports:
        stem = "".join(one if one.isalnum() else "-" for one in report.name)[:80]
        while stem in stems:
            stem = f"{stem}-{len(stems)}"
        stems.add(stem)
        for what, figure in (("gates", _gates(report)), ("waits", _waits(report))):
            path = folder / f"{stem}.{what}.{kind}"
            # Without a date or version, so that the same numbers give the same file.
            figure.savefig(path, metadata={"Date": None} if kind == "svg" else {"Software": None})
            files.append(path)
    return files


def _figure(height: int, rows: int, title: str) -> tuple[Any, list[Any]]:
    # Not by pyplot, which has global state and may open a window.
    made: Any = importlib.import_module("matplotlib.figure")
    # Names are shown as they are, even with dollar signs, which would make them formulas.
    options = {"svg.hashsalt": "headway", "text.parse_math": False}
    importlib.import_module("matplotlib").rcParams.update(options)
    figure = made.Figure(figsize=(11, 1.0 + 2.1 * height), dpi=110, layout="constrained")
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
    figure, axes = _figure(max(1, len(kept)), max(1, len(kept)), title)
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
    # Room for the legend above the limit.
    most = max([*curve.peak, *(one or 0 for one in curve.capacity), 1])
    axis.set_ylim(0, most * 1.3)
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
    figure, (axis,) = _figure(2, 1, f"{report.name}: waits, from due to start")
    shapes = [shape for shape in report.shapes if shape.total]
    if not shapes:
        axis.text(0.5, 0.5, "nothing started", ha="center", va="center")
    counts = {row.kind: row.total.count for row in report.waits}
    shares = [half / 2 for half in range(201)]
    for place, shape in enumerate(shapes):
        color = _KINDS[place % len(_KINDS)]
        name = f"{shape.kind}: {counts[shape.kind]:,} starts"
        total, behind = ([ms / 1000 for ms in part] for part in (shape.total, shape.behind))
        axis.step(total, shares, where="post", color=color, label=name)
        if any(behind):
            label = f"{shape.kind}: of it behind gates"
            axis.step(
                behind, shares, where="post", color=color, linewidth=6, alpha=0.25, label=label
            )
    most = max((shape.total[-1] / 1000 for shape in shapes), default=0.0)
    _time_axis(axis, most)
    axis.set_ylim(0, 102)
    axis.set_yticks([0, 25, 50, 75, 90, 99])
    axis.set_ylabel("% of starts waited no longer")
    axis.grid(visible=True, alpha=0.3)
    if shapes:
        axis.legend(loc="lower right", fontsize=8, framealpha=0.9)
    return figure


def _time_axis(axis: Any, most: float) -> None:  # noqa: ANN401
    """Scale the axis from zero to days: linear up to a second, logarithmic above."""
    axis.set_xscale("symlog", linthresh=1.0)
    ticks = [tick for tick in _TICKS if tick[1] <= max(most, 1.0)]
    axis.set_xticks([seconds for _, seconds in ticks], [name for name, _ in ticks])
    axis.xaxis.set_minor_locator(_ticker().NullLocator())
    axis.set_xlim(0, max(most, 1.0) * 1.05)
    axis.set_xlabel("wait")
