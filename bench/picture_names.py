"""Where the pictures of a run lie: one for each store, beside the file that was named."""

from __future__ import annotations

from pathlib import Path


def picture(named: Path, store: str) -> Path:
    """The picture of one store.

    Args:
        named: what the picture is named after; SVG unless it is itself a PNG.
        store: as the command says it.
    """
    ending = ".png" if named.suffix == ".png" else ".svg"
    return named.with_name(f"{named.stem}-{store}{ending}")
