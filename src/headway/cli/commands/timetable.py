"""`headway timetable`: recurring entries, and when they fire next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.defining import define
from headway.cli.options import Signed
from headway.cli.session import CommandSession
from headway.cli.terminal import rounded_duration
from headway.contract.definitions import EnableEntry
from headway.contract.store import Store
from headway.contract.views import EntryView, StatsQuery, TimetableQuery
from headway.core.errors import UnknownEntry
from headway.core.naming import did_you_mean
from headway.core.timetable.fires import next_fires
from headway.core.timetable.schedule import At, Every, Schedule, format_schedule
from headway.runtime.chores import TimetableChore
from headway.runtime.records import record
from headway.runtime.timing import Timing
from headway.server.entry_fires import coming_fires, last_fires

app = new_command()

EntryName = Annotated[str, typer.Argument(metavar="ENTRY", help="Name of the entry.")]
_Fires = tuple[EntryView, Sequence[int], int | None]
NEXT = 3
"""Fires per entry in the JSON listing."""


@command(app, default=True)
def timetable(session: CommandSession) -> None:
    """List entries with their next fire and the last one that created a job.

    With --json: {"entries": [...]}, each with its next three fires.
    """
    found, now = session.with_store(_read)
    session.terminal.listing(
        {
            "entries": [
                {**record(one), "schedule": _words(one.spec.schedule), "next": coming, "last": last}
                for one, coming, last in found
            ]
        },
        ["ENTRY", "WHEN", "KIND", "LANE", "NEXT", "LAST", "OVERLAP", "MISFIRE", "FOLDED", ""],
        [_row(session, now, *one) for one in found],
        empty="no entries: an App declares them with its first send, or when its worker starts",
    )


@command(app, "next")
def next_(
    session: CommandSession,
    name: EntryName,
    n: Annotated[int, typer.Argument(min=1, max=10_000, help="Number of fires.")] = 10,
) -> None:
    """Show the next fires of an entry, in your time zone and in its own.

    Raises:
        UnknownEntry: there is no such entry.
    """
    entry, fires, now = session.with_store(lambda store: _read_next(store, name, n))
    if session.json:
        session.terminal.document({"entry": name, "next": fires})
        return
    session.terminal.table(
        ["FIRES", "IN"],
        [(session.clock.at(at), rounded_duration(at - now)) for at in fires],
        empty="it never fires again",
    )
    if not entry.spec.enabled:
        session.terminal.remark(f"{name} is disabled: none of these will happen", "yellow")


@command(app, "enable")
def enable(session: CommandSession, name: EntryName, signed: Signed) -> None:
    """Enable an entry."""
    define(session, name, EnableEntry(name=name, enabled=True), signed, done=f"{name} is on")
    session.with_store(lambda store: TimetableChore(store, Timing()).create_fires(name))


@command(app, "disable")
def disable(session: CommandSession, name: EntryName, signed: Signed) -> None:
    """Disable an entry; its scheduled fires are cancelled."""
    define(session, name, EnableEntry(name=name, enabled=False), signed, done=f"{name} is off")


async def _read_next(store: Store, name: str, n: int) -> tuple[EntryView, Sequence[int], int]:
    """Return an entry, its next fires if it were enabled, and the store's time.

    Raises:
        UnknownEntry: there is no such entry.
    """
    entries = await store.read(TimetableQuery())
    entry = next((one for one in entries if one.spec.name == name), None)
    if entry is None:
        message = f"there is no entry {name!r}"
        known = [one.spec.name for one in entries]
        raise UnknownEntry(message, hint=did_you_mean(name, known, "headway timetable lists them"))
    now = (await store.read(StatsQuery())).now
    if not entry.spec.enabled:
        return entry, next_fires(entry.spec.schedule, now, n), now
    return entry, (await coming_fires(store, [entry], now, n))[name], now


async def _read(store: Store) -> tuple[list[_Fires], int]:
    """Return the entries with their next fires and their last one, and the store's time."""
    entries = await store.read(TimetableQuery())
    now = (await store.read(StatsQuery())).now
    coming = await coming_fires(store, entries, now, NEXT)
    last = await last_fires(store, entries, now)
    names = [(one, one.spec.name) for one in entries]
    return [(one, coming.get(name, []), last.get(name)) for one, name in names], now


def _row(
    session: CommandSession, now: int, entry: EntryView, coming: Sequence[int], last: int | None
) -> list[str]:
    spec = entry.spec
    return [
        spec.name,
        _words(spec.schedule),
        spec.job.kind,
        spec.job.lane,
        session.clock.around(coming[0] if coming else None, now),
        session.clock.at(last),
        spec.overlap,
        spec.misfire,
        str(entry.folded),
        "" if spec.enabled else "off",
    ]


def _words(schedule: Schedule) -> str:
    text = format_schedule(schedule)
    if isinstance(schedule, Every):
        return text
    daily = " daily" if isinstance(schedule, At) and schedule.days == "daily" else ""
    return f"{text}{daily} ({schedule.tz})"
