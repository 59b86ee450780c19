"""Keeping users: added and changed.

All take a session of `Directory.change`, and write in its transaction.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import IdConflict
from headway.systems.field_service.record_ids import made_id
from headway.systems.field_service.records import User
from headway.systems.field_service.users.bodies import UserBody
from headway.systems.field_service.users.book import put_in_roles


async def add_user(session: AsyncSession, body: UserBody) -> User:
    """Keeps a new user.

    Raises:
        IdConflict: the id is another's.
    """
    added = new_user(body)
    if await session.get(User, added.id) is not None:
        message = f"there is a user {added.id!r} already"
        raise IdConflict(message, hint="PATCH /users/{id} changes it; or give another id")
    session.add(added)
    await session.flush()
    await put_in_roles(session, [added])
    return added


async def change_user(session: AsyncSession, user: User, values: dict[str, Any]) -> None:
    """Changes a user.

    Args:
        session: in a transaction.
        user: found to be changed.
        values: the fields that were said.
    """
    if set_values(user, values):
        await session.flush()
        await put_in_roles(session, [user])


def new_user(body: UserBody) -> User:
    """The record of a new user."""
    return User(id=id_of(body), **body.values, version=1)


def id_of(body: UserBody) -> str:
    """The id that was given, or one made of the name."""
    return body.id or made_id(body.name)


def set_values(user: User, values: dict[str, Any]) -> bool:
    """Sets fields of a record.

    Returns:
        Whether anything is different now.
    """
    new = {name: one for name, one in values.items() if getattr(user, name) != one}
    for name, one in new.items():
        setattr(user, name, one)
    if new:
        user.version += 1
    return bool(new)
