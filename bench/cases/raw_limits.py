"""What apsw alone reaches on a file that the engine has made."""

from __future__ import annotations

from collections.abc import Callable

from bench.places.place import Place
from bench.places.sqlite import path_of
from bench.raw import RawTable
from bench.systems import with_headway


def raw_rate(place: Place, measure: Callable[[RawTable], float]) -> float:
    """Measures on the job table after the engine has put one job into it."""
    with_headway.fill(place.url, 1)
    table = RawTable.open(path_of(place.url))
    try:
        return measure(table)
    finally:
        table.close()
