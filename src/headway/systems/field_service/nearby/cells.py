"""Cells: positions as whole numbers, such that what is near in number is near on the earth.

A position is a column and a row of hundred-nanodegrees. The cell's number weaves their bits, so
the four quarters of a square are one after another, each whole: any square whose side is a power
of two is one range of numbers.

Source: G. M. Morton, A computer oriented geodetic data base, IBM 1966.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PER_DEGREE = 10_000_000
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


@dataclass(frozen=True, slots=True)
class Square:
    """A square of cells.

    Attributes:
        size: its side is 2 to the power of this, in cells.
        column: of its west side, in squares.
        row: of its south side, in squares.
    """

    size: int
    column: int
    row: int

    @property
    def first(self) -> int:
        """The least number in it."""
        return _weave(self.column, self.row) << 2 * self.size

    @property
    def last(self) -> int:
        """The greatest number in it."""
        return self.first + (1 << 2 * self.size) - 1

    @property
    def box(self) -> tuple[float, float, float, float]:
        """South, west, north and east, in degrees."""
        side = 1 << self.size
        south, west = self.row * side, self.column * side
        north, east = min(south + side, ROWS), min(west + side, COLUMNS)
        return (
            south / PER_DEGREE - 90,
            west / PER_DEGREE - 180,
            min(north / PER_DEGREE - 90, 90.0),
            east / PER_DEGREE - 180,
        )

    def quarters(self) -> Iterator[Square]:
        """Its quarters, as far as they are on the earth."""
        size = self.size - 1
        for row in (2 * self.row, 2 * self.row + 1):
            for column in (2 * self.column, 2 * self.column + 1):
                if column << size < COLUMNS and row << size < ROWS:
                    yield Square(size, column, row)


def _weave(column: int, row: int) -> int:
    return _spread(column) | _spread(row) << 1


def _spread(number: int) -> int:
    """A number of 32 bits, with a zero before each of them."""
    for shift, mask in _MASKS:
        number = (number | number << shift) & mask
    return number
