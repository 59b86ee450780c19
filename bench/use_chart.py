"""A chart of the use of channels over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from bench.chart import OTHERS, OURS

SPAN_MS = {"seconds": 1_000, "minutes": 60_000}
COLUMNS = 700
"""Maximum number of points; more are averaged, weighted by duration."""


def draw(
    points: Sequence[tuple[int, int, int]], path: Path, unit: Literal["seconds", "minutes"]
) -> None:
    """Draw the channels in use and those that the gates allowed.

    Args:
        points: (ms, in use, allowed) whenever either changed.
        path: The SVG to write.
        unit: Unit of the time axis, which starts at the first point.
    """
    # Imported here: needed only for charts.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("svg")
    # Makes the file reproducible.
    mpl.rcParams["svg.hashsalt"] = "headway"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    means = _means(points)
    at = [(one[0] - points[0][0]) / SPAN_MS[unit] for one in means]
    figure, axes = plt.subplots(figsize=(9, 3.2))
    allowed = [one[2] for one in means]
    axes.fill_between(at, allowed, step="post", color=OTHERS, label="what the gates allow")
    axes.step(at, [one[1] for one in means], where="post", color=OURS, lw=0.8)
    axes.plot([], [], color=OURS, label="channels in use")
    axes.set_xlabel(unit)
    axes.set_ylabel("channels")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _means(points: Sequence[tuple[int, int, int]]) -> list[tuple[float, float, float]]:
    """Return the points reduced to at most `COLUMNS`."""
    if len(points) <= COLUMNS:
        return [(float(at), float(used), float(allowed)) for at, used, allowed in points]
    begin, end = points[0][0], points[-1][0]
    width = (end - begin) / COLUMNS
    sums = [[0.0, 0.0] for _ in range(COLUMNS)]
    for (at, used, allowed), (until, _, _) in pairwise(points):
        first, last = (min(COLUMNS - 1, int((one - begin) / width)) for one in (at, until))
        for column in range(first, last + 1):
            left, right = begin + column * width, begin + (column + 1) * width
            held = max(0.0, min(until, right) - max(at, left))
            sums[column][0] += used * held
            sums[column][1] += allowed * held
    return [
        (begin + column * width, used / width, allowed / width)
        for column, (used, allowed) in enumerate(sums)
    ]
