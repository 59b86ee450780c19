"""The book of technicians: each found, and changed so that where they are is always right.

All take a session of the directory, and write in its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from headway.systems.field_service.finding import find_record
from headway.systems.field_service.nearby.cells import cell_of
from headway.systems.field_service.records import Place, Technician
from headway.systems.field_service.skills import held, skill_key


async def find_technician(
    session: AsyncSession,
    id: str,  # noqa: A002  (the record's word)
    *,
    to_change: bool = False,
) -> Technician:
    """A technician as he is now.

    Args:
        session: of the directory.
        id: whose.
        to_change: whether others who would change him wait until this transaction ends.

    Raises:
        UnknownRecord: there is none.
    """
    return await find_record(session, Technician, id, to_change=to_change)


async def technician_of_phone(session: AsyncSession, phone: str) -> Technician | None:
    """Whose telephone it is; None for a stranger's."""
    found = await session.scalars(select(Technician).where(Technician.phone == phone))
    return found.one_or_none()


async def became_idle(session: AsyncSession, id: str, at: int) -> None:  # noqa: A002  (as above)
    """Says that a technician has had no job since then; nothing if there is no such technician.

    Args:
        session: of `Directory.change`.
        id: whose.
        at: ms UTC.
    """
    await session.execute(update(Technician).where(Technician.id == id).values(idle_since=at))
    await session.execute(update(Place).where(Place.technician_id == id).values(idle_since=at))


async def put_in_place(session: AsyncSession, technicians: Sequence[Technician]) -> None:
    """Makes the search find technicians as they are now.

    Args:
        session: of `Directory.change`, which has written these technicians.
        technicians: new ones, or changed ones.
    """
    ids = [one.id for one in technicians]
    await session.execute(delete(Place).where(Place.technician_id.in_(ids)))
    places = [place for one in technicians if one.on_duty for place in _places(one)]
    if places:
        await session.execute(insert(Place), places)


def _places(technician: Technician) -> Iterator[dict[str, Any]]:
    place = {
        "cell": cell_of(technician.lat, technician.lon),
        "idle_since": technician.idle_since,
        "technician_id": technician.id,
    }
    yield place | {"skill": "", "skills": ""}
    keys = {skill_key(one) for one in technician.skills}
    for key in keys:
        yield place | {"skill": key, "skills": held(sorted(keys))}
