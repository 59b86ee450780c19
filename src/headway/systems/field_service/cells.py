"""Cells: positions as whole numbers, such that what is near in number is near on the earth.

A position is a column and a row of hundred-nanodegrees. The cell's number weaves their bits, so
the four quarters of a square are one after another, each whole: any square whose side is a power
of two is one range of numbers. A circle is covered by a few such squares.

Source: G. M. Morton, A computer oriented geodetic data base, IBM 1966.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import asin, ceil, cos, degrees, floor, pi, radians, sin, sqrt
from typing import NamedTuple

from headway.core.errors import InvalidValue

EARTH_KM = 6371.0088
"""The mean radius of the earth.

Source: IUGG, mean radius R1 of the GRS 80 ellipsoid.
"""
FARTHEST_KM = pi * EARTH_KM
"""Half around the earth: nothing is farther."""


def check_position(lat: float, lon: float) -> tuple[float, float]:
    """Accept a position.

    Args:
        lat: degrees north, -90 to 90.
        lon: degrees east, -180 to 180.

    Returns:
        The position with seven decimals; the longitude 180 becomes -180.

    Raises:
        InvalidValue: it is not on the earth.
    """
    if not -90 <= lat <= 90:
        message = f"the latitude {lat} is not on the earth"
        raise InvalidValue(message, hint="degrees north, from -90 to 90")
    if not -180 <= lon <= 180:
        message = f"the longitude {lon} is not on the earth"
        raise InvalidValue(message, hint="degrees east, from -180 to 180")
    return rounded(lat), rounded_lon(lon)


def rounded(degrees: float) -> float:
    """Return degrees with seven decimals, as positions have them."""
    # Adding 0 makes the negative zero positive.
    return round(degrees, DIGITS) + 0.0


def rounded_lon(lon: float) -> float:
    """Return a longitude with seven decimals; 180 becomes -180."""
    east = rounded(lon)
    return -180.0 if east == 180 else east


def distance_km(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """Return how far two positions are from each other, by the shortest way.

    Args:
        lat: of one, degrees north.
        lon: of one, degrees east.

    Returns:
        Kilometres, by the haversine formula.
    """
    up = sin(radians(other_lat - lat) / 2)
    along = sin(radians(other_lon - lon) / 2)
    half = up * up + cos(radians(lat)) * cos(radians(other_lat)) * along * along
    return 2 * EARTH_KM * asin(sqrt(min(half, 1.0)))


def reach_km(lat: float, degrees: float) -> float:
    """Return how far the corners of a square are from its middle, at most.

    Args:
        lat: of the middle, degrees north.
        degrees: from the middle to a side, along the meridian and along the parallel.

    Returns:
        Kilometres.
    """
    half = sin(radians(min(degrees, 180.0)) / 2)
    # A parallel is nowhere longer than at the equator: one of the two cosines is taken as 1.
    return 2 * EARTH_KM * asin(min(half * sqrt(1 + cos(radians(lat))), 1.0))


DIGITS = 7
"""Decimal places of a position in degrees: about a centimetre."""
PER_DEGREE = 10**DIGITS
_TWICE = 2 * PER_DEGREE
COLUMNS = 360 * PER_DEGREE
ROWS = 180 * PER_DEGREE + 1
WHOLE = 32
"""The square of 2 to the power of this is the whole earth."""

_MASKS = (
    (16, 0x0000_FFFF_0000_FFFF),
    (8, 0x00FF_00FF_00FF_00FF),
    (4, 0x0F0F_0F0F_0F0F_0F0F),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
)
_BACK = (
    (1, 0x3333_3333_3333_3333),
    (2, 0x0F0F_0F0F_0F0F_0F0F),
    (4, 0x00FF_00FF_00FF_00FF),
    (8, 0x0000_FFFF_0000_FFFF),
    (16, 0x0000_0000_FFFF_FFFF),
)


def column_of(lon: float) -> int:
    """Return the column of a longitude, -180 to below 180."""
    return round((lon + 180) * PER_DEGREE) % COLUMNS


def row_of(lat: float) -> int:
    """Return the row of a latitude, -90 to 90."""
    return round((lat + 90) * PER_DEGREE)


def cell_of(lat: float, lon: float) -> int:
    """Return the number of a position; no other position, to seven digits, has it.

    Returns:
        0 to 2**63 - 1.
    """
    return _weave(column_of(lon), row_of(lat))


def position_of(cell: int) -> tuple[float, float]:
    """Return the position that has a number: latitude and longitude, to seven digits."""
    row, column = _gather(cell >> 1), _gather(cell)
    return rounded(row / PER_DEGREE - 90), rounded(column / PER_DEGREE - 180)


class Square(NamedTuple):
    """A square of cells; a search makes dozens, hence no dataclass.

    Attributes:
        size: its side is 2 to the power of this, in cells.
        column: of its west side, in cells.
        row: of its south side, in cells.
        first: the least number in it.
    """

    size: int
    column: int
    row: int
    first: int

    @property
    def last(self) -> int:
        """The greatest number in it."""
        return self.first + (1 << 2 * self.size) - 1

    @property
    def middle(self) -> tuple[float, float]:
        """Latitude and longitude of the middle of what is on the earth."""
        size, west, south, _ = self
        north, east = min(south + (1 << size), ROWS), min(west + (1 << size), COLUMNS)
        return (south + north) / _TWICE - 90, (west + east) / _TWICE - 180

    def quarters(self) -> Iterator[Square]:
        """Yield its quarters, as far as they are on the earth."""
        size, west, south, first = self
        size -= 1
        half = 1 << size
        for number in range(4):
            column = west + half * (number & 1)
            row = south + half * (number >> 1)
            if column < COLUMNS and row < ROWS:
                yield Square(size, column, row, first + (number << 2 * size))


def square_at(size: int, column: int, row: int) -> Square:
    """Return the square of a size that holds a cell.

    Args:
        size: its side is 2 to the power of this, in cells.
    """
    west, south = column >> size << size, row >> size << size
    return Square(size, west, south, _weave(west, south))


def _weave(column: int, row: int) -> int:
    return _spread(column) | _spread(row) << 1


def _spread(number: int) -> int:
    """Return a number of 32 bits with a zero before each bit."""
    for shift, mask in _MASKS:
        number = (number | number << shift) & mask
    return number


def _gather(number: int) -> int:
    """Return every second bit of a number, from the lowest on."""
    number &= 0x5555_5555_5555_5555
    for shift, mask in _BACK:
        number = (number | number >> shift) & mask
    return number


MOST_SQUARES = 32
"""The most squares of one cover."""
_FINER = 2
"""Powers of two by which squares may be smaller than half of what is covered is high."""
_MARGIN = 1e-5
"""Degrees: a metre, far more than what rounding can do."""


def cover(lat: float, lon: float, km: float) -> list[Square]:
    """Return the squares that hold all that is so near, and little else.

    Args:
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
    """Return the first and last columns, in one range or, across the antimeridian, in two."""
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
