"""The tables [calls.table] and [calls.migration], and what is chosen of a migration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.naming import did_you_mean
from headway.systems.calls.truth.row import SHARES, LeadRow, share_of


class Mode(StrEnum):
    """What becomes of an older system's rows."""

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
    """Which rows, and what becomes of them.

    Attributes:
        mode: what becomes of them.
        percent: of the rows, by a hash of each row's id.
        resellers: only theirs; empty for everybody's.
    """

    mode: Mode = Mode.OFF
    percent: float = 0.0
    resellers: tuple[str, ...] = ()

    def has(self, row: LeadRow) -> bool:
        """Whether a row is among those chosen."""
        if self.mode is Mode.RELEASE or (self.resellers and row.reseller not in self.resellers):
            return False
        return share_of(row.id) < self.percent * SHARES / 100


NEEDED = ("id", "phone", "status", "due_at", "ref", "number", "since")
"""Columns without which nobody could tell who is called when, and who is being called."""
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

_OPTIONS = (
    "url",
    "table",
    "own",
    "columns",
    "statuses",
    "owners",
    "defaults",
    "every",
    "rate",
)
_MIGRATION = ("mode", "percent", "resellers", "every", "batch", "talk")


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSettings:
    """Which table is the truth, and what its columns are called.

    Attributes:
        url: of its database; None for the directory's.
        table: its name, with its schema before a dot if it has one.
        own: whether it is Headway's own.
        columns: the column of each field; a field that has none is not kept.
        statuses: what the table says for pending, running and done.
        ours: what the owner's column says of our rows.
        theirs: what it says of the older system's; None where it is NULL.
        defaults: of fields that have no column, or NULL in it.
        every: how long to rest between two looks at what is pending.
        rate: missing jobs that are let go in a second.
    """

    url: str | None = None
    table: str = "leads"
    own: bool = False
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    statuses: Mapping[str, object] = field(
        default_factory=lambda: {"pending": "pending", "running": "running", "done": "done"}
    )
    ours: str = OURS
    theirs: str | None = None
    defaults: Mapping[str, str] = field(
        default_factory=lambda: {"tz": "UTC", "reseller": "main", "template": "default"}
    )
    every: str = "30s"
    rate: int = 100

    @property
    def place(self) -> str:
        """What messages call it."""
        return f"the table {self.table}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MigrationSettings:
    """How an older system's rows come to us.

    Attributes:
        chosen: until somebody chooses otherwise at run time.
        every: how long to rest between two looks at the older system's rows.
        batch: rows that are taken in one statement.
        talk_ms: how long a call lasts that is not made.
    """

    chosen: Chosen = field(default_factory=Chosen)
    every: str = "1s"
    batch: int = 200
    talk_ms: int = 60_000


def read_table(written: Mapping[str, object]) -> TableSettings:
    """Reads [calls.table].

    Raises:
        InvalidValue: an option is unknown or unusable; the message says where.
    """
    _known("[calls.table]", written, _OPTIONS)
    own = written.get("own", False)
    if not isinstance(own, bool):
        message = f"calls.table.own is {own!r:.40}"
        raise InvalidValue(message, hint="true or false")
    base = TableSettings()
    every = _text("every", written.get("every", base.every))
    parse_duration(every)
    rate = _count("calls.table.rate", written.get("rate", base.rate))
    if own:
        _only_own(written)
        columns = {name: name for name in OFFERED if name != "owner"}
        return TableSettings(table=OWN_TABLE, own=True, columns=columns, every=every, rate=rate)
    url = written.get("url")
    owners = _texts("owners", written.get("owners", {}), ("ours", "theirs"))
    defaults = _texts("defaults", written.get("defaults", {}), tuple(base.defaults))
    return TableSettings(
        url=None if url is None else _text("url", url),
        table=_text("table", written.get("table", base.table)),
        columns=_columns(written.get("columns", {})),
        statuses=_statuses(written.get("statuses", base.statuses)),
        ours=owners.get("ours", OURS),
        theirs=owners.get("theirs"),
        defaults={**base.defaults, **defaults},
        every=every,
        rate=rate,
    )


