"""What the search asks the database: who is in squares, and who comes next in number.

Each question is one statement, whatever it asks for, and walks the index of places: no other
table is read, as a cell's number is the position itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncSession

from headway.systems.field_service.nearby.cells import Square
from headway.systems.field_service.skills import held

_RARITY_STEPS = 64
"""So many are walked on either side to learn how far apart those with a skill are."""
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
_LOOK = "CAST(:look AS bigint)"

# One JSON value per square: a row each would cost more than its content.
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
        ORDER BY p.cell LIMIT (SELECT {look})) c)
    FROM w ORDER BY n
"""

_BESIDE = """
    SELECT * FROM (SELECT c.technician_id, c.cell, c.idle_since FROM (
        SELECT p.technician_id, p.cell, p.idle_since {and_skills} FROM field_places p
        WHERE p.skill = :skill AND p.cell >= :cell
        ORDER BY p.cell LIMIT (SELECT {look})) c {where} LIMIT :most) above
    UNION ALL
    SELECT * FROM (SELECT c.technician_id, c.cell, c.idle_since FROM (
        SELECT p.technician_id, p.cell, p.idle_since {and_skills} FROM field_places p
        WHERE p.skill = :skill AND p.cell < :cell
        ORDER BY p.cell DESC LIMIT (SELECT {look})) c {where} LIMIT :most) below
"""

_AT_ONE_PLACE = """
    SELECT c.technician_id, c.cell, c.idle_since FROM field_places c
    WHERE c.skill = :skill AND c.cell = :cell {and_fits}
    ORDER BY c.idle_since, c.technician_id LIMIT :most
"""

_RARITY = """
    WITH s AS ({skills})
    SELECT skill,
        (SELECT CASE WHEN count(*) = {look} THEN min(cell) END FROM (
            SELECT p.cell FROM field_places p
            WHERE p.skill = s.skill AND p.cell < :cell
            ORDER BY p.cell DESC LIMIT (SELECT {look})) c),
        (SELECT CASE WHEN count(*) = {look} THEN max(cell) END FROM (
            SELECT p.cell FROM field_places p
            WHERE p.skill = s.skill AND p.cell >= :cell
            ORDER BY p.cell LIMIT (SELECT {look})) c)
    FROM s
"""

Found = tuple[str, int, int]
"""A technician: the id, the cell, since when without a job."""


class Looked(NamedTuple):
    """What was found in a square.

    Attributes:
        seen: so many were looked at.
        fit: those of them who have all skills.
    """

    seen: int
    fit: Sequence[Found]


_LOOKED = msgspec.json.Decoder(tuple[int, list[Found] | None])


async def rarest_first(session: AsyncSession, skills: Sequence[str], cell: int) -> list[str]:
    """Skills, those first whose holders are farther apart around a position."""
    statement = _statement(_RARITY, session.get_bind().dialect.name, 0)
    given = {"skills": msgspec.json.encode(skills).decode(), "cell": cell, "look": _RARITY_STEPS}
    rows = await session.execute(statement, given)
    spans = {
        skill: (_BEYOND if last is None else int(last)) - (-1 if first is None else int(first))
        for skill, first, last in rows
    }
    return sorted(skills, key=lambda one: (-spans[one], one))


class Questions:
    """What is asked of one session, for one set of skills.

    Attributes:
        others: the skills that must be there besides the one along which is walked.
    """

    def __init__(self, session: AsyncSession, skill: str, others: Sequence[str]) -> None:
        """Keep what all questions have in common.

        Args:
            skill: along which is walked; empty for none.
            others: those that must be there besides.
        """
        self.others = tuple(others)
        self._session = session
        self._dialect = session.get_bind().dialect.name
        self._given: dict[str, Any] = {"skill": skill}
        for number, other in enumerate(others):
            self._given[f"other_{number}"] = held((other,))

    async def beside(self, cell: int, look: int, most: int) -> Sequence[Found]:
        """Return the matching technicians next to a cell number.

        Args:
            look: so many are looked at, on either side.
            most: the most that are returned, of either side.
        """
        return await self._ask(_BESIDE, {"cell": cell, "look": look, "most": most})

    async def inside(self, squares: Sequence[Square], look: int) -> list[Looked]:
        """Return the matching technicians in squares.

        Args:
            look: of one square no more are looked at.

        Returns:
            One for each square, in their order.
        """
        asked = msgspec.json.encode([(one.first, one.last) for one in squares]).decode()
        rows = await self._ask(_IN_SQUARES, {"squares": asked, "look": look})
        looked = (_LOOKED.decode(one) for _, one in rows)
        return [Looked(seen, fit or ()) for seen, fit in looked]

    async def longest_idle(self, cell: int, most: int) -> Sequence[Found]:
        """Those at one position who are idle longest; of two, the one with the lesser id."""
        return await self._ask(_AT_ONE_PLACE, {"cell": cell, "most": most})

    async def _ask(self, query: str, more: dict[str, Any]) -> Sequence[Any]:
        asked = _statement(query, self._dialect, len(self.others))
        return (await self._session.execute(asked, self._given | more)).all()


@cache
def _statement(query: str, dialect: str, others: int) -> TextClause:
    fits = " AND ".join(_FITS[dialect].format(f":other_{number}") for number in range(others))
    parts = {
        "{look}": _LOOK,
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
