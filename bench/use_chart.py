"""The use of channels against time, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from bench.chart import OTHERS, OURS

SPAN_MS = {"seconds": 1_000, "minutes": 60_000}


def draw(
    points: Sequence[tuple[int, int, int]], path: Path, unit: Literal["seconds", "minutes"]
) -> None:
    """Draws channels in use beside those that the gates allowed.

    Args:
        points: (ms, in use, allowed) whenever either changed.
        path: an SVG.
        unit: of the time, from the first point on.
    """
    # Only who wants a picture needs the library.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("svg")
    # The same numbers draw the same file.
    mpl.rcParams["svg.hashsalt"] = "headway"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    at = [(one[0] - points[0][0]) / SPAN_MS[unit] for one in points]
    figure, axes = plt.subplots(figsize=(9, 3.2))
    allowed = [one[2] for one in points]
    axes.fill_between(at, allowed, step="post", color=OTHERS, label="what the gates allow")
    axes.step(at, [one[1] for one in points], where="post", color=OURS, lw=0.8)
    axes.plot([], [], color=OURS, label="channels in use")
    axes.set_xlabel(unit)
    axes.set_ylabel("channels")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower center", ncols=2, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
