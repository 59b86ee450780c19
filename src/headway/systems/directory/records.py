"""Record types: declared once, with routes to list, get, add, change, remove and import records.

A system declares the table, the request bodies and the replies of a record type as one `Records`;
`record_routes.add_routes` adds the routes. Data derived from a record, such as an index, is written
by a hook.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar, cast

from pydantic import AfterValidator, Field, model_validator
from sqlalchemy import Integer, Select, String, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from headway.contract.store import Store
from headway.core.errors import IdConflict, InvalidValue, KeyConflict, UnknownRecord
from headway.core.naming import check_name
from headway.server.bodies.base import Body
from headway.server.caller import Caller, Permission
from headway.server.paging import PageQuery
from headway.server.service import Service
from headway.systems.directory.database import Directory
from headway.systems.directory.schemas import collated

MAX_ID = 64
"""Maximum length of an id, in characters."""
MAX_NAME = 200
"""Maximum length of a name, in characters."""
RESERVED = frozenset({"import", "nearby"})
"""Words used in paths, which cannot be ids."""

_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_MAX_SLUG = 48

# Compared by code point, as in Python, so that a page starts where the previous one ended.
ID = collated(MAX_ID)


def _check_not_reserved(text: str) -> str:
    if text in RESERVED:
        message = f"{text!r} cannot be an id"
        raise InvalidValue(message, hint="the paths of the API use this word")
    return text


RecordId = Annotated[
    str,
    Field(min_length=1, max_length=MAX_ID, pattern=_PATTERN, examples=["ada"]),
    AfterValidator(_check_not_reserved),
]
"""An id: letters, digits, `.`, `_` and `-`, a letter or digit first."""


def _name(text: str) -> str:
    return check_name("it", text.strip())


PersonName = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_name)]
"""A display name: up to 200 characters."""


class VersionedColumns:
    """The columns of every record."""

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    version: Mapped[int] = mapped_column(Integer)


class RecordColumns(VersionedColumns):
    """The columns of a record with a name."""

    name: Mapped[str] = mapped_column(String(MAX_NAME))


class NewRow(Body):
    """A new record, whose type decides what its id is."""

    id: Any

    @property
    def values(self) -> dict[str, Any]:
        """The column values, without the id."""
        return self.model_dump(exclude={"id"})

    def make_id(self, distinct: str = "") -> str:
        """Return the id; `distinct` distinguishes ids that are derived from the same name."""
        del distinct
        return self.id


class NewRecord(NewRow):
    """A new record with a name."""

    id: RecordId | None = Field(
        default=None, description="Id. By default, it is derived from the name."
    )
    name: PersonName = Field(description="Name, for people.")

    def make_id(self, distinct: str = "") -> str:
        """Return the id, by default derived from the name; see `id_from_name`."""
        return self.id or id_from_name(self.name, distinct)


class NewNamedRecord(NewRecord):
    """A new record whose name defaults to its id."""

    name: PersonName = Field(description="Name, for people (default: the id).")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        if isinstance(value, dict) and "name" not in value and "id" in value:
            given = cast("dict[str, object]", value)
            return {**given, "name": given["id"]}
        return cast("object", value)


class RecordChange(Body):
    """A change of a record; omitted fields keep their values.

    Attributes:
        clearable: fields that can be set to null.
    """

    clearable: ClassVar[frozenset[str]] = frozenset()

    @property
    def values(self) -> dict[str, Any]:
        """The given fields.

        Raises:
            InvalidValue: a field that cannot be cleared is null.
        """
        # Not `exclude_unset`, which would drop the defaults of nested models too.
        whole = self.model_dump()
        given = {name: one for name, one in whole.items() if name in self.model_fields_set}
        check_not_null({name: one for name, one in given.items() if name not in self.clearable})
        return given


MOST_FAULTS = 100
"""Maximum number of faults that are reported; further ones are only counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """An error in a row.

    Attributes:
        row: row number, as in a spreadsheet: the header is 1.
    """

    row: int
    what: str


