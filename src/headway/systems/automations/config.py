"""`automations.toml`, read entry by entry.

Each `[[automation]]` is parsed by itself, so that a syntax error or an invalid value disables only
that entry. Faults are reported with file and line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from headway.contract.definitions import Overlap
from headway.core.duration import UNITS_MS
from headway.core.errors import InvalidValue
from headway.core.gates.opening import Hours
from headway.core.gates.spec import GateSpec
from headway.core.job import DEFAULT_PRIORITY, MAX_PRIORITY
from headway.core.naming import did_you_mean
from headway.core.timetable.schedule import Schedule, parse_schedule
from headway.runtime.faults import faults
from headway.runtime.settings_table import Span as AnySpan
from headway.systems.automations.repository import Repository, read_repository

HOUR_MS = UNITS_MS["h"]
MOST_SESSIONS = 10_000
"""Highest limit of sessions at once."""
LONGEST_HOURS = 100 * 365 * 24

_HEADER = re.compile(r"^\s*\[\[\s*automation\s*\]\]\s*(#.*)?$")
_TABLE = re.compile(r"^\s*\[\s*(?!automation\b)(?!\[)[^\]]*\]\s*(#.*)?$")
_AT_LINE = re.compile(r"at line (\d+), ")
_ID = re.compile(r"""^\s*["']?id["']?\s*=\s*["']([A-Za-z0-9][A-Za-z0-9._-]{0,99})["']""")
_TIME = re.compile(r"\d{1,2}:\d{2}")
_TABLES = ("dispatcher", "automation")
_TYPES = {"cron": "cron", "interval": "every", "every": "every", "at": "at"}


_SECRET = frozenset({"repository", "command", "env", "pass_env", "notifications"})
"""Keys whose values may contain a password or a token, and are not repeated in errors."""

Span = Annotated[AnySpan, Field(ge=1)]
"""Milliseconds, written as a duration."""


_Passed = str | list[str] | dict[str, str] | None


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class WindowTable(_Table):
    """When sessions may start: `hours` on some `days` in a time zone."""

    hours: str
    days: str = "daily"
    tz: str | None = None


class AutomationTable(_Table):
    """One `[[automation]]` as written."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    repository: str
    schedule: str | dict[str, Any]
    command: str | list[str] = Field(min_length=1)
    tz: str = "UTC"
    timeout: Span = 60 * UNITS_MS["m"]
    enabled: bool = True
    priority: int = Field(default=DEFAULT_PRIORITY, ge=0, le=MAX_PRIORITY)
    window: str | WindowTable | None = None
    overlap: Overlap = "skip"
    retries: int = Field(default=0, ge=0, le=100)
    retry_after: Span = UNITS_MS["m"]
    ref: str | None = Field(default=None, pattern=r"^[^-\s][^\s]*$")
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = Field(default=(), strict=False)
    artifacts: tuple[str, ...] = Field(default=(), strict=False)
    keep_artifacts: int = Field(default=10, ge=0)
    keep_worktree: Literal["never", "failed"] = "never"
    grace: Span = 10 * UNITS_MS["s"]
    max_output: int = Field(default=10_000_000, ge=1_000)

    @field_validator("command", "env", "ref")
    @classmethod
    def _can_be_passed(cls, value: _Passed) -> _Passed:
        """Refuse texts that no process can get as an argument or a variable.

        Raises:
            ValueError: a text contains NUL, or the name of a variable is empty or contains "=".
        """
        texts = [value] if isinstance(value, str) else list(value or ())
        if isinstance(value, dict):
            if any(not name or "=" in name for name in texts):
                message = 'the name of a variable is empty or contains "="'
                raise ValueError(message)
            texts += value.values()
        if any("\0" in one for one in texts):
            message = "it contains NUL"
            raise ValueError(message)
        return value


class NotificationsTable(_Table):
    """`[dispatcher] notifications` as written."""

    on_start: bool = False
    on_complete: bool = False
    on_error: bool = False
    channels: tuple[str, ...] = Field(default=(), strict=False, repr=False)

    @field_validator("channels")
    @classmethod
    def _check(cls, channels: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse a URL that apprise does not know; the message does not repeat it.

        Raises:
            ValueError: apprise does not know a channel, or is not installed.
        """
        if not channels:
            return channels
        try:
            # Optional dependency, only needed with channels.
            from headway.server.alerts.apprise_sink import is_known  # noqa: PLC0415
        except ModuleNotFoundError:
            message = "channels needs the package apprise; pip install 'headway[alerts]'"
            raise ValueError(message) from None
        for number, url in enumerate(channels, start=1):
            if not is_known(url):
                message = f"channel {number} is not a URL that apprise knows, such as mailto://…"
                raise ValueError(message)
        return channels


