"""A lead as a row of the source table; the settings [calls.table] and [calls.migration]."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Literal, Protocol
from uuid import UUID, uuid5

from pydantic import AfterValidator, Field, StrictInt, StrictStr

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob
from headway.core.naming import did_you_mean
from headway.runtime.settings_table import OpenTable, Span, read_table

_ROWS = UUID("5d0f0a5e-6d0b-5a6c-9f0e-9f6f0f1b8a41")
"""The UUID namespace for leads whose rows have ids other than UUIDs."""
SHARES = 10_000
"""Number of hash values; a percentage is exact to 0.01."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeadRow:
    """A lead as intake receives it, and as the table stores it.

    Attributes:
        id: id of the row; empty until it is written.
        phone: E.164.
        due_at: ms UTC.
        key: the caller's idempotency key.
        payload: any JSON value.
        reporting_webhook_url: URL that receives the result; None for no report.
        fault: why the stored row cannot be read, and so is not a valid lead; usually empty.
    """

    id: str = ""
    phone: str
    tz: str
    reseller: str
    template: str = "default"
    due_at: int
    key: str | None = None
    payload: object = None
    reporting_webhook_url: str | None = None
    fault: str = ""

    @property
    def lead(self) -> str:
        """The id of the lead and of its job."""
        return lead_of(self.id)

    def named(self, row_id: str) -> LeadRow:
        """Return the same lead with a row id."""
        return replace(self, id=row_id)

    def same_as(self, other: LeadRow) -> bool:
        """Return whether both request the same call, as leads with the same key must."""
        return self._body() == other._body()

    def _body(self) -> tuple[str | None, ...]:
        payload = json.dumps(self.payload, sort_keys=True)
        return (self.phone, self.tz, self.template, payload, self.reporting_webhook_url)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowState:
    """A row with its current status.

    Attributes:
        status: value of the status column.
        ours: whether the row is ours; always True if the table has no owner column.
        ref: reference of the run that called last; None if none has.
        number: number that it called from.
        since_at: when that call started, ms UTC.
    """

    row: LeadRow
    status: object
    ours: bool
    ref: str | None = None
    number: str | None = None
    since_at: int | None = None


def lead_of(row_id: str) -> str:
    """Return the id of a row's lead: the row's own if it is a UUID, otherwise a hash of it."""
    try:
        return str(UUID(row_id))
    except ValueError:
        return str(uuid5(_ROWS, row_id))


def share_of(row_id: str) -> int:
    """Return a row's hash, 0 to 9999; it never changes, so a larger percentage only adds rows."""
    return int.from_bytes(sha256(row_id.encode()).digest()[:8]) % SHARES


class Recipe(Protocol):
    """Makes jobs of rows."""

    @property
    def deadline_ms(self) -> int:
        """How long a call may last before its provider is queried."""
        ...

    def job(self, row: LeadRow) -> NewJob:
        """Return the job that intake would create for the lead, with a key derived from the row.

        Raises:
            CallerError: the row is not a valid lead: its phone or time zone is not valid.
        """
        ...

    async def dial_gates(self, row: LeadRow) -> Sequence[GateSpec]:
        """Declare and return the gates that its call must pass now.

        Raises:
            UnknownRecord: its template no longer exists.
        """
        ...


