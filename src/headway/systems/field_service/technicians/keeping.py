"""Keeping technicians: added, changed and removed one at a time.

All take a session of `Directory.change`, and write in its transaction.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import IdConflict, KeyConflict
from headway.systems.field_service.record_ids import made_id
from headway.systems.field_service.records import Technician
from headway.systems.field_service.technicians.bodies import TechnicianBody
from headway.systems.field_service.technicians.book import put_in_place, technician_of_phone


async def add_technician(session: AsyncSession, body: TechnicianBody, at: int) -> Technician:
    """Keeps a new technician.

    Args:
        session: in a transaction.
        body: who.
        at: now, ms UTC.

    Returns:
        The record.

    Raises:
        IdConflict: the id is another's.
        KeyConflict: so is the phone.
    """
    await _check_phone(session, body.phone)
    added = new_technician(body, await _free_id(session, body), at)
    session.add(added)
    await session.flush()
    await put_in_place(session, [added])
    return added


async def change_technician(
    session: AsyncSession, technician: Technician, values: dict[str, Any], at: int
) -> bool:
    """Changes a technician; what is said holds for the next offer.

    Args:
        session: in a transaction.
        technician: found to be changed.
        values: the fields that were said.
        at: now, ms UTC; somebody who comes on duty has been idle since then.

    Returns:
        Whether anything is different now.

    Raises:
        KeyConflict: the phone is another's.
    """
    phone = values.get("phone", technician.phone)
    if phone != technician.phone:
        await _check_phone(session, phone)
    if not set_values(technician, values, at):
        return False
    await session.flush()
    await put_in_place(session, [technician])
    return True


def new_technician(body: TechnicianBody, id: str, at: int) -> Technician:  # noqa: A002  (the record's word)
    """The record of a new technician."""
    return Technician(id=id, **body.values, idle_since=at, version=1)


def set_values(technician: Technician, values: dict[str, Any], at: int) -> bool:
    """Sets fields of a record.

    Returns:
        Whether anything is different now.
    """
    new = {name: one for name, one in values.items() if getattr(technician, name) != one}
    if not new:
        return False
    if new.get("on_duty"):
        new["idle_since"] = at
    for name, one in new.items():
        setattr(technician, name, one)
    technician.version += 1
    return True


async def _check_phone(session: AsyncSession, phone: str) -> None:
    """Lets a telephone pass that is nobody's.

    Raises:
        KeyConflict: it is somebody's.
    """
    owner = await technician_of_phone(session, phone)
    if owner is not None:
        message = f"the phone {phone} is that of the technician {owner.id!r}"
        raise KeyConflict(message, hint="each technician has one of his own")


async def _free_id(session: AsyncSession, body: TechnicianBody) -> str:
    """The id that was given, or one made of the name.

    Raises:
        IdConflict: the one that was given is another's.
    """
    tries = [body.id] if body.id else [made_id(body.name), made_id(body.name, body.phone)]
    taken = set(await session.scalars(select(Technician.id).where(Technician.id.in_(tries))))
    free = next((one for one in tries if one not in taken), None)
    if free is None:
        message = f"there is a technician {tries[0]!r} already"
        raise IdConflict(message, hint="PATCH /technicians/{id} changes it")
    return free
