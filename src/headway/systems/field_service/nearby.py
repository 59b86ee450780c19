"""The search for the nearest technicians.

Its cost depends on how many technicians are wanted, not on how many there are or how densely they
are spread. Cells numbered next to the position's cell are mostly near it, so the distance of the
last wanted technician among them is an upper bound. The search then reads the few squares within
that bound, up to a limit of rows each. Squares with more rows are split and read again, within a
bound that has shrunk by then.

Each query is one statement that scans the index of places. It reads no other table, because a
cell's number is its position.

Source: G. Hjaltason, H. Samet, Distance browsing in spatial databases, ACM TODS 24 (1999).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncSession

from headway.systems.directory.database import Directory
from headway.systems.field_service.cells import (
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
from headway.systems.field_service.records import join_skills, skill_key

_RARITY_STEPS = 64
"""Rows scanned on either side to estimate how far apart the technicians with a skill are."""
_BEYOND = 1 << 64

_FITS = {"sqlite": "instr(c.skills, {}) > 0", "postgresql": "strpos(c.skills, {}) > 0"}

_SQUARES = {
    "sqlite": """
        SELECT key AS n, json_extract(value, '$[0]') AS first, json_extract(value, '$[1]') AS last
        FROM json_each(:squares)
    """,
    "postgresql": """
        SELECT n - 1 AS n, (one ->> 0)::bigint AS first, (one ->> 1)::bigint AS last
        FROM json_array_elements(CAST(:squares AS json)) WITH ORDINALITY AS t(one, n)
    """,
}

_SKILLS = {
    "sqlite": "SELECT value AS skill FROM json_each(:skills)",
    "postgresql": "SELECT skill FROM json_array_elements_text(CAST(:skills AS json)) AS t(skill)",
}

# PostgreSQL assumes a small limit if it cannot know the value when planning: it then reads the
# index in order and stops. With a known limit it may fetch all rows and sort them.
_SCAN_LIMIT = "CAST(:scan_limit AS bigint)"

# One JSON value per square: a row per technician would cost more than its content.
_RESULT = {
    "sqlite": """
        json_array(count(*), json_group_array(json_array(technician_id, cell, idle_since)) {only})
    """,
    "postgresql": """
        CAST(json_build_array(count(*),
            json_agg(json_build_array(technician_id, cell, idle_since)) {only}) AS text)
    """,
}

_IN_SQUARES = """
    WITH w AS ({squares})
    SELECT n, (SELECT {result} FROM (
        SELECT p.technician_id, p.cell, p.idle_since {and_skills} FROM field_places p
        WHERE p.skill = :skill AND p.cell BETWEEN w.first AND w.last
        ORDER BY p.cell LIMIT (SELECT {scan_limit})) c)
    FROM w ORDER BY n
"""

_BESIDE = """
    SELECT * FROM (SELECT c.technician_id, c.cell, c.idle_since FROM (
        SELECT p.technician_id, p.cell, p.idle_since {and_skills} FROM field_places p
        WHERE p.skill = :skill AND p.cell >= :cell
        ORDER BY p.cell LIMIT (SELECT {scan_limit})) c {where} LIMIT :most) above
    UNION ALL
    SELECT * FROM (SELECT c.technician_id, c.cell, c.idle_since FROM (
        SELECT p.technician_id, p.cell, p.idle_since {and_skills} FROM field_places p
        WHERE p.skill = :skill AND p.cell < :cell
        ORDER BY p.cell DESC LIMIT (SELECT {scan_limit})) c {where} LIMIT :most) below
"""

_AT_ONE_PLACE = """
    SELECT c.technician_id, c.cell, c.idle_since FROM field_places c
    WHERE c.skill = :skill AND c.cell = :cell {and_fits}
    ORDER BY c.idle_since, c.technician_id LIMIT :most
