"""Users as an import brings them: one a row, known by the id, which may be made of the name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from headway.systems.field_service.importing.report import Count
from headway.systems.field_service.importing.run import Numbered
from headway.systems.field_service.importing.sheet import Fields
from headway.systems.field_service.records import User
from headway.systems.field_service.users.bodies import UserBody
from headway.systems.field_service.users.book import put_in_roles
from headway.systems.field_service.users.keeping import id_of, new_user, set_values

ROLES_PARTED = re.compile(r"[;,|]")
CHANNELS_PARTED = re.compile(r"[\s|]+")
"""URLs may hold commas and semicolons, but no space."""


class UserRows:
    """Users that are imported."""

    needed: Sequence[str] = ("name",)
    known: Sequence[str] = ("id", "roles", "channels")

    def read(self, fields: Fields) -> UserBody:
        """Reads a row; an empty field is as if its column were not there.

        Raises:
            ValidationError: a field is unusable.
        """
        given: dict[str, Any] = {name: one for name, one in fields.items() if one}
        for name, parted in (("roles", ROLES_PARTED), ("channels", CHANNELS_PARTED)):
            if name in given:
                parts = parted.split(given[name])
                given[name] = [one for one in map(str.strip, parts) if one]
        return UserBody.model_validate(given)

    def marks(self, row: UserBody) -> Sequence[tuple[str, str]]:
        """Its id."""
        return [("id", id_of(row))]

    async def write(
        self, session: AsyncSession, rows: Sequence[Numbered[UserBody]], count: Count
    ) -> None:
        """Adds those who are not there, changes those who are; a lacking field changes nothing."""
        ids = [id_of(one.row) for one in rows]
        # By id, so that two imports at once wait for each other instead of both for ever.
        asked = select(User).where(User.id.in_(ids)).order_by(User.id).with_for_update()
        known = {one.id: one for one in await session.scalars(asked)}
        written: list[User] = []
        for row in (one.row for one in rows):
            found = known.get(id_of(row))
            if found is None:
                added = new_user(row)
                session.add(added)
                written.append(added)
                count.added += 1
            elif set_values(found, _said(row)):
                written.append(found)
                count.changed += 1
            else:
                count.unchanged += 1
        await session.flush()
        if written:
            await put_in_roles(session, written)
        session.expunge_all()


def _said(row: UserBody) -> dict[str, Any]:
    return {name: one for name, one in row.values.items() if name in row.model_fields_set}
