"""The rates that apsw alone reaches on a file created by the engine."""

from __future__ import annotations

from collections.abc import Callable

from bench.places.place import Place
from bench.places.sqlite import path_of
from bench.raw import RawTable
from bench.systems import with_headway


def raw_rate(place: Place, measure: Callable[[RawTable], float]) -> float:
    """Measure on the job table after the engine has inserted one job."""
    with_headway.fill(place.url, 1)
    table = RawTable.open(path_of(place.url))
    try:
        return measure(table)
    finally:
        table.close()
