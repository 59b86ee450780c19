"""Entries of the timetable as users declare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, get_args

from headway.contract.definitions import EntrySpec, Overlap
from headway.core.errors import InvalidValue
from headway.core.gates.spec import check_count
from headway.core.instant import parse_instant
from headway.core.job import derived_id
from headway.core.naming import check_name
from headway.core.timetable.misfire import MisfirePolicy
from headway.core.timetable.schedule import At, Cron, Every, Schedule
from headway.core.timetable.text import parse_schedule
from headway.runtime.kind import Kind

OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)


class EntryOptions(TypedDict, total=False):
    """An entry of the timetable.

    Attributes:
        schedule: "cron: 0 3 * * *", "every 30m" or "at 09:00 mon-fri"; or a Cron, Every or At.
        tz: the IANA zone of a cron or a time of day, if the schedule is text; UTC if not given.
        anchor: the first fire of an interval in text, as an aware datetime or ISO 8601.
        misfire: of fires missed in an outage: "skip", "once" (the latest) or "all".
        misfire_cap: the most fires that "all" makes up for.
        overlap: of a fire while an earlier one still waits or runs: "skip", "one" or "all".
        enabled: whether it fires.
        args: the handler's arguments, and the options of `Kind.make` but `due`.
    """

    schedule: str | Schedule
    tz: str
    anchor: object
    misfire: Literal["skip", "once", "all"]
    misfire_cap: int
    overlap: Overlap
    enabled: bool
    args: Mapping[str, Any]


def read_entry(name: str, kind: Kind, options: EntryOptions) -> EntrySpec:
    """Read the declaration of an entry.

    Args:
        name: of the entry.
        kind: what each fire is a job of.
        options: as written.

    Returns:
        What stores keep of it.

    Raises:
        InvalidValue: an option is unknown or unusable.
    """
    entry = check_name("entry", name)
    unknown = sorted(options.keys() - EntryOptions.__annotations__.keys())
    if unknown:
        message = f"the entry {entry!r} has an unknown option {unknown[0]!r}"
        raise InvalidValue(message, hint=f"options are {', '.join(EntryOptions.__annotations__)}")
    given = dict(options.get("args", {}))
    for refused in ("due", "job_id", "key"):
        if refused in given:
            message = f"the entry {entry!r} gives its jobs {refused!r}"
            raise InvalidValue(message, hint="each fire has its own")
    job = kind.make(**given, job_id=derived_id("entry", entry))
    return EntrySpec(
        name=entry,
        schedule=_schedule(entry, options),
        job=job,
        misfire=_misfire(entry, options.get("misfire", "once")),
        misfire_cap=check_count("misfire_cap", options.get("misfire_cap", 100), least=1),
        overlap=_overlap(entry, options.get("overlap", "skip")),
        enabled=options.get("enabled", True),
    )


def _schedule(entry: str, options: EntryOptions) -> Schedule:
    schedule = options.get("schedule")
    if isinstance(schedule, Cron | Every | At):
        return schedule
    if not isinstance(schedule, str):
        message = f"the entry {entry!r} has no schedule"
        raise InvalidValue(message, hint='such as "cron: 0 3 * * *", "every 30m" or "at 09:00"')
    anchor = options.get("anchor")
    return parse_schedule(
        schedule,
        tz=options.get("tz", "UTC"),
        anchor_at=0 if anchor is None else parse_instant(anchor),
    )


def _misfire(entry: str, word: str) -> MisfirePolicy:
    try:
        return MisfirePolicy(word)
    except ValueError:
        message = f"misfire of the entry {entry!r} is {word!r:.40}"
        raise InvalidValue(message, hint=", ".join(MisfirePolicy)) from None


def _overlap(entry: str, word: str) -> Overlap:
    for known in OVERLAPS:
        if word == known:
            return known
    message = f"overlap of the entry {entry!r} is {word!r:.40}"
    raise InvalidValue(message, hint=", ".join(OVERLAPS))