@dataclass(kw_only=True, slots=True)
class ImportReport:
    """The result of an import.

    Attributes:
        rows: number of rows read, without the header.
        changed: number of existing records that have changed.
        unchanged: number of existing records that already matched their row.
        refused: number of rows that were not written.
        faults: the first hundred errors, by row.
    """

    rows: int = 0
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    refused: int = 0
    faults: list[Fault] = field(default_factory=list[Fault])

    def refuse(self, row: int, what: str) -> None:
        """Count a refused row, and report its fault up to the maximum."""
        self.refused += 1
        if len(self.faults) < MOST_FAULTS:
            insort(self.faults, Fault(row=row, what=what), key=lambda one: one.row)

    def add(self, part: ImportReport) -> None:
        """Add the counts and faults of rows that were written."""
        self.added += part.added
        self.changed += part.changed
        self.unchanged += part.unchanged
        # More rows may have been refused than faults are reported.
        self.refused += part.refused - len(part.faults)
        for one in part.faults:
            self.refuse(one.row, one.what)


RowFields = Mapping[str, str]
"""A row of an import: the text of each column, stripped."""

R = TypeVar("R", bound=VersionedColumns)
New = TypeVar("New", bound=NewRow)


class HasDirectory(Protocol):
    """What a system with records registers in `Service.system_services`."""

    @property
    def directory(self) -> Directory:
        """The database of the records."""
        ...


def check_not_null(given: dict[str, Any]) -> None:
    """Check that no field is null.

    Raises:
        InvalidValue: a field is null.
    """
    for name, value in given.items():
        if value is None:
            message = f"{name} cannot be null"
            raise InvalidValue(message, hint="omit it to keep the value")


def id_from_name(name: str, distinct: str = "") -> str:
    """Derive an id from a name.

    Args:
        distinct: distinguishes records with the same name, such as a phone number.

    Returns:
        For example "ada-lovelace", or "ada-lovelace-1f2e3d4c" with a `distinct` text.
    """
    plain = unicodedata.normalize("NFKD", name.casefold()).encode("ascii", "ignore").decode()
    slug = _NOT_SLUG.sub("-", plain).strip("-")[:_MAX_SLUG].strip("-")
    if not slug or slug in RESERVED:
        slug = f"n-{_digest(name)}"
    return f"{slug}-{_digest(distinct)}" if distinct else slug


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


