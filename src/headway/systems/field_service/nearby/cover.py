"""The squares that hold all that is within a distance of a position."""

from __future__ import annotations

from math import asin, ceil, cos, degrees, floor, radians, sin

from headway.systems.field_service.nearby.cells import (
    COLUMNS,
    PER_DEGREE,
    ROWS,
    WHOLE,
    Square,
    column_of,
    row_of,
)
from headway.systems.field_service.nearby.sphere import EARTH_KM, FARTHEST_KM

MOST_SQUARES = 12
"""Of one cover."""
SMALLEST = 14
"""The size of the smallest squares of a mesh: about 200 m."""
NEAR = 0.25
"""Sides: a square that is so near is too large for a mesh."""
_MARGIN = 1e-6
"""Degrees: far more than what rounding can do."""


def cover(lat: float, lon: float, km: float) -> list[Square]:
    """The squares that hold all that is so near, and little else.

    Args:
        lat: of the position.
        lon: of the position.
        km: how near; more than half around the earth for all of it.

    Returns:
        At most 12 squares of one size; some of them may be farther away.
    """
    angle = km / EARTH_KM
    up = degrees(angle) + _MARGIN
    low = max(floor((lat - up + 90) * PER_DEGREE), 0)
    high = min(ceil((lat + up + 90) * PER_DEGREE), ROWS - 1)
    columns = _columns(lat, lon, angle, pole=abs(lat) + up >= 90 or km >= FARTHEST_KM)
    for size in range(max((high - low) // 2, 1).bit_length() - 1, WHOLE):
        wide = [(first >> size, last >> size) for first, last in columns]
        tall = range(low >> size, (high >> size) + 1)
        if sum(last - first + 1 for first, last in wide) * len(tall) <= MOST_SQUARES:
            across = sorted({one for first, last in wide for one in range(first, last + 1)})
            return [Square(size, column, row) for row in tall for column in across]
    return [Square(WHOLE, 0, 0)]


def mesh(lat: float, lon: float, km: float) -> list[Square]:
    """As `cover`, but the nearer a square is, the smaller it is, to about 200 m.

    Returns:
        Squares of many sizes, none of which is in another.
    """
    column, row, narrowing = column_of(lon), row_of(lat), cos(radians(lat))
    made: list[Square] = []
    squares = cover(lat, lon, km)
    while squares:
        one = squares.pop()
        side = 1 << one.size
        west, south = one.column * side, one.row * side
        across = 0 if west <= column < west + side else _apart(column, west, west + side)
        up = max(south - row, row - south - side, 0)
        if one.size > SMALLEST and max(across * narrowing, up) < NEAR * side:
            squares += one.quarters()
        else:
            made.append(one)
    return made


def _apart(column: int, west: int, east: int) -> int:
    """Columns between a column and the nearer edge of others, around the earth."""
    return min((west - column) % COLUMNS, (column - east) % COLUMNS)


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
