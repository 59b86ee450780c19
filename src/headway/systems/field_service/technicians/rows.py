"""Technicians as an import brings them: one a row, known by the id, else by the telephone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import InvalidValue
from headway.systems.field_service.importing.report import Count
from headway.systems.field_service.importing.run import Numbered
from headway.systems.field_service.importing.sheet import Fields
from headway.systems.field_service.record_ids import made_id
from headway.systems.field_service.records import Technician
from headway.systems.field_service.technicians.bodies import TechnicianBody
from headway.systems.field_service.technicians.book import put_in_place
from headway.systems.field_service.technicians.keeping import new_technician, set_values

PARTED = re.compile(r"[;,|]")
"""What parts the skills in a field."""
_WORDS = {
    **dict.fromkeys(("true", "yes", "y", "1", "on"), True),
    **dict.fromkeys(("false", "no", "n", "0", "off"), False),
}


class TechnicianRows:
    """Technicians that are imported."""

    needed: Sequence[str] = ("name", "phone", "lat", "lon")
    known: Sequence[str] = ("id", "skills", "on_duty", "channel")

    def __init__(self, at: int) -> None:
        """Imports as of a moment.

        Args:
            at: ms UTC.
        """
        self._at = at

    def read(self, fields: Fields) -> TechnicianBody:
        """Reads a row; an empty field is as if its column were not there.

        Raises:
            InvalidValue: a number or a yes is none.
            ValidationError: a field is unusable.
        """
        given: dict[str, Any] = {name: one for name, one in fields.items() if one}
        for name in ("lat", "lon"):
            if name in given:
                given[name] = _number(name, given[name])
        if "skills" in given:
            parts = PARTED.split(given["skills"])
            given["skills"] = [one for one in map(str.strip, parts) if one]
        if "on_duty" in given:
            given["on_duty"] = _yes("on_duty", given["on_duty"])
        if "channel" in given:
            given["channel"] = given["channel"].lower()
        return TechnicianBody.model_validate(given)

    def marks(self, row: TechnicianBody) -> Sequence[tuple[str, str]]:
        """Its telephone, and its id."""
        return [("phone", row.phone), *([("id", row.id)] if row.id else [])]

    async def write(
        self, session: AsyncSession, rows: Sequence[Numbered[TechnicianBody]], count: Count
    ) -> None:
        """Adds those who are not there, and changes those who are; a lacking field changes nothing.

        A row whose telephone is another's is refused.
        """
        known = await _known(session, [one.row for one in rows])
        by_id = {one.id: one for one in known}
        by_phone = {one.phone: one for one in known}
        written: list[Technician] = []
        for one in rows:
            row = one.row
            owner = by_phone.get(row.phone)
            found = by_id.get(row.id) if row.id else owner
            if owner is not None and owner is not found:
                count.refuse(one.number, f"the phone {row.phone} is that of {owner.id!r}")
            elif found is None and (other := by_id.get(_id_of(row))) is not None:
                # Made of a phone that has become another since.
                what = f"{other.id!r} has the phone {other.phone} by now: give the id"
                count.refuse(one.number, what)
            elif found is None:
                added = new_technician(row, _id_of(row), self._at)
                by_id[added.id] = added
                session.add(added)
                written.append(added)
                count.added += 1
            elif set_values(found, _said(row), self._at):
                written.append(found)
                count.changed += 1
            else:
                count.unchanged += 1
        await session.flush()
        if written:
            await put_in_place(session, written)
        session.expunge_all()


async def _known(session: AsyncSession, rows: Sequence[TechnicianBody]) -> list[Technician]:
    """Who is there of those whom rows mean."""
    ids = {_id_of(one) for one in rows}
    phones = [one.phone for one in rows]
    asked = select(Technician).where(or_(Technician.id.in_(ids), Technician.phone.in_(phones)))
    # By id, so that two imports at once wait for each other instead of both for ever.
    return list(await session.scalars(asked.order_by(Technician.id).with_for_update()))


def _id_of(row: TechnicianBody) -> str:
    # Not made of the name alone, as others could be given that id further down.
    return row.id or made_id(row.name, row.phone)


def _said(row: TechnicianBody) -> dict[str, Any]:
    return {name: one for name, one in row.values.items() if name in row.model_fields_set}


def _number(what: str, text: str) -> float:
    """A number as rows write it.

    Raises:
        InvalidValue: it is none.
    """
    try:
        return float(text)
    except ValueError:
        message = f"{what} is {text[:40]!r}, which is no number"
        raise InvalidValue(message, hint="degrees with a point, such as 52.52") from None


def _yes(what: str, text: str) -> bool:
    """Whether rows say yes.

    Raises:
        InvalidValue: they say neither.
    """
    found = _WORDS.get(text.casefold())
    if found is None:
        message = f"{what} is {text[:40]!r}"
        raise InvalidValue(message, hint="true or false")
    return found
