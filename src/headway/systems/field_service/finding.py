"""Finding one record of the directory by its id."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import UnknownRecord
from headway.systems.field_service.records import Technician, User

Record = TypeVar("Record", Technician, User)


async def find_record(
    session: AsyncSession,
    kind: type[Record],
    id: str,  # noqa: A002  (the record's word)
    *,
    to_change: bool,
) -> Record:
    """A record as it is now.

    Args:
        session: of the directory.
        kind: of which table.
        id: whose.
        to_change: whether others who would change it wait until this transaction ends.

    Raises:
        UnknownRecord: there is none.
    """
    found = await session.get(kind, id, with_for_update=to_change or None)
    if found is None:
        what = kind.__name__.lower()
        message = f"there is no {what} {id[:64]!r}"
        raise UnknownRecord(message, hint=f"GET /{what}s lists them")
    return found
