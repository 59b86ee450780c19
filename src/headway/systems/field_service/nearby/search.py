"""The search for those who are nearest.

It knows nothing of how densely they live. It counts in squares around the position, which are the
smaller the nearer they are, and learns within which distance there are enough. Of the squares that
are so near, it divides those that are crowded and counts again; at last it reads the few who are
in what is left. What it reads is bounded by how many are wanted, not by how many there are.

Source: G. Hjaltason, H. Samet, Distance browsing in spatial databases, ACM TODS 24 (1999).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.systems.directory.database import Directory
from headway.systems.field_service.nearby.cells import Square
from headway.systems.field_service.nearby.cover import cover, mesh
from headway.systems.field_service.nearby.questions import Found, Questions, rarest_first
from headway.systems.field_service.nearby.sphere import (
    FARTHEST_KM,
    check_position,
    distance_km,
    least_km,
    most_km,
)
from headway.systems.field_service.skills import skill_key

MOST = 1_000
"""Who are told of one search."""
_CROWD = 32
"""So many in one square need not be told apart."""
_LOOKED_THROUGH = 1_024
"""Those with one of several skills that are looked through in one square."""
_ROUNDING_KM = 1e-8
_FAR_KM = 19_000.0
_FAR_ROUNDING_KM = 1e-3
"""Near the other side of the earth, the haversine is exact to a metre only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """Somebody who could be asked.

    Attributes:
        id: the technician's.
        distance_km: from the position.
        idle_since: since when without a job, ms UTC.
    """

    id: str
    distance_km: float
    idle_since: int


@dataclass(slots=True)
class _Part:
    """A square, as far as it is known.

    Attributes:
        square: which.
        least: no nearer is any point of it, km.
        most: no farther is any point of it, km.
        fit: so many are in it at least.
        crowded: whether there may be more.
    """

    square: Square
    least: float
    most: float
    fit: int
    crowded: bool


async def nearby(
    directory: Directory,
    *,
    lat: float,
    lon: float,
    skills: Sequence[str] = (),
    radius_km: float = FARTHEST_KM,
    most: int = 50,
) -> list[Candidate]:
    """Who is on duty within a radius and has all skills.

    Args:
        directory: whose technicians.
        lat: degrees north, -90 to 90.
        lon: degrees east, -180 to 180.
        skills: in any case; none for anybody.
        radius_km: how far, this distance included.
        most: at most so many.

    Returns:
        The nearest first; of those as near, who is idle longest; of those, the lesser id.

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
            wanted = await rarest_first(session, wanted, cover(lat, lon, radius_km))
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
        self._radius = radius_km
        self._most = most
        self._crowd = max(most, _CROWD)
        # Nobody farther can be among those who are told.
        self._bound = radius_km

    async def run(self) -> list[Candidate]:
        """Those who are nearest, in their order."""
        found = await self._read(await self._narrow())
        told = [
            Candidate(
                id=one.id,
                distance_km=distance_km(self._lat, self._lon, one.lat, one.lon),
                idle_since=one.idle_since,
            )
            for one in found
        ]
        near = [one for one in told if one.distance_km <= self._radius]
        near.sort(key=lambda one: (one.distance_km, one.idle_since, one.id))
        return near[: self._most]

    async def _narrow(self) -> list[_Part]:
        """Counts, and divides what is crowded, until all that is near enough is not.

        Returns:
            The parts that hold all who are near enough; crowded is only a single position.
        """
        settled: list[_Part] = []
        squares = mesh(self._lat, self._lon, self._radius)
        look = self._crowd
        while squares:
            crowded: list[_Part] = []
            for part in await self._count(squares, look):
                (crowded if part.crowded and part.square.size else settled).append(part)
            self._tighten([*settled, *crowded])
            near = [one.square for one in crowded if one.least <= self._bound]
            squares = [sixteenth for one in near for sixteenth in _split(one)]
            look = max(self._crowd, _LOOKED_THROUGH) if self._questions.others else self._crowd
        return [one for one in settled if one.least <= self._bound]

    async def _count(self, squares: Sequence[Square], look: int) -> list[_Part]:
        """The squares in which anybody is, near enough."""
        parts: list[_Part] = []
        counts = await self._questions.count(squares, look)
        for square, count in zip(squares, counts, strict=True):
            if not count.seen:
                continue
            box = square.box
            least = _below(least_km(self._lat, self._lon, box))
            if least <= self._bound:
                most = _above(most_km(self._lat, self._lon, box))
                crowded = count.seen >= look or count.fit > self._crowd
                parts.append(_Part(square, least, most, count.fit, crowded))
        return parts

    def _tighten(self, parts: Sequence[_Part]) -> None:
        """Lowers the bound to where enough have been counted."""
        enough = self._most
        for part in sorted(parts, key=_most):
            if part.most >= self._bound:
                return
            enough -= part.fit
            if enough <= 0:
                self._bound = part.most
                return

    async def _read(self, parts: Sequence[_Part]) -> list[Found]:
        plain = [one.square for one in parts if one.fit and not one.crowded]
        found = list(await self._questions.who(plain)) if plain else []
        for part in parts:
            if part.crowded:
                found += await self._questions.longest_idle(part.square.first, self._most)
        return found


def _most(part: _Part) -> float:
    return part.most


def _split(square: Square) -> Iterable[Square]:
    for quarter in square.quarters():
        yield from quarter.quarters() if quarter.size else (quarter,)


def _below(km: float) -> float:
    return km - (_FAR_ROUNDING_KM if km > _FAR_KM else _ROUNDING_KM)


def _above(km: float) -> float:
    return km + (_FAR_ROUNDING_KM if km > _FAR_KM else _ROUNDING_KM)