"""

_RARITY = """
    WITH s AS ({skills})
    SELECT skill,
        (SELECT CASE WHEN count(*) = {scan_limit} THEN min(cell) END FROM (
            SELECT p.cell FROM field_places p
            WHERE p.skill = s.skill AND p.cell < :cell
            ORDER BY p.cell DESC LIMIT (SELECT {scan_limit})) c),
        (SELECT CASE WHEN count(*) = {scan_limit} THEN max(cell) END FROM (
            SELECT p.cell FROM field_places p
            WHERE p.skill = s.skill AND p.cell >= :cell
            ORDER BY p.cell LIMIT (SELECT {scan_limit})) c)
    FROM s
"""

Found = tuple[str, int, int]
"""A technician: id, cell, and since when without a job (ms UTC)."""


class SquareScan(NamedTuple):
    """The result of reading a square.

    Attributes:
        seen: number of rows read.
        fit: technicians among them who have all skills.
    """

    seen: int
    fit: Sequence[Found]


_SQUARE = msgspec.json.Decoder(tuple[int, list[Found] | None])


async def rarest_first(session: AsyncSession, skills: Sequence[str], cell: int) -> list[str]:
    """Sort skills by how far apart their holders are around a position, the rarest first."""
    statement = _statement(_RARITY, session.get_bind().dialect.name, 0)
    given = {
        "skills": msgspec.json.encode(skills).decode(),
        "cell": cell,
        "scan_limit": _RARITY_STEPS,
    }
    rows = await session.execute(statement, given)
    spans = {
        skill: (_BEYOND if last is None else int(last)) - (-1 if first is None else int(first))
        for skill, first, last in rows
    }
    return sorted(skills, key=lambda one: (-spans[one], one))


class SearchQueries:
    """The queries of one search, for one set of skills.

    Attributes:
        others: skills required in addition to the one whose places are scanned.
    """

    def __init__(self, session: AsyncSession, skill: str, others: Sequence[str]) -> None:
        """Bind the skills to a session.

        Args:
            skill: skill whose places are scanned; empty for none.
            others: skills required in addition.
        """
        self.others = tuple(others)
        self._session = session
        self._dialect = session.get_bind().dialect.name
        self._given: dict[str, Any] = {"skill": skill}
        for number, other in enumerate(others):
            self._given[f"other_{number}"] = join_skills((other,))

    async def beside(self, cell: int, scan_limit: int, most: int) -> Sequence[Found]:
        """Return the matching technicians next to a cell number.

        Args:
            scan_limit: maximum rows read on either side.
            most: maximum technicians returned from either side.
        """
        return await self._ask(_BESIDE, {"cell": cell, "scan_limit": scan_limit, "most": most})

    async def inside(self, squares: Sequence[Square], scan_limit: int) -> list[SquareScan]:
        """Return the matching technicians in squares.

        Args:
            scan_limit: maximum rows read per square.

        Returns:
            One result per square, in the order of `squares`.
        """
        asked = msgspec.json.encode([(one.first, one.last) for one in squares]).decode()
        rows = await self._ask(_IN_SQUARES, {"squares": asked, "scan_limit": scan_limit})
        scans = (_SQUARE.decode(one) for _, one in rows)
        return [SquareScan(seen, fit or ()) for seen, fit in scans]

    async def longest_idle(self, cell: int, most: int) -> Sequence[Found]:
        """Return the technicians at one position, the longest idle first, then by id."""
        return await self._ask(_AT_ONE_PLACE, {"cell": cell, "most": most})

    async def _ask(self, query: str, more: dict[str, Any]) -> Sequence[Any]:
        asked = _statement(query, self._dialect, len(self.others))
        return (await self._session.execute(asked, self._given | more)).all()


@cache
def _statement(query: str, dialect: str, others: int) -> TextClause:
    fits = " AND ".join(_FITS[dialect].format(f":other_{number}") for number in range(others))
    parts = {
        "{scan_limit}": _SCAN_LIMIT,
        "{squares}": _SQUARES[dialect],
        "{skills}": _SKILLS[dialect],
        "{result}": _RESULT[dialect],
        "{only}": f"FILTER (WHERE {fits})" if others else "",
        "{where}": f"WHERE {fits}" if others else "",
        "{and_fits}": f"AND {fits}" if others else "",
        "{and_skills}": ", p.skills" if others else "",
    }
    for name, part in parts.items():
        query = query.replace(name, part)
    return text(query)


MOST = 1_000
"""Maximum technicians that one search returns."""
_FEWEST = 24
"""Minimum of rows read on either side, however few technicians are wanted."""
_FILTERED_SCAN = 512
"""Minimum of rows checked for further skills, on either side or in a square."""
_ROUNDING_KM = 1e-6
_FAR_KM = 20_000.0
_FAR_ROUNDING_KM = 1e-3
"""On the opposite side of the earth, the haversine is only accurate to some decimetres."""
_HALVES = tuple((1 << size) / PER_DEGREE / 2 for size in range(WHOLE + 1))
"""Half the side of a square in degrees, by size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A technician who could be asked.

    Attributes:
        idle_since: since when the technician has had no job, ms UTC.
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
        radius_km: maximum distance, inclusive.
        most: maximum number of technicians; values above 1000 count as 1000.

    Returns:
        Nearest first; at the same distance the longest idle first, then by id.

    Raises:
        InvalidValue: the position is not on the earth.
    """
    lat, lon = check_position(lat, lon)
    if most < 1 or radius_km < 0:
        return []
    async with directory.read() as session:
        wanted = sorted({skill_key(one) for one in skills}) or [""]
        if len(wanted) > 1:
            wanted = await rarest_first(session, wanted, cell_of(lat, lon))
        queries = SearchQueries(session, wanted[0], wanted[1:])
        return await _Search(queries, lat, lon, radius_km, min(most, MOST)).run()


class _Search:
    def __init__(
        self, queries: SearchQueries, lat: float, lon: float, radius_km: float, most: int
    ) -> None:
        self._queries = queries
        self._lat = lat
        self._lon = lon
        self._most = most
        self._scan_limit = max(most, _FEWEST, _FILTERED_SCAN if queries.others else 0)
        # No technician farther away can be in the result.
        self._bound = radius_km
        self._near: list[tuple[float, int, str]] = []
        self._seen: set[str] = set()

    async def run(self) -> list[Candidate]:
        """Return the nearest technicians, in order."""
        cell = cell_of(self._lat, self._lon)
        most = max(self._most, _FEWEST)
        self._note(await self._queries.beside(cell, self._scan_limit, most))
        squares = self._within_bound(cover(self._lat, self._lon, self._bound))
        while squares:
            crowded = await self._read_squares(squares)
            squares = self._within_bound(part for one in crowded for part in _split(one))
        return [
            Candidate(id=id_, distance_km=away, idle_since=idle_since)
            for away, idle_since, id_ in self._near
        ]

    async def _read_squares(self, squares: Sequence[Square]) -> list[Square]:
        """Read squares, and note the technicians in them.

        Returns:
            The squares that have more rows than were read.
        """
        crowded: list[Square] = []
        found: list[Found] = []
        scans = await self._queries.inside(squares, self._scan_limit)
        for square, (seen, fit) in zip(squares, scans, strict=True):
            found += fit
            if seen < self._scan_limit:
                continue
            if square.size:
                crowded.append(square)
            else:
                found += await self._queries.longest_idle(square.first, self._most)
        self._note(found)
        return crowded

    def _note(self, found: Iterable[Found]) -> None:
        """Keep the nearest, as many as wanted, and lower the bound to the last one's distance."""
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

    def _within_bound(self, squares: Iterable[Square]) -> list[Square]:
        """Return the squares that can have a point within the bound."""
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