class GovernorTable(_Table):
    """`[dispatcher.governor]`: loads in % above which its own `max_concurrent` applies."""

    cpu: int | None = Field(default=None, ge=1)
    memory: int | None = Field(default=None, ge=1, le=100)
    max_concurrent: int = Field(default=1, ge=0, le=MOST_SESSIONS)


class DispatcherTable(_Table):
    """`[dispatcher]` as written."""

    enabled: bool = True
    max_concurrent: int = Field(default=3, ge=0, le=MOST_SESSIONS)
    lock_timeout_hours: float = Field(default=4, gt=0, le=LONGEST_HOURS, strict=False)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    notifications: NotificationsTable = NotificationsTable()
    governor: GovernorTable = GovernorTable()


@dataclass(frozen=True, kw_only=True, slots=True)
class Automation:
    """One valid entry.

    Attributes:
        schedule: when it fires; `Dispatcher.spec` sets the anchor of an interval.
        window: when its sessions may start; None for any time.
        line: first line in the file, from 1.
    """

    table: AutomationTable
    repository: Repository
    schedule: Schedule
    window: GateSpec | None
    line: int

    @property
    def id(self) -> str:
        """Id, unique in the file."""
        return self.table.id

    @property
    def digest(self) -> str:
        """Hash that changes with any edit of the entry."""
        return sha256(self.table.model_dump_json().encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFault:
    """An error in the file.

    Attributes:
        automation_id: id of the entry, if it can be read, even if the entry is not TOML.
        line: from 1.
    """

    automation_id: str | None
    file: str
    line: int
    error: str

    def __str__(self) -> str:
        """Return file, line and error, in the format of compilers."""
        return f"{self.file}:{self.line}: {self.error}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The contents of a file.

    Attributes:
        automations: valid entries by id, in the order of the file.
    """

    automations: Mapping[str, Automation] = field(default_factory=dict[str, Automation])
    dispatcher: DispatcherTable = field(default_factory=DispatcherTable)
    faults: tuple[ConfigFault, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chunk:
    """The lines of one table of the file."""

    line: int
    lines: Sequence[str]
    is_automation: bool

    def line_of(self, key: str) -> int:
        """Return the line of a key; the first line if it is not found."""
        name = re.escape(key)
        key_line = re.compile(rf"""^\s*(?:\[\s*automation\s*\.\s*)?["']?{name}["']?\s*[=.\]]""")
        for number, text in enumerate(self.lines):
            if key_line.match(text):
                return self.line + number
        return self.line

    @property
    def id(self) -> str | None:
        """The id that a line sets; None if there is no such line. The lines need not be TOML."""
        found = (_ID.match(text) for text in self.lines)
        return next((one[1] for one in found if one), None)


def read_config(path: Path) -> Config:
    """Read a file.

    Args:
        path: path of `automations.toml`; relative paths of repositories start in its folder.

    Raises:
        InvalidValue: the file cannot be read at all.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            error.strerror if isinstance(error, OSError) else f"not UTF-8 at byte {error.start}"
        )
        message = f"{path} cannot be read: {reason}"
        raise InvalidValue(message, hint="set [automations] file, or pass --file") from None
    if not text.strip():
        # Most programs empty a file before they write it.
        message = f"{path} is empty"
        raise InvalidValue(message, hint="a file without entries needs a comment")
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> Config:
    """Parse the text of a file."""
    automations: dict[str, Automation] = {}
    dispatcher = DispatcherTable()
    faults: list[ConfigFault] = []

    def invalid(error: _Invalid, name: str | None = None) -> None:
        line, text = error.args
        faults.append(ConfigFault(automation_id=name, file=str(path), line=line, error=text))

    for chunk in _chunks(text):
        name = chunk.id if chunk.is_automation else None
        try:
            if not chunk.is_automation:
                for key, value in _dispatcher_values(chunk, invalid):
                    try:
                        one_key = _validated(DispatcherTable, {key: value}, chunk)
                    except _Invalid as error:
                        invalid(error)
                    else:
                        dispatcher = dispatcher.model_copy(update={key: getattr(one_key, key)})
                continue
            found = _load(chunk)["automation"][0]
            name = found["id"] if isinstance(found.get("id"), str) else None
            one = _automation(found, chunk, path.parent.absolute(), automations)
            automations[one.id] = one
        except _Invalid as error:
            invalid(error, name)
    return Config(automations=automations, dispatcher=dispatcher, faults=tuple(faults))


class _Invalid(Exception):
    """A line number and its error."""


def _chunks(text: str) -> Iterator[_Chunk]:
    """Split the file at each `[[automation]]` and each other top-level table.

    A header within a multi-line string does not count: a part that is valid TOML only together
    with the following parts is joined with them.
    """
    # Not `splitlines`, which also splits at characters that TOML allows in a string or comment.
    lines = text.removesuffix("\n").split("\n")
    starts = [
        (number, _HEADER.match(line) is not None)
        for number, line in enumerate(lines)
        if _HEADER.match(line) or _TABLE.match(line)
    ]
    starts = [(0, False), *starts] if not starts or starts[0][0] else starts
    place = 0
    while place < len(starts):
        begin, is_automation = starts[place]
        ends = [number for number, _ in starts[place + 1 :]] + [len(lines)]
        joined = next(
            (n for n, end in enumerate(ends[:20]) if _is_toml("\n".join(lines[begin:end]))), 0
        )
        part = lines[begin : ends[joined]]
        if is_automation or any(line.strip() for line in part):
            yield _Chunk(line=begin + 1, lines=part, is_automation=is_automation)
        place += joined + 1


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _load(chunk: _Chunk) -> dict[str, Any]:
    try:
        return tomllib.loads("\n".join(chunk.lines))
    except tomllib.TOMLDecodeError as error:
        at = _AT_LINE.search(str(error))
        line = chunk.line + (int(at[1]) if at else len(chunk.lines)) - 1
        raise _Invalid(line, f"not TOML: {_AT_LINE.sub('', str(error))}") from None


def _dispatcher_values(
    chunk: _Chunk, invalid: Callable[[_Invalid], None]
) -> Iterator[tuple[str, Any]]:
    """Yield the values of `[dispatcher]`; if it is not TOML, report that, and yield those that are.

    Otherwise a typing error in one line would undo `enabled = false` in another.
    """
    try:
        tables = [_load(chunk)]
    except _Invalid as error:
        invalid(error)
        lines = [f"{chunk.lines[0]}\n{line}" for line in chunk.lines[1:]]
        tables = [tomllib.loads(line) for line in lines if _is_toml(line)]
    for table in tables:
        yield from _head(table, chunk).items()


def _head(table: dict[str, Any], chunk: _Chunk) -> dict[str, Any]:
    """Return the values of `[dispatcher]`, to be validated one by one.

    Raises:
        _Invalid: there is another table, or `dispatcher` is not a table.
    """
    strange = sorted(table.keys() - {"dispatcher"})
    if strange:
        hint = did_you_mean(strange[0], _TABLES, f"known: {', '.join(_TABLES)}")
        if strange[0] == "automation":
            hint = "write [[automation]]"
        raise _Invalid(chunk.line_of(strange[0]), f"there is no table {strange[0]!r}; {hint}")
    keys = table.get("dispatcher", {})
    if not isinstance(keys, dict):
        raise _Invalid(chunk.line_of("dispatcher"), "dispatcher is not a table")
    return cast("dict[str, Any]", keys)


def _automation(
    found: dict[str, Any], chunk: _Chunk, folder: Path, known: Mapping[str, Automation]
) -> Automation:
    table = _validated(AutomationTable, found, chunk)
    if table.id in known:
        text = f"id {table.id!r} is already used in line {known[table.id].line}"
        raise _Invalid(chunk.line_of("id"), text)
    key = "repository"
    try:
        repository = read_repository(table.repository, folder=folder)
        key = "schedule"
        schedule = read_schedule(table.schedule, tz=table.tz)
        key = "window"
        window = _window(table)
    except InvalidValue as error:
        raise _Invalid(chunk.line_of(key), f"{key}: {error}") from None
    return Automation(
        table=table, repository=repository, schedule=schedule, window=window, line=chunk.line
    )


def _validated(model: type[Any], values: object, chunk: _Chunk) -> Any:  # noqa: ANN401  (one of the models)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = faults(
            error.errors(include_url=False),
            values,
            shows=lambda path: path[0] not in _SECRET,
            toml=True,
        )
        first = min(found, key=lambda one: one.kind != "extra_forbidden")
        keys = [part for part in first.path if isinstance(part, str)] or ["automation"]
        if first.kind == "extra_forbidden":
            text = f"there is no key {keys[-1]!r}; "
            known: list[str] = sorted(model.model_fields)
            text += did_you_mean(keys[-1], known, f"known: {', '.join(known)}")
        elif first.kind == "missing":
            text = f"{keys[-1]} is missing"
        else:
            if chunk.line_of(keys[-1]) > chunk.line:
                keys = keys[-1:]
            text = f"{keys[0]}: {first.said}"
        raise _Invalid(chunk.line_of(keys[0]), text) from None


def read_schedule(written: str | Mapping[str, Any], *, tz: str) -> Schedule:
    """Read a schedule.

    Args:
        written: "cron: 0 9 * * 1-5", "0 9 * * 1-5", "@daily", "every 30m", "30m", "at 09:00",
            "09:00"; or {type = "cron" | "interval" | "at", value = …, tz = …}.
        tz: time zone of a cron expression or a time of day.

    Returns:
        The schedule; an interval is anchored at 1970.

    Raises:
        InvalidValue: the schedule has none of these forms.
    """
    if isinstance(written, str):
        text = written.strip()
        if text.startswith("@") or len(text.split()) == 5:
            text = f"cron: {text}"
        elif _TIME.fullmatch(text.partition(" ")[0]):
            text = f"at {text}"
        elif text[:1].isdigit():
            text = f"every {text}"
        return parse_schedule(text, tz=tz)
    strange = sorted(written.keys() - {"type", "value", "tz"})
    kind, value, zone = written.get("type"), written.get("value"), written.get("tz", tz)
    if strange or not (isinstance(kind, str) and isinstance(value, str) and isinstance(zone, str)):
        message = f"there is no key {strange[0]!r}" if strange else "type and value must be text"
        raise InvalidValue(message, hint='use {type = "cron", value = "0 9 * * *", tz = "UTC"}')
    if kind not in _TYPES:
        message = f"the type {kind!r} is not known"
        raise InvalidValue(message, hint='use "cron", "interval" or "at"')
    return parse_schedule(f"{_TYPES[kind]}: {value}", tz=zone)


def _window(table: AutomationTable) -> GateSpec | None:
    written = table.window
    if written is None:
        return None
    one = WindowTable(hours=written) if isinstance(written, str) else written
    return Hours(f"automations.window:{table.id}", one.hours, days=one.days, tz=one.tz or table.tz)
