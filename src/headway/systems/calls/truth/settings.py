"""A lead as a row of your own table; and the tables [calls.table] and [calls.migration]."""

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
"""The namespace of leads whose rows have ids that are no UUIDs."""
SHARES = 10_000
"""How fine a percentage is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeadRow:
    """A lead as intake knows it, and as the table keeps it.

    Attributes:
        id: of the row; empty for one that is not written yet.
        phone: E.164.
        template: by which it is called.
        due_at: ms UTC.
        key: the caller's own; None for none.
        payload: any JSON; None for none.
        reporting_webhook_url: receives the result; None for no report.
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

    @property
    def lead(self) -> str:
        """The id of the lead, which is that of its job."""
        return lead_of(self.id)

    def named(self, row_id: str) -> LeadRow:
        """Return the same lead under a row's id."""
        return replace(self, id=row_id)

    def same_as(self, other: LeadRow) -> bool:
        """Return whether both ask for the same call: under one key they must."""
        return self._body() == other._body()

    def _body(self) -> tuple[str | None, ...]:
        payload = json.dumps(self.payload, sort_keys=True)
        return (self.phone, self.tz, self.template, payload, self.reporting_webhook_url)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where a row stands.

    Attributes:
        status: as the table says it.
        ours: whether the row is ours; True where the table names no owners.
        ref: of the run that called last; None for none.
        since_at: when that call began, ms UTC.
    """

    row: LeadRow
    status: object
    ours: bool
    ref: str | None = None
    number: str | None = None
    since_at: int | None = None


def lead_of(row_id: str) -> str:
    """Return the id of a row's lead: the row's if it is a UUID, else one derived from it."""
    try:
        return str(UUID(row_id))
    except ValueError:
        return str(uuid5(_ROWS, row_id))


def share_of(row_id: str) -> int:
    """Return a row's hash, 0 to 9999; it never changes, so a larger percentage only adds rows."""
    return int.from_bytes(sha256(row_id.encode()).digest()[:8]) % SHARES


class Recipe(Protocol):
    """How a row becomes a job."""

    @property
    def deadline_ms(self) -> int:
        """How long a call may be on before the provider is asked."""
        ...

    def job(self, row: LeadRow) -> NewJob:
        """Return the lead's job, as intake makes it, with a key that follows from the row.

        Raises:
            CallerError: the row is no lead: its phone or zone is none.
        """
        ...

    async def dial_gates(self, row: LeadRow) -> Sequence[GateSpec]:
        """Return the gates that its call must pass, as they are now; all are declared."""
        ...


