"""The source table of leads: every change of a row is conditional on its current state."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    String,
    Table,
    Text,
    and_,
    false,
    func,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import InvalidValue, StoreUnavailable
from headway.systems.calls.catalogue import Base
from headway.systems.calls.source_table.columns import Columns, reflect
from headway.systems.calls.source_table.settings import LeadRow, RowState, TableSettings
from headway.systems.directory.database import Directory

LEADS = Table(
    "calls_leads",
    Base.metadata,
    Column("id", String(36), primary_key=True),
    Column("phone", String(32), nullable=False),
    Column("tz", String(64), nullable=False),
    Column("reseller", String(512), nullable=False),
    Column("template", String(512), nullable=False, default=""),
    Column("due_at", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("key", String(512)),
    Column("payload", Text),
    Column("reporting_webhook_url", Text),
    Column("ref", String(64)),
    Column("number", String(32)),
    Column("since", BigInteger),
    Column("outcome", String(64)),
    Column("finished_at", BigInteger),
    Index("uq_calls_leads_reseller_key", "reseller", "key", unique=True),
    Index("ix_calls_leads_status_id", "status", "id"),
)
"""Leads, if Headway's own table is the source table."""

WRITTEN = ("status", "ref", "number", "since", "outcome", "finished_at")
"""The columns that a call changes in its row."""
PAGE = 500
"""Maximum number of rows in one read or insert."""


def insert_into(session: AsyncSession, table: Table) -> Any:  # noqa: ANN401  (the dialects' statements have no common base)
    """Return an INSERT of the database's dialect, which supports ON CONFLICT."""
    is_postgres = session.get_bind().dialect.name == "postgresql"
    return (postgresql.insert if is_postgres else sqlite.insert)(table)


