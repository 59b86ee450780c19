"""Charts of the figures: bars for each comparison, with whiskers for minimum and maximum."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.notebook import HEADWAY, Figure, digits, figures_of
from bench.picture_names import picture

OURS = "#1b6ca8"
OTHERS = "#b8c4cc"
LIMIT = "#e0a458"
WIDTH, LEAST_HEIGHT, BAR = 13, 1.1, 0.24


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw one chart per store, with all cases in which several systems were measured.

    Args:
        result: The output of `--json`.
        path: The base of the charts' names; the ending selects PNG or SVG.
    """
    # Imported here: needed only for charts.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    # Makes the file reproducible.
    mpl.rcParams["svg.hashsalt"] = "headway"
    for store in result["stores"]:
        _draw(store, picture(path, store["store"]))


def _draw(store: Mapping[str, Any], path: Path) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415

    cases: dict[str, list[Figure]] = {}
    for figure in figures_of(store):
        cases.setdefault(figure.case, []).append(figure)
    shown = [(case, figures) for case, figures in cases.items() if len(figures) > 1]
    if not shown:
        return
    columns = 2
    pairs = [shown[at : at + columns] for at in range(0, len(shown), columns)]
    heights = [LEAST_HEIGHT + BAR * max(len(figures) for _, figures in pair) for pair in pairs]
    canvas, grid = plt.subplots(
        len(pairs),
        columns,
        figsize=(WIDTH, sum(heights)),
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
    )
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    peers = {peer["name"] for peer in store["peers"]}
    for axes, (case, figures) in zip(grid.flat, shown, strict=False):
        _bars(axes, case, figures, peers)
    canvas.suptitle(f"{HEADWAY.title()} on {store['title']}", fontsize=14, x=0.02, ha="left")
    marks = [plt.Rectangle((0, 0), 1, 1, color=color) for color in (OURS, OTHERS, LIMIT)]
    names = ["this engine", "peers", "the machine's limits"]
    canvas.legend(marks, names, loc="upper right", ncols=3, frameon=False, fontsize=9)
    canvas.tight_layout(rect=(0, 0, 1, 1 - 0.4 / sum(heights)))
    canvas.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(canvas)


def _bars(axes, case: str, figures: list[Figure], peers: set[str]) -> None:
    names = [figure.system for figure in figures]
    medians = [figure.median for figure in figures]
    below = [max(0.0, figure.median - min(figure.values)) for figure in figures]
    above = [max(0.0, max(figure.values) - figure.median) for figure in figures]
    places = range(len(figures))
    axes.barh(
        places,
        medians,
        xerr=[below, above],
        color=[_color(name, peers) for name in names],
        error_kw={"lw": 1, "capsize": 2},
    )
    axes.set_yticks(list(places), names, fontsize=8)
    axes.invert_yaxis()
    unit = figures[0].unit
    better = "more is better" if unit == "/s" else "less is better"
    axes.set_title(f"{case} ({unit}, {better})", fontsize=9, loc="left")
    most = max(max(figure.values) for figure in figures)
    axes.set_xlim(min(0.0, *medians), max(most, 1e-9) * 1.18)
    for place, figure in zip(places, figures, strict=True):
        end = max(0.0, *figure.values) + most * 0.01
        axes.text(end, place, digits(figure.median), va="center", fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _color(name: str, peers: set[str]) -> str:
    if name.startswith("apsw"):
        return LIMIT
    return OTHERS if name in peers else OURS