class Mode(StrEnum):
    """How an older system's rows are migrated."""

    OFF = "off"
    """They are left alone; rows that are ours stay ours."""
    SHADOW = "shadow"
    """It is decided when each would be called, and written down beside what they did."""
    ADOPT = "adopt"
    """Those chosen become ours; those that are not chosen any more go back."""
    RELEASE = "release"
    """All that have not started go back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """Which rows are migrated, and how.

    Attributes:
        mode: how they are migrated.
        percent: of the rows, by a hash of each row's id.
        resellers: only rows of these resellers; empty for all.
    """

    mode: Mode = Mode.OFF
    percent: float = 0.0
    resellers: tuple[str, ...] = ()

    def has(self, row: LeadRow) -> bool:
        """Return whether a row is among those chosen."""
        if self.mode is Mode.RELEASE or (self.resellers and row.reseller not in self.resellers):
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
"""All columns that mean something here."""
OWN_TABLE = "calls_leads"
OURS = "headway"


DEFAULTS = {"tz": "UTC", "reseller": "main", "template": "default"}


def _span(text: str) -> str:
    parse_duration(text)
    return text


def _statuses(given: dict[str, str | int]) -> dict[str, str | int]:
    if given.keys() != {"pending", "running", "done"} or len(set(given.values())) < 3:
        message = "pending, running and done must differ, and be all that it has"
        raise InvalidValue(message, hint='{ pending = "new", running = "calling", done = "done" }')
    return given


def _defaults(given: dict[str, str]) -> dict[str, str]:
    _check_known("defaults", given, tuple(DEFAULTS))
    return {**DEFAULTS, **given}


def _check_known(table: str, given: Mapping[str, object], known: Sequence[str]) -> None:
    strange = [name for name in given if name not in known]
    if strange:
        message = f"calls.table.{table} has no option {strange[0]!r}"
        hint = did_you_mean(strange[0], known, f"it has {', '.join(known)}")
        raise InvalidValue(message, hint=hint)


Text = Annotated[str, Field(min_length=1)]
Every = Annotated[Text, AfterValidator(_span)]
"""A span such as "30s", as it was written."""
Number = Annotated[int, Field(strict=True, ge=1, le=1_000)]


class TableSettings(OpenTable):
    """[calls.table]: which table is the truth, and what its columns are called.

    Attributes:
        url: URL of its database; None for the directory's.
        table: name of the table, optionally with its schema and a dot before it.
        own: whether the table is Headway's own; then only `every` and `rate` may be set as well.
        columns: column of each field; a field without one is not kept.
        statuses: values of the status column for pending, running and done.
        owners: values of the owner column for our rows (`ours`) and the older system's (`theirs`);
            NULL if not set.
        defaults: values of fields that have no column, or NULL in it.
        every: pause between two checks for pending rows.
        rate: maximum number of missing jobs to create in a second.
    """

    url: Text | None = Field(default=None, repr=False)
    table: Text = "leads"
    own: Annotated[bool, Field(strict=True)] = False
    columns: dict[str, Text] = Field(default={})
    statuses: Annotated[dict[str, StrictStr | StrictInt], AfterValidator(_statuses)] = Field(
        default={"pending": "pending", "running": "running", "done": "done"}
    )
    owners: dict[Literal["ours", "theirs"], Text] = Field(default={})
    defaults: Annotated[dict[str, Text], AfterValidator(_defaults)] = Field(default=DEFAULTS)
    every: Every = "30s"
    rate: Number = 100

    @property
    def ours(self) -> str:
        """What the owner's column says of our rows."""
        return self.owners.get("ours", OURS)

    @property
    def theirs(self) -> str | None:
        """What it says of the older system's; None if it is NULL."""
        return self.owners.get("theirs")

    @property
    def place(self) -> str:
        """What messages call it."""
        return f"the table {self.table}"


class MigrationSettings(OpenTable):
    """[calls.migration]: how an older system's rows come to us.

    Attributes:
        mode: how they are migrated, until it is changed at run time.
        percent: percentage of the rows. Defaults to all if resellers are named, otherwise to none.
        resellers: only rows of these resellers; empty for all.
        every: pause between two checks of the older system's rows.
        batch: number of rows to take in one statement.
        talk: assumed length of a call that is not made, ms.
    """

    mode: Mode = Mode.OFF
    percent: Annotated[float | None, Field(strict=True, ge=0, le=100)] = None
    resellers: tuple[Text, ...] = ()
    every: Every = "1s"
    batch: Number = 200
    talk: Span = 60_000

    @property
    def chosen(self) -> Chosen:
        """Which rows are migrated, and how."""
        percent = (100 if self.resellers else 0) if self.percent is None else self.percent
        return Chosen(mode=self.mode, percent=float(percent), resellers=self.resellers)


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
        message = f"calls.table has own = true and {min(more)}"
        raise InvalidValue(message, hint="Headway's own table needs neither; leave one out")
    columns = {name: name for name in OFFERED if name != "owner"}
    return read.model_copy(update={"table": OWN_TABLE, "columns": columns})


def _check_columns(columns: Mapping[str, str]) -> None:
    """Check that each column has a known field, and each needed field a column of its own.

    Raises:
        InvalidValue: one has not.
    """
    _check_known("columns", columns, OFFERED)
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        message = f"calls.table.columns names no column for {', '.join(missing)}"
        raise InvalidValue(message, hint=f'as {{ {missing[0]} = "your_column" }}')
    twice = [one for one in columns.values() if list(columns.values()).count(one) > 1]
    if twice:
        message = f"calls.table.columns names the column {twice[0]!r} twice"
        raise InvalidValue(message, hint="each field needs its own column")
