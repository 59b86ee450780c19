"""The columns of the source table: reflected by name, read and written by their types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, MetaData, Table, extract, inspect
from sqlalchemy import cast as cast_to
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.types import JSON, DateTime, Enum, Integer, NullType, Numeric, Text, Uuid

from headway.core.errors import InvalidValue
from headway.core.instant import MAX_AT, parse_instant
from headway.core.naming import did_you_mean
from headway.systems.calls.source_table.settings import TableSettings

MOMENTS = frozenset({"due_at", "since", "finished_at"})
"""Instants: stored as a timestamp, milliseconds or ISO 8601, depending on the column's type."""


class Columns:
    """The columns of a table, by field.

    Attributes:
        table: the table as reflected from the database.
    """

    def __init__(self, table: Table, settings: TableSettings, dialect: str) -> None:
        """Match the table's columns to the configured fields.

        Args:
            dialect: name of the database's dialect, such as "sqlite".

        Raises:
            InvalidValue: a column does not exist or has an unknown type, or the status column
                cannot store the configured statuses.
        """
        self.table = table
        self._dialect = dialect
        self._of: dict[str, Column[Any]] = {}
        for field, name in settings.columns.items():
            self._of[field] = _column(table, field, name)
        status = self._of["status"].type
        for word, value in settings.statuses.items():
            _check_status(settings, status, word, value)

    def __contains__(self, field: str) -> bool:
        """Return whether the table has a column for this field."""
        return field in self._of

    def __getitem__(self, field: str) -> Column[Any]:
        """Return the column of a field.

        Raises:
            KeyError: the field has no column.
        """
        return self._of[field]

    @property
    def selected(self) -> list[ColumnElement[Any]]:
        """The expressions to select, labelled by field, in the form that `read` expects.

        Those that can fail are read as text or numbers: SQLAlchemy and the drivers raise an error
        for the whole page if one row has a time or JSON that they cannot read.
        """
        return [self._selected(field).label(field) for field in self._of]

    def _selected(self, field: str) -> ColumnElement[Any]:
        column = self._of[field]
        if field == "payload":
            return cast_to(column, Text)
        if field not in MOMENTS:
            return column
        if self._dialect == "postgresql" and isinstance(column.type, DateTime):
            # Infinite, or beyond the years of Python.
            return cast_to(extract("epoch", column) * 1000, Numeric)
        return cast_to(column, Text)

    @property
    def makes_ids(self) -> bool:
        """Whether the database generates the ids of new rows."""
        return isinstance(self._of["id"].type, Integer)

    def written(self, fields: Mapping[str, object]) -> dict[str, Any]:
        """Return the values to store by column name, without fields that have no column.

        Raises:
            InvalidValue: the id is not valid for this table.
        """
        return {
            self._of[field].name: self.write(field, value)
            for field, value in fields.items()
            if field in self._of
        }

    def write(self, field: str, value: object) -> Any:  # noqa: ANN401  (depends on the column)
        """Return a field's value as its column stores it.

        Raises:
            InvalidValue: the id is not valid for this table.
        """
        if value is None:
            return None
        kind = self._of[field].type
        if field in MOMENTS:
            return _moment_written(kind, cast("int", value))
        if field == "payload":
            return value if isinstance(kind, JSON) else json.dumps(value)
        if field == "id":
            return _id_written(kind, str(value))
        return value

    def read(self, field: str, value: Any) -> Any:  # noqa: ANN401  (depends on the column)
        """Return a field's value from the stored one.

        Raises:
            InvalidValue: it is not a valid instant or not JSON.
        """
        if value is None:
            return None
        try:
            if field in MOMENTS:
                return _moment_read(self._of[field].type, value)
            if field == "payload":
                return msgspec.json.decode(value)
        except (ValueError, ArithmeticError, RecursionError):
            message = f"the column {self._of[field].name!r} contains {value!r:.80}"
            hint = "store JSON" if field == "payload" else "store a timestamp, or milliseconds UTC"
            raise InvalidValue(message, hint=hint) from None
        return value if field == "status" else str(value)