class Records(Generic[R, New]):
    """A record type; subclasses set its attributes and override its hooks.

    Attributes:
        table: mapped class; its name in lower case, without "Record", is the noun.
        system: key of the owning system in `Service.system_services`.
        key: name of the id in paths and bodies.
        unique: another column whose values must be unique; empty for none.
        needed: columns that an import must have.
        known: further columns that an import may have.
        parsers: parsers of import columns; other columns are text.
        body: model of a new record, used for requests and rows of an import.
        shape: dataclass of replies; its fields are columns, with lists as tuples.
    """

    table: type[R]
    body: type[New]
    shape: type[Any]
    system: str
    key: ClassVar[str] = "id"
    unique: ClassVar[str] = ""
    needed: ClassVar[Sequence[str]] = ("name",)
    known: ClassVar[Sequence[str]] = ("id",)
    parsers: ClassVar[Mapping[str, Callable[[str], object]]] = {}

    @property
    def noun(self) -> str:
        """Name of a record in messages and paths."""
        return self.table.__name__.removesuffix("Record").lower()

    def directory(self, service: Service) -> Directory:
        """Return the database of the records."""
        return cast("HasDirectory", service.system_services[self.system]).directory

    def changing(
        self, service: Service, caller: Caller, id: str | None = None
    ) -> AbstractAsyncContextManager[AsyncSession]:
        """Return the transaction of a change, and what must happen before it is committed.

        Args:
            id: the record to change; None for many, or if it is not known yet.
        """
        del caller, id
        return self.directory(service).change()

    def check(self, service: Service, values: Mapping[str, Any]) -> None:
        """Check new values against the settings of the server.

        Raises:
            InvalidValue: a value does not match them.
        """
        del service, values

    def view(self, record: R, caller: Caller) -> object:
        """Return the reply for a caller; it contains secrets only if the caller may change them."""
        values = {one.name: getattr(record, one.name) for one in fields(self.shape)}
        if Permission.DEFINE not in caller.may:
            values |= self.masked(record)
        for name, one in values.items():
            if isinstance(one, list):
                values[name] = tuple(cast("list[object]", one))
        return self.shape(**values)

    def masked(self, record: R) -> Mapping[str, object]:
        """Return masked values for the columns that contain secrets."""
        del record
        return {}

    def filtered(self, rows: Select[R], params: PageQuery) -> Select[R]:
        """Add the filters of a listing to its query; by default, columns with the given values."""
        given = params.model_dump(exclude=set(PageQuery.model_fields), exclude_none=True)
        return rows.filter_by(**given)

    async def page(
        self, session: AsyncSession, rows: Select[R], after: str | None, limit: int
    ) -> tuple[Sequence[R], str | None]:
        """Return a page of rows by id, and the id after which the next starts; None at the end."""
        if after is not None:
            rows = rows.where(self.table.id > after)
        statement = rows.order_by(self.table.id).limit(limit + 1)
        found = list(await session.scalars(statement))
        return found[:limit], found[limit - 1].id if len(found) > limit else None

    def time_values(self, values: dict[str, Any], at: int, *, new: bool) -> dict[str, Any]:
        """Return further column values to set together with these.

        Args:
            at: now, ms UTC.
            new: whether the record is being added.
        """
        del values, at, new
        return {}

    async def derive(self, session: AsyncSession, records: Sequence[R]) -> None:
        """Write data derived from records that were just written, in the same transaction."""

    async def check_unused(self, store: Store, id: str) -> None:
        """Check that no job needs a record, before it is removed.

        Raises:
            InvalidState: a job needs it.
        """

    async def find(self, session: AsyncSession, id: str, *, to_change: bool = False) -> R:
        """Return the current record with this id.

        Args:
            to_change: whether to lock the row until the transaction ends.

        Raises:
            UnknownRecord: there is no such record.
        """
        found = await session.get(self.table, id, with_for_update=to_change or None)
        if found is None:
            message = f"there is no {self.noun} {id[:64]!r}"
            raise UnknownRecord(message, hint=f"GET /{self.noun}s lists them")
        return found

    async def add(self, session: AsyncSession, body: New, at: int) -> R:
        """Add a record.

        Args:
            at: now, ms UTC.

        Raises:
            IdConflict: another record has the id.
            KeyConflict: another record has the unique value.
        """
        await self._check_unique(session, body.values)
        added = self._new(body, await self.free_id(session, body), at)
        session.add(added)
        await session.flush()
        await self.derive(session, [added])
        return added

    async def change(
        self, session: AsyncSession, record: R, values: dict[str, Any], at: int
    ) -> None:
        """Change a record.

        Args:
            values: the fields to set.
            at: now, ms UTC.

        Raises:
            KeyConflict: another record has the unique value.
        """
        if self.unique in values and values[self.unique] != getattr(record, self.unique):
            await self._check_unique(session, values)
        if self._set(record, values, at):
            await session.flush()
            await self.derive(session, [record])

    def read(self, row: RowFields) -> New:
        """Parse a row of an import; an empty field counts as missing.

        Raises:
            InvalidValue: a field cannot be parsed.
            ValidationError: a value is not valid.
        """
        given: dict[str, Any] = {name: one for name, one in row.items() if one}
        for name, parse in self.parsers.items():
            if name in given:
                given[name] = parse(given[name])
        return self.body.model_validate(given)

    def unique_values(self, row: New) -> Sequence[tuple[str, str]]:
        """Return the (column, value) pairs that no other row of the import may have."""
        if not self.unique:
            return [(self.key, self._id_of(row))]
        own = [(self.unique, str(getattr(row, self.unique)))]
        return [*own, ("id", row.id)] if row.id else own

    async def write(
        self, session: AsyncSession, rows: Sequence[tuple[int, New]], report: ImportReport, at: int
    ) -> None:
        """Add new records, and change existing ones; missing fields keep their values.

        A row is matched to a record by its id, or without one by its unique value (by the id
        derived from its name if there is no unique column). A row whose unique value belongs to
        another record is refused.

        Args:
            rows: each with its row number.
            report: counts the results.
            at: now, ms UTC.
        """
        by_id, by_unique = await self._find_existing(session, [row for _, row in rows])
        written: list[R] = []
        for number, row in rows:
            value = str(getattr(row, self.unique)) if self.unique else ""
            owner = by_unique.get(value)
            found = owner if self.unique and not row.id else by_id.get(self._id_of(row))
            if owner is not None and owner is not found:
                report.refuse(number, f"the {self.unique} {value} belongs to {owner.id!r}")
            elif found is None and (other := by_id.get(self._id_of(row))) is not None:
                # The unique value that this id was derived from has changed since.
                now = getattr(other, self.unique)
                what = f"{other.id!r} now has the {self.unique} {now}: add the id to the row"
                report.refuse(number, what)
            elif found is None:
                added = self._new(row, self._id_of(row), at)
                by_id[added.id] = added
                session.add(added)
                written.append(added)
                report.added += 1
            elif self._set(found, _given_fields(row), at):
                written.append(found)
                report.changed += 1
            else:
                report.unchanged += 1
        await session.flush()
        if written:
            await self.derive(session, written)
        session.expunge_all()

    async def _find_existing(
        self, session: AsyncSession, rows: Sequence[New]
    ) -> tuple[dict[str, R], dict[str, R]]:
        """Return the existing records that rows match, by id and by unique value."""
        wanted = [self.table.id.in_({self._id_of(one) for one in rows})]
        if self.unique:
            column = getattr(self.table, self.unique)
            wanted.append(column.in_([getattr(one, self.unique) for one in rows]))
        # Locked in the order of ids, so that concurrent imports do not deadlock.
        statement = select(self.table).where(or_(*wanted)).order_by(self.table.id).with_for_update()
        found = list(await session.scalars(statement))
        by_unique = {str(getattr(one, self.unique)): one for one in found} if self.unique else {}
        return {one.id: one for one in found}, by_unique

    def _id_of(self, row: New) -> str:
        # Not derived from the name alone: rows further down may have the same name.
        return row.make_id(str(getattr(row, self.unique)) if self.unique else "")

    def _new(self, body: New, id: str, at: int) -> R:
        values = body.values
        made = cast("Callable[..., R]", self.table)
        return made(id=id, **values, **self.time_values(values, at, new=True), version=1)

    def _set(self, record: R, values: dict[str, Any], at: int) -> bool:
        """Set the fields that differ, and return whether any did."""
        new = {name: one for name, one in values.items() if getattr(record, name) != one}
        if not new:
            return False
        for name, one in {**new, **self.time_values(new, at, new=False)}.items():
            setattr(record, name, one)
        record.version += 1
        return True

    async def _check_unique(self, session: AsyncSession, values: Mapping[str, Any]) -> None:
        if not self.unique:
            return
        column = getattr(self.table, self.unique)
        statement = select(self.table).where(column == values[self.unique])
        owner = (await session.scalars(statement)).one_or_none()
        if owner is not None:
            what = f"the {self.unique} {values[self.unique]}"
            message = f"{what} belongs to the {self.noun} {owner.id!r}"
            raise KeyConflict(message, hint=f"each {self.noun} needs its own")

    async def free_id(self, session: AsyncSession, body: New) -> str:
        """Return the given id, or a free one derived from the name.

        Raises:
            IdConflict: another record has it.
        """
        tries = list(dict.fromkeys((body.make_id(), self._id_of(body))))
        statement = select(self.table.id).where(self.table.id.in_(tries))
        taken = set(await session.scalars(statement))
        free = next((one for one in tries if one not in taken), None)
        if free is None:
            message = f"the {self.noun} {tries[0]!r} already exists"
            again = "" if self.unique else "; or choose another id"
            raise IdConflict(message, hint=f"PATCH /{self.noun}s/{{id}} changes it{again}")
        return free


def _given_fields(row: NewRow) -> dict[str, Any]:
    return {name: one for name, one in row.values.items() if name in row.model_fields_set}