class LeadTable:
    """The source table.

    Attributes:
        database: database that contains the table.
    """

    def __init__(self, settings: TableSettings, directory: Directory) -> None:
        """Create it without opening a connection.

        Args:
            directory: database to use unless the settings name another.

        Raises:
            InvalidValue: the URL is not valid.
        """
        self.settings = settings
        self._borrowed = settings.url is None
        self.database = directory if settings.url is None else Directory(settings.url)
        self._columns: Columns | None = None

    async def open(self) -> None:
        """Connect, and check the table against the settings.

        Raises:
            InvalidValue: the table or a column does not exist or cannot be used.
            StoreMisconfigured: the rows may be read but not changed, and none belong to another
                system, in whose shadow that would be enough.
        """
        if not self._borrowed:
            await self.database.open()
        async with self.database.read() as session:
            connection = await session.connection()
            self._columns = await connection.run_sync(reflect, self.settings)
        if not self.has_owners:
            written = [self.columns[name] for name in WRITTEN if name in self.columns]
            unchanged = update(self.columns.table).where(false())
            async with self.database.change() as session:
                await session.execute(unchanged.values({one.name: one for one in written}))

    async def close(self) -> None:
        """Close the connections, unless they are the directory's."""
        if not self._borrowed:
            await self.database.close()

    @property
    def columns(self) -> Columns:
        """The columns of the table.

        Raises:
            StoreUnavailable: the table is not open.
        """
        if self._columns is None:
            message = f"{self.settings.place} is not open"
            raise StoreUnavailable(message, hint="the server or worker opens it when it starts")
        return self._columns

    @property
    def has_owners(self) -> bool:
        """Whether the table has an owner column."""
        return "owner" in self.settings.columns

    # ---------------------------------------------------------------------------------- reading

    async def pending(self, *, ours: bool) -> AsyncGenerator[list[LeadRow]]:
        """Yield the pending rows in pages, ordered by id."""
        async for page in self._pages(and_(self.is_at("pending"), self.is_owned(ours=ours))):
            yield [self._row_state(one).row for one in page]

    async def running(self) -> AsyncGenerator[list[RowState]]:
        """Yield our running rows in pages, ordered by id."""
        which = and_(self.is_at("running"), self.is_owned(ours=True))
        async for page in self._pages(which):
            yield [self._row_state(one) for one in page]

    async def find(self, ids: Sequence[str]) -> dict[str, RowState]:
        """Return the rows with their statuses by id, without rows that do not exist."""
        async with self.database.read() as session:
            return await self.found(session, self.among(ids))

    async def find_pending(self, ids: Sequence[str]) -> dict[str, LeadRow]:
        """Return those of these rows that are pending and ours, by id."""
        which = and_(self.among(ids), self.is_at("pending"), self.is_owned(ours=True))
        async with self.database.read() as session:
            return {id_: one.row for id_, one in (await self.found(session, which)).items()}

    async def found(self, session: AsyncSession, which: ColumnElement[bool]) -> dict[str, RowState]:
        """Return the matching rows with their statuses by id, within the caller's session."""
        rows = (await session.execute(self.select_all().where(which))).mappings()
        return {one.row.id: one for one in map(self._row_state, rows)}

    async def counts(self) -> dict[str, int]:
        """Return the number of pending and running rows, such as `ours_pending`."""
        cases = {
            f"{whose}_{status}": and_(self.is_at(status), self.is_owned(ours=whose == "ours"))
            for whose in ("ours", "theirs")
            for status in ("pending", "running")
            if whose == "ours" or self.has_owners
        }
        async with self.database.read() as session:
            found: dict[str, int] = {}
            for name, which in cases.items():
                query = select(func.count()).select_from(self.columns.table).where(which)
                found[name] = (await session.execute(query)).scalar_one()
            return found

    # --------------------------------------------------------------------------------- changing

    async def mark_running(self, row_id: str, *, ref: str, number: str, at: int) -> bool:
        """Mark a row as running if it is ours and pending.

        Args:
            at: when the call starts, ms UTC.

        Returns:
            Whether the row was changed.

        Raises:
            StoreUnavailable: the table cannot be reached; nothing was written, unless the
                connection broke during the commit.
        """
        values = {"status": "running", "ref": ref, "number": number, "since": at}
        return await self._change(row_id, self.is_at("pending"), values)

    async def mark_running_again(
        self, row_id: str, *, before: str, ref: str, number: str, at: int
    ) -> bool:
        """Mark a row as running for a new call if it still names an ended call of the same lead.

        Args:
            before: reference of the ended call.
            at: when the new call starts, ms UTC.

        Returns:
            Whether the row was changed.

        Raises:
            StoreUnavailable: as for `mark_running`.
        """
        which = and_(self.is_at("running"), self.columns["ref"] == before)
        return await self._change(row_id, which, {"ref": ref, "number": number, "since": at})

    async def put_back(self, row_id: str, *, ref: str) -> bool:
        """Make a row pending again if it is running under this reference.

        Returns:
            Whether the row was changed.

        Raises:
            StoreUnavailable: as for `mark_running`.
        """
        which = and_(self.is_at("running"), self.columns["ref"] == ref)
        return await self._change(row_id, which, {"status": "pending"})

    async def mark_done(self, row_id: str, *, outcome: str, at: int) -> bool:
        """Write the final outcome of a lead if its row is ours and not done.

        Args:
            at: when the lead ended, ms UTC.

        Returns:
            Whether the row was changed.

        Raises:
            StoreUnavailable: as for `mark_running`.
        """
        values = {"status": "done", "outcome": outcome, "finished_at": at}
        return await self._change(row_id, or_(self.is_at("pending"), self.is_at("running")), values)

    async def set_owner(self, ids: Sequence[str], *, ours: bool) -> list[LeadRow]:
        """Make pending rows ours, or give them back to the older system; return those changed.

        Rows that the other system has locked are skipped, because it is about to call them.

        Raises:
            StoreUnavailable: as for `mark_running`.
        """
        table, key = self.columns.table, self.columns["id"]
        before = and_(self.is_at("pending"), self.is_owned(ours=not ours))
        free = select(key).where(self.among(ids), before).order_by(key)
        values = {self.columns["owner"].name: self._owner(ours=ours)}
        async with self.database.change() as session:
            # Locked in the order of their ids, so that two processes cannot deadlock.
            locked = free.with_for_update(skip_locked=True)
            held = list((await session.execute(locked)).scalars())
            if not held:
                return []
            flip = update(table).where(key.in_(held), before).values(values).returning(key)
            flipped = list((await session.execute(flip)).scalars())
            rows = await session.execute(self.select_all().where(key.in_(flipped)))
            return [self._row_state(one).row for one in rows.mappings()]

    # -------------------------------------------------------------------------------- conditions

    def among(self, ids: Sequence[str]) -> ColumnElement[bool]:
        """Return the condition that a row has one of these ids."""
        return self.columns["id"].in_([self.columns.write("id", one) for one in ids])

    def is_at(self, status: str) -> ColumnElement[bool]:
        """Return the condition that a row is pending, running or done."""
        return self.columns["status"] == self.settings.statuses[status]

    def is_owned(self, *, ours: bool) -> ColumnElement[bool]:
        """Return the condition that a row is ours or theirs; without owners, all are ours."""
        if not self.has_owners:
            return true() if ours else false()
        return self.columns["owner"].is_not_distinct_from(self._owner(ours=ours))

    def select_all(self) -> Any:  # noqa: ANN401  (the columns are only known at run time)
        """Return a SELECT of all fields, as `Columns.read` expects them."""
        return select(*self.columns.selected)

    def values_of(self, row: LeadRow) -> dict[str, Any]:
        """Return the column values of a new row, which is pending and ours.

        Raises:
            InvalidValue: its id is not valid for this table.
        """
        fields: dict[str, object] = {
            "phone": row.phone,
            "tz": row.tz,
            "reseller": row.reseller,
            "template": row.template,
            "due_at": row.due_at,
            "key": row.key,
            "payload": row.payload,
            "reporting_webhook_url": row.reporting_webhook_url,
            "status": self.settings.statuses["pending"],
            "owner": self.settings.ours,
        }
        return self.columns.written(fields | ({"id": row.id} if row.id else {}))

    def _owner(self, *, ours: bool) -> str | None:
        return self.settings.ours if ours else self.settings.theirs

    async def _change(
        self, row_id: str, which: ColumnElement[bool], fields: Mapping[str, object]
    ) -> bool:
        named = dict(fields)
        if "status" in named:
            named["status"] = self.settings.statuses[str(named["status"])]
        statement = (
            update(self.columns.table)
            .where(self.among([row_id]), which, self.is_owned(ours=True))
            .values(self.columns.written(named))
            .returning(self.columns["id"])
        )
        async with self.database.change() as session:
            return (await session.execute(statement)).first() is not None

    async def _pages(self, which: ColumnElement[bool]) -> AsyncGenerator[list[RowMapping]]:
        key, after = self.columns["id"], None
        while True:
            query = self.select_all().where(which).order_by(key).limit(PAGE)
            if after is not None:
                query = query.where(key > after)
            async with self.database.read() as session:
                page = list((await session.execute(query)).mappings())
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1]["id"]

    def _row_state(self, found: RowMapping) -> RowState:
        given, fault = dict[str, Any](), ""
        for name, value in found.items():
            try:
                given[name] = self.columns.read(name, value)
            except InvalidValue as error:
                # It must not hide the other rows of its page.
                given[name], fault = None, str(error)
        defaults = self.settings.defaults
        row = LeadRow(
            id=given["id"],
            phone=given["phone"],
            tz=given.get("tz") or defaults["tz"],
            reseller=given.get("reseller") or defaults["reseller"],
            template=given.get("template") or defaults["template"],
            due_at=given.get("due_at") or 0,
            key=given.get("key"),
            payload=given.get("payload"),
            reporting_webhook_url=given.get("reporting_webhook_url"),
            fault=fault,
        )
        ours = "owner" not in given or given["owner"] == self.settings.ours
        return RowState(
            row=row,
            status=given["status"],
            ours=ours,
            ref=given["ref"],
            number=given["number"],
            since_at=given["since"],
        )
