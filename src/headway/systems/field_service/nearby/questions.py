"""What the search asks the database: how many are in squares, and who.

Each question names all its squares at once, in one argument, and walks each along the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import msgspec
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncSession

from headway.systems.field_service.nearby.cells import Square
from headway.systems.field_service.skills import held

_MANY = 1_000
"""Of one square no more are counted to learn which skill is rare."""

_SEEN = 1_000_000
"""A count of those who fit is told together with that of those who were seen, times this."""

_FINDS = {"sqlite": "instr", "postgresql": "strpos"}

_SQUARES = {
    "sqlite": """
        SELECT key AS n, value ->> 0 AS first, value ->> 1 AS last FROM json_each(:squares)
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

_IN_IT = "p.skill = :skill AND p.cell BETWEEN w.first AND w.last"

_COUNT = f"""
    WITH w AS ({{squares}})
    SELECT n, (SELECT {{counts}} FROM (
        SELECT p.skills FROM field_places p WHERE {_IN_IT} LIMIT :most) c)
    FROM w ORDER BY n
"""  # noqa: S608  (made of this file's own text alone)

_RARITY = """
    WITH w AS ({squares}), s AS ({skills})
    SELECT skill, (SELECT sum((SELECT count(*) FROM (
        SELECT 1 FROM field_places p
        WHERE p.skill = s.skill AND p.cell BETWEEN w.first AND w.last LIMIT :most) c)) FROM w)
    FROM s
"""

_WHO = f"""
    WITH w AS ({{squares}})
    SELECT t.id, t.lat, t.lon, t.idle_since
    FROM w CROSS JOIN field_places p CROSS JOIN field_technicians t
    WHERE {_IN_IT} AND t.id = p.technician_id {{and_others}}
"""  # noqa: S608  (as above)

_AT_ONE_PLACE = """
    SELECT t.id, t.lat, t.lon, t.idle_since
    FROM field_places p CROSS JOIN field_technicians t
    WHERE p.skill = :skill AND p.cell = :cell AND t.id = p.technician_id {and_others}
    ORDER BY p.idle_since, p.technician_id LIMIT :most
"""


class Found(Protocol):
    """Somebody in a square.

    Attributes:
        id: the technician's.
        lat: where.
        lon: where.
        idle_since: since when without a job, ms UTC.
    """

    id: str
    lat: float
    lon: float
    idle_since: int


@dataclass(frozen=True, slots=True)
class Tally:
    """How many are in a square.

    Attributes:
        seen: who have the first skill; no more than were to be looked at.
        fit: those of them who have the others too.
    """

    seen: int
    fit: int


async def rarest_first(
    session: AsyncSession, skills: Sequence[str], squares: Sequence[Square]
) -> list[str]:
    """Skills, those first that fewer have in these squares.

    Args:
        session: of the directory.
        skills: which.
        squares: where.
    """
    told = _statement(_RARITY, session.get_bind().dialect.name, 0)
    given = {"squares": _json(squares), "skills": msgspec.json.encode(skills).decode()}
    rows = await session.execute(told, given | {"most": _MANY})
    counts = {row[0]: int(row[1]) for row in rows}
    return sorted(skills, key=lambda one: (counts[one], one))


class Questions:
    """What is asked of one session, for one set of skills.

    Attributes:
        others: the skills that must be there besides the one along which squares are walked.
    """

    def __init__(self, session: AsyncSession, skill: str, others: Sequence[str]) -> None:
        """Keeps what all questions have in common.

        Args:
            session: of the directory.
            skill: along which squares are walked; empty for none.
            others: those that must be there besides.
        """
        self.others = tuple(others)
        self._session = session
        self._dialect = session.get_bind().dialect.name
        self._given: dict[str, Any] = {"skill": skill}
        for number, other in enumerate(others):
            self._given[f"other_{number}"] = held((other,))

    async def count(self, squares: Sequence[Square], most: int) -> list[Tally]:
        """Counts those in squares.

        Args:
            squares: which.
            most: of one square no more are looked at.

        Returns:
            One for each square, in their order.
        """
        rows = await self._ask(_COUNT, {"squares": _json(squares), "most": most})
        if not self.others:
            return [Tally(count, count) for _, count in rows]
        return [Tally(*divmod(count, _SEEN)) for _, count in rows]

    async def who(self, squares: Sequence[Square]) -> Sequence[Found]:
        """All in squares, in no order."""
        return await self._ask(_WHO, {"squares": _json(squares)})

    async def longest_idle(self, cell: int, most: int) -> Sequence[Found]:
        """Those at one position who are idle longest; of two, the one with the lesser id."""
        return await self._ask(_AT_ONE_PLACE, {"cell": cell, "most": most})

    async def _ask(self, told: str, more: dict[str, Any]) -> Sequence[Any]:
        asked = _statement(told, self._dialect, len(self.others))
        return (await self._session.execute(asked, self._given | more)).all()


@cache
def _statement(told: str, dialect: str, others: int) -> TextClause:
    holds = [f"{_FINDS[dialect]}({{0}}.skills, :other_{number}) > 0" for number in range(others)]
    fits = " AND ".join(holds)
    counts = f"count(*) * {_SEEN} + count(CASE WHEN {fits.format('c')} THEN 1 END)"
    parts = {
        "{squares}": _SQUARES[dialect],
        "{skills}": _SKILLS[dialect],
        "{counts}": counts if others else "count(*)",
        "{and_others}": f"AND {fits.format('p')}" if others else "",
    }
    for name, part in parts.items():
        told = told.replace(name, part)
    return text(told)


def _json(squares: Sequence[Square]) -> str:
    return msgspec.json.encode([(one.first, one.last) for one in squares]).decode()
