"""The use of the channels against time, as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from bench.campaign.day import Seen
from bench.campaign.plan import MINUTE, START


def draw(seen: Seen, path: Path) -> None:
    """Draws channels in use beside those that the gates allowed.

    Args:
        seen: of one day.
        path: an SVG.
    """
    mpl.use("svg")
    # The same numbers draw the same file.
    mpl.rcParams["svg.hashsalt"] = "campaign"
    at = [(one[0] - START) / MINUTE for one in seen.points]
    figure, axes = plt.subplots(figsize=(9, 3.2))
    allowed = [one[2] for one in seen.points]
    axes.fill_between(at, allowed, step="post", color="#d9e2ec", label="what the gates allow")
    axes.step(at, [one[1] for one in seen.points], where="post", color="#2c6fbb", lw=0.7)
    axes.plot([], [], color="#2c6fbb", label="channels in use")
    axes.set_xlabel("minutes of the day")
    axes.set_ylabel("channels")
    axes.legend(loc="lower center", ncols=2, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