class MigrationMode(StrEnum):
    """How an older system's rows are migrated."""

    OFF = "off"
    """No row changes its owner."""
    SHADOW = "shadow"
    """Decide when each would be called, and record it beside when the older system called."""
    ADOPT = "adopt"
    """Selected rows become ours; rows that are no longer selected are returned."""
    RELEASE = "release"
    """All rows whose call has not started are returned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MigrationPlan:
    """Which rows are migrated, and how.

    Attributes:
        percent: percentage of the rows, 0 to 100, selected by a hash of each row's id.
        resellers: only rows of these resellers; empty for all.
    """

    mode: MigrationMode = MigrationMode.OFF
    percent: float = 0.0
    resellers: tuple[str, ...] = ()

    def has(self, row: LeadRow) -> bool:
        """Return whether a row is selected."""
        if self.mode is MigrationMode.RELEASE or (
            self.resellers and row.reseller not in self.resellers
        ):
            return False
        return share_of(row.id) < self.percent * SHARES / 100


NEEDED = ("id", "phone", "status", "due_at", "ref", "number", "since")
"""Required columns: without them, due and running calls cannot be identified."""
OFFERED = (
    *NEEDED,
    "tz",
    "reseller",
    "template",
    "owner",
    "key",
    "payload",
    "reporting_webhook_url",
    "outcome",
    "finished_at",
)
"""All fields that can have a column."""
OWN_TABLE = "calls_leads"
OURS = "headway"


DEFAULTS = {"tz": "UTC", "reseller": "main", "template": "default"}


def _span(text: str) -> str:
    parse_duration(text)
    return text


def _statuses(given: dict[str, str | int]) -> dict[str, str | int]:
    if given.keys() != {"pending", "running", "done"} or len(set(given.values())) < 3:
        message = "it must set pending, running and done, and they must differ"
        raise InvalidValue(message, hint='{ pending = "new", running = "calling", done = "done" }')
    return given


def _defaults(given: dict[str, str]) -> dict[str, str]:
    _check_known("defaults", given, tuple(DEFAULTS))
    return {**DEFAULTS, **given}


def _check_known(table: str, given: Mapping[str, object], known: Sequence[str]) -> None:
    strange = [name for name in given if name not in known]
    if strange:
        message = f"calls.table.{table} has no option {strange[0]!r}"
        hint = did_you_mean(strange[0], known, f"its options are {', '.join(known)}")
        raise InvalidValue(message, hint=hint)


_Text = Annotated[str, Field(min_length=1)]
_Every = Annotated[_Text, AfterValidator(_span)]
"""A duration such as "30s", unparsed."""
_Number = Annotated[int, Field(strict=True, ge=1, le=1_000)]


class TableSettings(OpenTable):
    """[calls.table]: the source table and its columns.

    Attributes:
        url: URL of its database; None for the directory's.
        table: name of the table, optionally with its schema and a dot before it.
        own: whether to use Headway's own table; then only `every` and `rate` may also be set.
        columns: column of each field; a field without one is not stored.
        statuses: values of the status column for pending, running and done.
        owners: values of the owner column for our rows (`ours`) and the older system's (`theirs`);
            NULL if not set.
        defaults: values of fields without a column, or with NULL in it.
        every: pause between two checks for pending rows.
        rate: maximum number of missing jobs to create in a second.
    """

    url: _Text | None = Field(default=None, repr=False)
    table: _Text = "leads"
    own: Annotated[bool, Field(strict=True)] = False
    columns: dict[str, _Text] = Field(default={})
    statuses: Annotated[dict[str, StrictStr | StrictInt], AfterValidator(_statuses)] = Field(
        default={"pending": "pending", "running": "running", "done": "done"}
    )
    owners: dict[Literal["ours", "theirs"], _Text] = Field(default={})
    defaults: Annotated[dict[str, _Text], AfterValidator(_defaults)] = Field(default=DEFAULTS)
    every: _Every = "30s"
    rate: _Number = 100

    @property
    def ours(self) -> str:
        """Value of the owner column for our rows."""
        return self.owners.get("ours", OURS)

    @property
    def theirs(self) -> str | None:
        """Value of the owner column for the older system's rows; None for NULL."""
        return self.owners.get("theirs")

    @property
    def place(self) -> str:
        """The table's name in messages."""
        return f"the table {self.table}"


class MigrationSettings(OpenTable):
    """[calls.migration]: how an older system's rows are migrated.

    Attributes:
        mode: how they are migrated, until it is changed at run time.
        percent: percentage of the rows. Defaults to all if resellers are named, otherwise to none.
        resellers: only rows of these resellers; empty for all.
        every: pause between two checks of the older system's rows.
        batch: number of rows to take in one statement.
        talk: assumed length of a call that the shadow does not place, ms.
    """

    mode: MigrationMode = MigrationMode.OFF
    percent: Annotated[float | None, Field(strict=True, ge=0, le=100)] = None
    resellers: tuple[_Text, ...] = ()
    every: _Every = "1s"
    batch: _Number = 200
    talk: Span = 60_000

    @property
    def plan(self) -> MigrationPlan:
        """The initial plan."""
        percent = (100 if self.resellers else 0) if self.percent is None else self.percent
        return MigrationPlan(mode=self.mode, percent=float(percent), resellers=self.resellers)


def read_lead_table(written: Mapping[str, object]) -> TableSettings:
    """Read [calls.table].

    Raises:
        InvalidValue: a key is unknown, or a value is not valid; the message says where.
    """
    read = read_table("calls.table", TableSettings, written)
    if not read.own:
        _check_columns(read.columns)
        return read
    more = read.model_fields_set - {"own", "every", "rate"}
    if more:
        message = f"calls.table sets both own = true and {min(more)}"
        raise InvalidValue(message, hint="omit one: Headway's own table needs no such settings")
    columns = {name: name for name in OFFERED if name != "owner"}
    return read.model_copy(update={"table": OWN_TABLE, "columns": columns})


def _check_columns(columns: Mapping[str, str]) -> None:
    """Check that all fields are known, and that each required field has a column of its own.

    Raises:
        InvalidValue: a field is unknown or missing, or a column is named twice.
    """
    _check_known("columns", columns, OFFERED)
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        message = f"calls.table.columns names no column for {', '.join(missing)}"
        raise InvalidValue(message, hint=f'add {{ {missing[0]} = "your_column" }}')
    twice = [one for one in columns.values() if list(columns.values()).count(one) > 1]
    if twice:
        message = f"calls.table.columns names the column {twice[0]!r} twice"
        raise InvalidValue(message, hint="each field needs its own column")
