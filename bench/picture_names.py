"""Names of a run's charts: one per store, next to the named file."""

from __future__ import annotations

from pathlib import Path


def picture(named: Path, store: str) -> Path:
    """Return the path of one store's chart.

    Args:
        named: The base of the name; the chart is an SVG unless this is a PNG.
        store: The store's name on the command line.
    """
    ending = ".png" if named.suffix == ".png" else ".svg"
    return named.with_name(f"{named.stem}-{store}{ending}")
