"""Intake into the table: rows are committed before anybody is told that a lead was taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import and_, insert, or_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from uuid_utils import uuid7

from headway.core.errors import InvalidValue, KeyConflict
from headway.systems.calls.truth.lead_table import PAGE, LeadTable
from headway.systems.calls.truth.row import LeadRow


class TakenIn(NamedTuple):
    """What became of one lead.

    Attributes:
        row: as it stands in the table now.
        created: whether this call wrote it.
    """

    row: LeadRow
    created: bool


async def take_in(table: LeadTable, rows: Sequence[LeadRow]) -> list[TakenIn]:
    """Writes leads, all or none.

    Args:
        table: that is the truth.
        rows: new ones; those without an id are given one.

    Returns:
        What became of each, in this order. One whose key is known is the row that has that key.

    Raises:
        KeyConflict: a key names a row with another body; nothing was written.
        InvalidValue: the table refuses a row; nothing was written.
        StoreUnavailable: the table cannot be reached; nothing was written, unless the connection
            broke while it committed.
    """
    for row in rows:
        _check_kept(table, row)
    named = [_named(table, row) for row in rows]
    async with table.door.change() as session:
        try:
            if table.columns.makes_ids:
                return [await _write_one(table, session, row) for row in named]
            return await _write_all(table, session, named)
        except (DataError, IntegrityError) as error:
            message = f"{table.settings.place} refuses the lead"
            raise InvalidValue(message, hint=str(error.orig)[:200]) from error


def _check_kept(table: LeadTable, row: LeadRow) -> None:
    """Lets a lead pass of which the table keeps everything.

    Raises:
        InvalidValue: a lead that is made anew from its row would be another one.
    """
    defaults: dict[str, object] = {"payload": None, "reporting_webhook_url": None}
    for field, default in {**defaults, **table.settings.defaults}.items():
        value = getattr(row, field)
        if field not in table.columns and value != default:
            message = f"the lead has {field} = {value!r:.40}, and {table.settings.place} keeps none"
            raise InvalidValue(message, hint=f"name its column in calls.table.columns.{field}")


def _named(table: LeadTable, row: LeadRow) -> LeadRow:
    if row.key is not None and "key" not in table.columns:
        if table.columns.makes_ids:
            message = f"{table.settings.place} keeps no keys of callers"
            raise InvalidValue(message, hint="name its column in calls.table.columns.key")
        # Without a column for it, the row's own id is what makes a repeat one.
        return row.named(str(uuid5(NAMESPACE_URL, f"{row.reseller}\x1f{row.key}")))
    return row if row.id or table.columns.makes_ids else row.named(str(uuid7()))


async def _write_one(table: LeadTable, session: AsyncSession, row: LeadRow) -> TakenIn:
    """Of a table that gives its rows their ids."""
    statement = _insert(session)(table.columns.table).values(table.values_of(row))
    made = (
        await session.execute(statement.on_conflict_do_nothing().returning(table.columns["id"]))
    ).scalar_one_or_none()
    if made is not None:
        return TakenIn(row.named(str(made)), created=True)
    return await _known(table, session, row)


async def _write_all(
    table: LeadTable, session: AsyncSession, rows: Sequence[LeadRow]
) -> list[TakenIn]:
    key = table.columns["id"]
    created: set[str] = set()
    for begin in range(0, len(rows), PAGE):
        values = [table.values_of(row) for row in rows[begin : begin + PAGE]]
        statement = _insert(session)(table.columns.table).values(values)
        found = await session.execute(statement.on_conflict_do_nothing().returning(key))
        created |= {str(one) for one in found.scalars()}
    replies: list[TakenIn] = []
    for row in rows:
        if row.id in created:
            created.discard(row.id)
            replies.append(TakenIn(row, created=True))
        else:
            replies.append(await _known(table, session, row))
    return replies


async def _known(table: LeadTable, session: AsyncSession, row: LeadRow) -> TakenIn:
    which = [table.among([row.id])] if row.id else []
    if row.key is not None and "key" in table.columns:
        by_key = [table.columns["key"] == row.key]
        if "reseller" in table.columns:
            by_key.append(table.columns["reseller"] == row.reseller)
        which.append(and_(*by_key))
    found = await table.found(session, or_(*which))
    if not found:
        message = f"{table.settings.place} has another row that stands in this lead's way"
        raise InvalidValue(message, hint="look for a unique index on another of its columns")
    known = next(iter(found.values())).row
    if not row.same_as(known):
        message = f"the key {row.key!r} names the lead {known.lead}, which has another body"
        raise KeyConflict(message, hint="phone, tz, template and payload must be the same")
    return TakenIn(known, created=False)


def _insert(session: AsyncSession) -> Any:  # noqa: ANN401  (the dialects' statements have no base)
    makers: Mapping[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
    return makers.get(session.get_bind().dialect.name, insert)
