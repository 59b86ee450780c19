"""The book of users: each found, and changed so that who has a role is always right.

All take a session of the directory, and write in its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from headway.systems.field_service.finding import find_record
from headway.systems.field_service.records import RoleHeld, User
from headway.systems.field_service.skills import skill_key


async def find_user(
    session: AsyncSession,
    id: str,  # noqa: A002  (the record's word)
    *,
    to_change: bool = False,
) -> User:
    """A user as it is now.

    Args:
        session: of the directory.
        id: whose.
        to_change: whether others who would change it wait until this transaction ends.

    Raises:
        UnknownRecord: there is none.
    """
    return await find_record(session, User, id, to_change=to_change)


async def users_with_role(session: AsyncSession, role: str) -> list[User]:
    """Who has a role, in any case; by id."""
    asked = (
        select(User)
        .join(RoleHeld, RoleHeld.user_id == User.id)
        .where(RoleHeld.role == skill_key(role))
        .order_by(User.id)
    )
    return list(await session.scalars(asked))


async def put_in_roles(session: AsyncSession, users: Sequence[User]) -> None:
    """Makes users be found by the roles they have now.

    Args:
        session: of `Directory.change`, which has written these users.
        users: new ones, or changed ones.
    """
    ids = [one.id for one in users]
    await session.execute(delete(RoleHeld).where(RoleHeld.user_id.in_(ids)))
    held = [
        {"role": role, "user_id": one.id}
        for one in users
        for role in set(map(skill_key, one.roles))
    ]
    if held:
        await session.execute(insert(RoleHeld), held)
