"""Cells: positions as whole numbers, such that what is near in number is near on the earth.

A position is a column and a row of hundred-nanodegrees. The cell's number weaves their bits, so
the four quarters of a square are one after another, each whole: any square whose side is a power
of two is one range of numbers.

Source: G. M. Morton, A computer oriented geodetic data base, IBM 1966.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DIGITS = 7
"""Of a position in degrees, after the point: about a centimetre."""
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
    """The column of a longitude, -180 to below 180."""
    return round((lon + 180) * PER_DEGREE) % COLUMNS


def row_of(lat: float) -> int:
    """The row of a latitude, -90 to 90."""
    return round((lat + 90) * PER_DEGREE)


def cell_of(lat: float, lon: float) -> int:
    """The number of a position; no other position, to seven digits, has it.

    Returns:
        0 to 2**63 - 1.
    """
    return _weave(column_of(lon), row_of(lat))


def position_of(cell: int) -> tuple[float, float]:
    """The position that has a number: latitude and longitude, to seven digits."""
    row, column = _gather(cell >> 1), _gather(cell)
    # Adding 0 makes the negative zero positive.
    return round(row / PER_DEGREE - 90, DIGITS) + 0.0, round(
        column / PER_DEGREE - 180, DIGITS
    ) + 0.0


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
        """Its quarters, as far as they are on the earth."""
        size, west, south, first = self
        size -= 1
        half = 1 << size
        for number in range(4):
            column = west + half * (number & 1)
            row = south + half * (number >> 1)
            if column < COLUMNS and row < ROWS:
                yield Square(size, column, row, first + (number << 2 * size))


def square_at(size: int, column: int, row: int) -> Square:
    """The square of a size that holds a cell.

    Args:
        size: its side is 2 to the power of this, in cells.
        column: of the cell.
        row: of the cell.
    """
    west, south = column >> size << size, row >> size << size
    return Square(size, west, south, _weave(west, south))


def _weave(column: int, row: int) -> int:
    return _spread(column) | _spread(row) << 1


def _spread(number: int) -> int:
    """A number of 32 bits, with a zero before each of them."""
    for shift, mask in _MASKS:
        number = (number | number << shift) & mask
    return number


def _gather(number: int) -> int:
    """Every second bit of a number, from the lowest on."""
    number &= 0x5555_5555_5555_5555
    for shift, mask in _BACK:
        number = (number | number >> shift) & mask
    return number
