"""The squares that hold all that is within a distance of a position."""

from __future__ import annotations

from math import asin, ceil, cos, degrees, floor, radians, sin

from headway.systems.field_service.nearby.cells import (
    COLUMNS,
    PER_DEGREE,
    ROWS,
    WHOLE,
    Square,
    square_at,
)
from headway.systems.field_service.nearby.sphere import EARTH_KM, FARTHEST_KM

MOST_SQUARES = 32
"""Of one cover."""
_FINER = 2
"""Powers of two by which squares may be smaller than half of what is covered is high."""
_MARGIN = 1e-5
"""Degrees: a metre, far more than what rounding can do."""


def cover(lat: float, lon: float, km: float) -> list[Square]:
    """The squares that hold all that is so near, and little else.

    Args:
        lat: of the position.
        lon: of the position.
        km: how near; more than half around the earth for all of it.

    Returns:
        At most 32 squares of one size; some of them may be farther away.
    """
    angle = min(km, FARTHEST_KM) / EARTH_KM
    up = degrees(angle) + _MARGIN
    low = max(floor((lat - up + 90) * PER_DEGREE), 0)
    high = min(ceil((lat + up + 90) * PER_DEGREE), ROWS - 1)
    columns = _columns(lat, lon, angle, pole=abs(lat) + up >= 90)
    for size in range(max((high - low >> _FINER).bit_length() - 1, 0), WHOLE):
        wide = [(first >> size, last >> size) for first, last in columns]
        tall = range(low >> size, (high >> size) + 1)
        if sum(last - first + 1 for first, last in wide) * len(tall) <= MOST_SQUARES:
            across = sorted({one for first, last in wide for one in range(first, last + 1)})
            return [square_at(size, x << size, y << size) for y in tall for x in across]
    return [square_at(WHOLE, 0, 0)]


def _columns(lat: float, lon: float, angle: float, *, pole: bool) -> list[tuple[int, int]]:
    """The first and last columns, in one range or, across the antimeridian, in two."""
    everything = [(0, COLUMNS - 1)]
    if pole:
        return everything
    away = degrees(asin(min(sin(angle) / cos(radians(lat)), 1.0))) + _MARGIN
    west = floor((lon - away + 180) * PER_DEGREE)
    east = ceil((lon + away + 180) * PER_DEGREE)
    if east - west >= COLUMNS - 1:
        return everything
    if west < 0:
        return [(0, east), (west + COLUMNS, COLUMNS - 1)]
    if east >= COLUMNS:
        return [(0, east - COLUMNS), (west, COLUMNS - 1)]
    return [(west, east)]
