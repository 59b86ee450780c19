"""The search for the nearest technicians.

It does not depend on how dense they are. Cells with numbers next to the position's are mostly near
it: the distance of the last technician wanted is an upper bound. The search then reads the few
squares within that bound, and only some rows of each. Squares that were not read to their end are
read again as smaller squares, within the bound of then. So the cost depends on how many are wanted,
not on how many there are.

Source: G. Hjaltason, H. Samet, Distance browsing in spatial databases, ACM TODS 24 (1999).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.systems.directory.database import Directory
from headway.systems.field_service.nearby.cells import (
    FARTHEST_KM,
    PER_DEGREE,
    WHOLE,
    Square,
    cell_of,
    check_position,
    cover,
    distance_km,
    position_of,
    reach_km,
)
from headway.systems.field_service.nearby.questions import Found, Questions, rarest_first
from headway.systems.field_service.skills import skill_key

MOST = 1_000
"""The most technicians that one search returns."""
_FEWEST = 24
"""The fewest rows that are read on either side, however few are wanted."""
_LOOKED_THROUGH = 512
"""Rows of one skill that are checked for further skills, on either side or in a square."""
_ROUNDING_KM = 1e-6
_FAR_KM = 20_000.0
_FAR_ROUNDING_KM = 1e-3
"""On the other side of the earth the haversine is exact to some decimetres only."""
_HALVES = tuple((1 << size) / PER_DEGREE / 2 for size in range(WHOLE + 1))
"""Half the side of squares of each size, in degrees."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A technician who could be asked.

    Attributes:
        idle_since: since when without a job, ms UTC.
    """

    id: str
    distance_km: float
    idle_since: int


async def nearby(
    directory: Directory,
    *,
    lat: float,
    lon: float,
    skills: Sequence[str] = (),
    radius_km: float = FARTHEST_KM,
    most: int = 50,
) -> list[Candidate]:
    """Return the technicians on duty within a radius who have all skills.

    Args:
        lat: degrees north, -90 to 90.
        lon: degrees east, -180 to 180.
        skills: case-insensitive; empty for no requirement.
        radius_km: how far, this distance included.
        most: at most so many, and at most 1000.

    Returns:
        The nearest first; at the same distance the longest idle; then the lesser id.

    Raises:
        InvalidValue: the position is not on the earth.
        StoreUnavailable: the directory cannot be reached.
    """
    lat, lon = check_position(lat, lon)
    if most < 1 or radius_km < 0:
        return []
    async with directory.read() as session:
        wanted = sorted({skill_key(one) for one in skills}) or [""]
        if len(wanted) > 1:
            wanted = await rarest_first(session, wanted, cell_of(lat, lon))
        questions = Questions(session, wanted[0], wanted[1:])
        return await _Search(questions, lat, lon, radius_km, min(most, MOST)).run()


class _Search:
    """One search."""

    def __init__(
        self, questions: Questions, lat: float, lon: float, radius_km: float, most: int
    ) -> None:
        self._questions = questions
        self._lat = lat
        self._lon = lon
        self._most = most
        self._look = max(most, _FEWEST, _LOOKED_THROUGH if questions.others else 0)
        # No technician farther away can be in the result.
        self._bound = radius_km
        self._near: list[tuple[float, int, str]] = []
        self._seen: set[str] = set()

    async def run(self) -> list[Candidate]:
        """Return the nearest technicians, in order."""
        cell = cell_of(self._lat, self._lon)
        most = max(self._most, _FEWEST)
        self._note(await self._questions.beside(cell, self._look, most))
        squares = self._so_near(cover(self._lat, self._lon, self._bound))
        while squares:
            crowded = await self._look_into(squares)
            squares = self._so_near(part for one in crowded for part in _split(one))
        return [
            Candidate(id=id_, distance_km=away, idle_since=idle_since)
            for away, idle_since, id_ in self._near
        ]

    async def _look_into(self, squares: Sequence[Square]) -> list[Square]:
        """Note who is in squares.

        Returns:
            Those in which not all have been looked at.
        """
        crowded: list[Square] = []
        found: list[Found] = []
        looked = await self._questions.inside(squares, self._look)
        for square, (seen, fit) in zip(squares, looked, strict=True):
            found += fit
            if seen < self._look:
                continue
            if square.size:
                crowded.append(square)
            else:
                found += await self._questions.longest_idle(square.first, self._most)
        self._note(found)
        return crowded

    def _note(self, found: Iterable[Found]) -> None:
        """Keep as many of the nearest as are wanted, and lower the bound to the last of them."""
        for id_, cell, idle_since in found:
            if id_ in self._seen:
                continue
            self._seen.add(id_)
            away = distance_km(self._lat, self._lon, *position_of(cell))
            if away <= self._bound:
                self._near.append((away, idle_since, id_))
        self._near = sorted(self._near)[: self._most]
        if len(self._near) == self._most:
            self._bound = self._near[-1][0]

    def _so_near(self, squares: Iterable[Square]) -> list[Square]:
        """The squares of which a point can be within the bound."""
        near: list[Square] = []
        for square in squares:
            lat, lon = square.middle
            away = distance_km(self._lat, self._lon, lat, lon)
            reach = reach_km(lat, _HALVES[square.size])
            rounding = _ROUNDING_KM if away + reach < _FAR_KM else _FAR_ROUNDING_KM
            if away - reach - rounding <= self._bound:
                near.append(square)
        return near


def _split(square: Square) -> Iterable[Square]:
    for quarter in square.quarters():
        yield from quarter.quarters() if quarter.size else (quarter,)
