"""Cells: positions as whole numbers, so that nearby numbers are nearby positions.

A position is a column and a row in units of 1e-7 degrees. The cell's number interleaves their bits
(Morton order), so the four quarters of a square follow one another, each whole: any aligned square
whose side is a power of two is one range of numbers. A circle is covered by a few such squares.

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
"""Half the circumference of the earth, the largest distance."""


def check_position(lat: float, lon: float) -> tuple[float, float]:
    """Validate and round a position.

    Args:
        lat: degrees north, -90 to 90.
        lon: degrees east, -180 to 180.

    Returns:
        The position with seven decimals; the longitude 180 becomes -180.

    Raises:
        InvalidValue: the latitude or longitude is out of range.
    """
    if not -90 <= lat <= 90:
        message = f"{lat} is not a valid latitude"
        raise InvalidValue(message, hint="use degrees north, from -90 to 90")
    if not -180 <= lon <= 180:
        message = f"{lon} is not a valid longitude"
        raise InvalidValue(message, hint="use degrees east, from -180 to 180")
    return rounded(lat), rounded_lon(lon)


def rounded(degrees: float) -> float:
    """Round degrees to seven decimals, the precision of positions."""
    # Adding 0 turns a negative zero into a positive one.
    return round(degrees, DIGITS) + 0.0


def rounded_lon(lon: float) -> float:
    """Round a longitude to seven decimals; 180 becomes -180."""
    east = rounded(lon)
    return -180.0 if east == 180 else east


def distance_km(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """Return the great-circle distance of two positions in km, by the haversine formula.

    Args:
        lat: degrees north.
        lon: degrees east.
    """
    up = sin(radians(other_lat - lat) / 2)
    along = sin(radians(other_lon - lon) / 2)
    half = up * up + cos(radians(lat)) * cos(radians(other_lat)) * along * along
    return 2 * EARTH_KM * asin(sqrt(min(half, 1.0)))


def reach_km(lat: float, degrees: float) -> float:
    """Return an upper bound of the distance from a square's middle to its corners, in km.

    Args:
        lat: latitude of the middle, degrees north.
        degrees: from the middle to a side, along the meridian and along the parallel.
    """
    half = sin(radians(min(degrees, 180.0)) / 2)
    # No parallel is longer than the equator, so one of the two cosines is taken as 1.
    return 2 * EARTH_KM * asin(min(half * sqrt(1 + cos(radians(lat))), 1.0))


DIGITS = 7
"""Decimal places of a position in degrees: about a centimetre."""
PER_DEGREE = 10**DIGITS
_TWICE = 2 * PER_DEGREE
COLUMNS = 360 * PER_DEGREE
ROWS = 180 * PER_DEGREE + 1
WHOLE = 32
"""Size of the square that covers the whole earth."""

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
    """Return the column of a longitude (-180 to below 180)."""
    return round((lon + 180) * PER_DEGREE) % COLUMNS


def row_of(lat: float) -> int:
    """Return the row of a latitude (-90 to 90)."""
    return round((lat + 90) * PER_DEGREE)


def cell_of(lat: float, lon: float) -> int:
    """Return the cell number of a position, unique at seven decimals.

    Returns:
        0 to 2**63 - 1.
    """
    return _weave(column_of(lon), row_of(lat))


def position_of(cell: int) -> tuple[float, float]:
    """Return the latitude and longitude of a cell number, to seven decimals."""
    row, column = _gather(cell >> 1), _gather(cell)
    return rounded(row / PER_DEGREE - 90), rounded(column / PER_DEGREE - 180)


class Square(NamedTuple):
    """A square of cells; a search makes dozens, hence no dataclass.

    Attributes:
        size: binary logarithm of the side in cells.
        column: column of the west side.
        row: row of the south side.
        first: lowest cell number in the square.
    """

    size: int
    column: int
    row: int
    first: int

    @property
    def last(self) -> int:
        """Highest cell number in the square."""
        return self.first + (1 << 2 * self.size) - 1

    @property
    def middle(self) -> tuple[float, float]:
        """Latitude and longitude of the middle of the part that is on the earth."""
        size, west, south, _ = self
        north, east = min(south + (1 << size), ROWS), min(west + (1 << size), COLUMNS)
        return (south + north) / _TWICE - 90, (west + east) / _TWICE - 180

    def quarters(self) -> Iterator[Square]:
        """Yield the quarters that are at least partly on the earth."""
        size, west, south, first = self
        size -= 1
        half = 1 << size
        for number in range(4):
            column = west + half * (number & 1)
            row = south + half * (number >> 1)
            if column < COLUMNS and row < ROWS:
                yield Square(size, column, row, first + (number << 2 * size))


def square_at(size: int, column: int, row: int) -> Square:
    """Return the square that contains a cell.

    Args:
        size: binary logarithm of the side in cells.
    """
    west, south = column >> size << size, row >> size << size
    return Square(size, west, south, _weave(west, south))


def _weave(column: int, row: int) -> int:
    return _spread(column) | _spread(row) << 1


def _spread(number: int) -> int:
    """Insert a zero before each bit of a 32-bit number."""
    for shift, mask in _MASKS:
        number = (number | number << shift) & mask
    return number


def _gather(number: int) -> int:
    """Extract every second bit of a number, starting with the lowest."""
    number &= 0x5555_5555_5555_5555
    for shift, mask in _BACK:
        number = (number | number >> shift) & mask
    return number


MOST_SQUARES = 32
"""Maximum squares of one cover."""
_FINER = 2
"""The smallest squares tried have the covered height shifted right by this as their side."""
_MARGIN = 1e-5
"""Degrees: about a metre, far more than any rounding error."""


def cover(lat: float, lon: float, km: float) -> list[Square]:
    """Return squares that cover the circle around a position, and little else.

    Args:
        km: radius; half the circumference of the earth or more covers everything.

    Returns:
        At most 32 squares of one size; some may be outside the circle.
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
    """Return the first and last column of one range or, across the antimeridian, of two."""
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
