"""The figures as one picture: a row of bars for each comparison, with whiskers to its ends."""

from __future__ import annotations

from pathlib import Path

from bench.notebook import Figure, Notebook, digits

OURS = "#1b6ca8"
OTHERS = "#b8c4cc"
LIMIT = "#e0a458"


def draw(notebook: Notebook, path: Path) -> None:
    """Draws all cases in which more than one was measured.

    Args:
        notebook: what was measured.
        path: PNG or SVG, by its ending.
    """
    # Only who wants a picture needs the library.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    cases: dict[str, list[Figure]] = {}
    for figure in notebook.figures:
        cases.setdefault(figure.case, []).append(figure)
    shown = {case: figures for case, figures in cases.items() if len(figures) > 1}
    if not shown:
        return
    columns = 2
    rows = -(-len(shown) // columns)
    canvas, grid = plt.subplots(rows, columns, figsize=(13, 2.3 * rows), squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, (case, figures) in zip(grid.flat, shown.items(), strict=False):
        _bars(axes, case, figures)
    canvas.suptitle("Headway on SQLite, synchronous=FULL", fontsize=14)
    marks = [plt.Rectangle((0, 0), 1, 1, color=color) for color in (OURS, OTHERS, LIMIT)]
    names = ["this engine", "peers", "the machine's limits"]
    canvas.legend(marks, names, loc="upper right", ncols=3, frameon=False, fontsize=9)
    canvas.tight_layout(rect=(0, 0, 1, 0.98))
    canvas.savefig(path, dpi=110)
    plt.close(canvas)


def _bars(axes, case: str, figures: list[Figure]) -> None:
    names = [figure.system for figure in figures]
    medians = [figure.median for figure in figures]
    below = [max(0.0, figure.median - min(figure.values)) for figure in figures]
    above = [max(0.0, max(figure.values) - figure.median) for figure in figures]
    places = range(len(figures))
    axes.barh(
        places,
        medians,
        xerr=[below, above],
        color=[_color(name) for name in names],
        error_kw={"lw": 1, "capsize": 2},
    )
    axes.set_yticks(list(places), names, fontsize=8)
    axes.invert_yaxis()
    unit = figures[0].unit
    better = "more is better" if unit == "/s" else "less is better"
    axes.set_title(f"{case} ({unit}, {better})", fontsize=9, loc="left")
    most = max(max(figure.values) for figure in figures)
    axes.set_xlim(min(0.0, *medians), most * 1.18)
    for place, figure in zip(places, figures, strict=True):
        end = max(0.0, *figure.values) + most * 0.01
        axes.text(end, place, digits(figure.median), va="center", fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _color(name: str) -> str:
    if name.startswith("apsw"):
        return LIMIT
    return OTHERS if name in {"huey", "litequeue"} else OURS