def reflect(connection: Connection, settings: TableSettings) -> Columns:
    """Reflect the configured table from the database.

    Raises:
        InvalidValue: the table or a column does not exist or cannot be used, or the key column is
            not unique.
    """
    schema, _, name = settings.table.rpartition(".")
    try:
        table = Table(
            name, MetaData(), schema=schema or None, autoload_with=connection, resolve_fks=False
        )
    except NoSuchTableError:
        known = inspect(connection).get_table_names(schema=schema or None)
        message = f"calls.table: there is no table {settings.table!r} in the database"
        raise InvalidValue(message, hint=_nearest(name, known)) from None
    columns = Columns(table, settings, connection.dialect.name)
    if "key" in columns and not _is_unique(connection, columns, schema or None):
        message = f"calls.table: the column {columns['key'].name!r} is not unique"
        raise InvalidValue(
            message, hint="add a unique index on it, or on it and the reseller's column"
        )
    return columns


def _is_unique(connection: Connection, columns: Columns, schema: str | None) -> bool:
    table = inspect(connection)
    name = columns.table.name
    unique = [one["column_names"] for one in table.get_unique_constraints(name, schema=schema)]
    unique += [
        one["column_names"] for one in table.get_indexes(name, schema=schema) if one["unique"]
    ]
    unique.append(table.get_pk_constraint(name, schema=schema)["constrained_columns"])
    allowed = {columns[field].name for field in ("key", "reseller") if field in columns}
    return any(columns["key"].name in one and allowed.issuperset(one) for one in map(set, unique))


def _column(table: Table, field: str, name: str) -> Column[Any]:
    found = table.columns.get(name)
    if found is None:
        message = f"calls.table.columns.{field}: the table {table.name!r} has no column {name!r}"
        raise InvalidValue(message, hint=_nearest(name, list(table.columns.keys())))
    if isinstance(found.type, NullType):
        message = f"calls.table.columns.{field}: the type of the column {name!r} is not supported"
        raise InvalidValue(message, hint="use text, integer, timestamp, UUID or JSON")
    return found


def _nearest(name: str, known: list[str]) -> str:
    return did_you_mean(name, known, f"existing names: {', '.join(sorted(known)) or 'none'}")


def _check_status(settings: TableSettings, kind: object, word: str, value: object) -> None:
    where = f"calls.table.statuses.{word}"
    if isinstance(kind, Integer) != isinstance(value, int):
        message = f"{where} is {value!r}, but the column's type is {kind}"
        raise InvalidValue(message, hint="use a value of the column's type")
    if isinstance(kind, Enum) and value not in kind.enums:
        message = f"{where} is {value!r}, which the column of {settings.place} cannot store"
        raise InvalidValue(message, hint=f"use one of {', '.join(kind.enums)}")


def _id_written(kind: object, text: str) -> object:
    try:
        if isinstance(kind, Integer):
            return int(text)
        if isinstance(kind, Uuid):
            return UUID(text) if kind.as_uuid else text
    except ValueError:
        message = f"{text!r:.80} is not a valid row id"
        raise InvalidValue(message) from None
    return text


def _moment_written(kind: object, at: int) -> object:
    if isinstance(kind, Integer | Numeric):
        return at
    moment = datetime.fromtimestamp(at // 1000, UTC).replace(microsecond=at % 1000 * 1000)
    if isinstance(kind, DateTime):
        return moment if kind.timezone else moment.replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment_read(kind: object, value: object) -> int:
    if isinstance(kind, Integer | Numeric) or not isinstance(value, str):
        at = int(Decimal(str(value)))
        if not 0 <= at <= MAX_AT:
            message = "it is outside the years 1970 to 9999"
            raise ValueError(message)
        return at
    if not isinstance(kind, DateTime):
        return parse_instant(value)
    moment = datetime.fromisoformat(value)
    return parse_instant(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