def read_migration(written: Mapping[str, object]) -> MigrationSettings:
    """Reads [calls.migration].

    Raises:
        InvalidValue: an option is unknown or unusable; the message says where.
    """
    _known("[calls.migration]", written, _MIGRATION)
    base = MigrationSettings()
    try:
        mode = Mode(cast("str", written.get("mode", Mode.OFF)))
    except ValueError:
        message = f"calls.migration.mode is {written['mode']!r:.40}"
        raise InvalidValue(message, hint=f"one of {', '.join(Mode)}") from None
    resellers = written.get("resellers", [])
    if not isinstance(resellers, list | tuple):
        message = f"calls.migration.resellers is {resellers!r:.40}"
        raise InvalidValue(message, hint='a list of names, such as ["acme"]')
    named = tuple(_text("resellers", one) for one in cast("list[object]", resellers))
    percent = written.get("percent", 100 if named else 0)
    every = _text("every", written.get("every", base.every))
    parse_duration(every)
    return MigrationSettings(
        chosen=Chosen(mode=mode, percent=check_percent(percent), resellers=named),
        every=every,
        batch=_count("calls.migration.batch", written.get("batch", base.batch)),
        talk_ms=parse_duration(written.get("talk", "1m")),
    )


def check_percent(percent: object) -> float:
    """Lets a share from 0 to 100 pass.

    Raises:
        InvalidValue: it is none.
    """
    if isinstance(percent, bool) or not isinstance(percent, int | float):
        message = f"percent is {percent!r:.40}"
        raise InvalidValue(message, hint="a number from 0 to 100")
    if not 0 <= percent <= 100:
        message = f"percent is {percent}"
        raise InvalidValue(message, hint="from 0 to 100")
    return float(percent)


def _known(where: str, written: Mapping[str, object], options: tuple[str, ...]) -> None:
    for name in written:
        if name not in options:
            message = f"{where} has no option {name!r}"
            hint = did_you_mean(name, options, f"it has {', '.join(options)}")
            raise InvalidValue(message, hint=hint)


def _only_own(written: Mapping[str, object]) -> None:
    for name in ("url", "table", "columns", "statuses", "owners", "defaults"):
        if name in written:
            message = f"calls.table has own = true and {name}"
            raise InvalidValue(message, hint="Headway's own table needs neither; leave one out")


def _columns(written: object) -> Mapping[str, str]:
    columns = _texts("columns", written, OFFERED)
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        message = f"calls.table.columns names no column for {', '.join(missing)}"
        raise InvalidValue(message, hint=f'as {{ {missing[0]} = "your_column" }}')
    twice = [one for one in columns.values() if list(columns.values()).count(one) > 1]
    if twice:
        message = f"calls.table.columns names the column {twice[0]!r} twice"
        raise InvalidValue(message, hint="each field has a column of its own")
    return columns


def _statuses(written: object) -> Mapping[str, object]:
    wanted = ("pending", "running", "done")
    if not isinstance(written, Mapping):
        message = f"calls.table.statuses is {written!r:.40}"
        raise InvalidValue(
            message, hint='as { pending = "new", running = "calling", done = "done" }'
        )
    given = cast("Mapping[str, object]", written)
    _known("calls.table.statuses", given, wanted)
    for name in wanted:
        value = given.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int):
            message = f"calls.table.statuses.{name} is {value!r:.40}"
            raise InvalidValue(message, hint="what your table says for it: text or a number")
    if len({given[name] for name in wanted}) != len(wanted):
        message = "calls.table.statuses says the same for two of them"
        raise InvalidValue(message, hint="pending, running and done must differ")
    return dict(given)


def _texts(what: str, written: object, names: tuple[str, ...]) -> dict[str, str]:
    if not isinstance(written, Mapping):
        message = f"calls.table.{what} is {written!r:.40}"
        raise InvalidValue(message, hint=f"a table with some of {', '.join(names)}")
    given = cast("Mapping[str, object]", written)
    _known(f"calls.table.{what}", given, names)
    return {name: _text(f"{what}.{name}", value) for name, value in given.items()}


def _text(what: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        message = f"{what} of [calls.table] or [calls.migration] is {value!r:.40}"
        raise InvalidValue(message, hint="it must be text")
    return value


def _count(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000:
        message = f"{what} is {value!r:.40}"
        raise InvalidValue(message, hint="a whole number from 1 to 1000")
    return value
