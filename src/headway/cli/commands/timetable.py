"""`headway timetable`: what recurs, and when it fires next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, assert_never

import typer

from headway.cli.command import command, new_command
from headway.cli.defining import define
from headway.cli.options import Signed
from headway.cli.session import Session
from headway.cli.terminal import rough
from headway.contract.definitions import EnableEntry
from headway.contract.store import Store
from headway.contract.views import EntryView, JobsQuery, JobView, StatsQuery, TimetableQuery
from headway.core.duration import format_duration
from headway.core.errors import UnknownEntry
from headway.core.job import fire_id
from headway.core.state import State
from headway.core.timetable.fires import latest_fires, next_fires
from headway.core.timetable.schedule import At, Cron, Every, Schedule
from headway.runtime.chores import TimetableChore
from headway.runtime.records import Record, record
from headway.runtime.timing import Timing

app = new_command()

EntryName = Annotated[str, typer.Argument(metavar="ENTRY", help="The entry's name.")]
NEXT = 3
"""Fires per entry in the JSON listing."""
RECENT = 5
"""Moments before now at which an entry may have fired, whose jobs are looked for by their ids."""
EARLIER = 2
"""Revisions under which such a fire may have been laid besides the present one: switching an entry
off and on makes two."""
PAGE = 1_000


@command(app, default=True)
def timetable(session: Session) -> None:
    """List the entries with their next fire, and the last one that became a job.

    With --json: {"entries": [...]}, each with its next three fires.
    """
    entries, now, last = session.with_store(_read)
    if session.json:
        rows = [
            _entry_record(entry, now, NEXT) | {"last": last.get(entry.spec.name)}
            for entry in entries
        ]
        session.terminal.document({"entries": rows})
        return
    session.terminal.table(
        ["ENTRY", "WHEN", "KIND", "LANE", "NEXT", "LAST", "OVERLAP", "MISFIRE", "FOLDED", ""],
        [_row(session, entry, now, last.get(entry.spec.name)) for entry in entries],
        empty="no entries: they come with the App that declares them",
    )


@command(app, "next")
def next_(
    session: Session,
    name: EntryName,
    n: Annotated[int, typer.Argument(min=1, max=10_000, help="How many.")] = 10,
) -> None:
    """Show the next fires of an entry, on your clock and on its own.

    Raises:
        UnknownEntry: there is no entry of that name.
    """
    entries, now = session.ask_at(TimetableQuery())
    entry = next((one for one in entries if one.spec.name == name), None)
    if entry is None:
        message = f"there is no entry {name!r}"
        raise UnknownEntry(message, hint="headway timetable lists them")
    fires = next_fires(entry.spec.schedule, now, n)
    if session.json:
        session.terminal.document({"entry": name, "next": fires})
        return
    session.terminal.table(
        ["FIRES", "IN"],
        [(session.clock.at(at), rough(at - now)) for at in fires],
        empty="it never fires again",
    )
    if not entry.spec.enabled:
        session.terminal.remark(f"{name} is switched off: none of these will happen", "yellow")


@command(app, "enable")
def enable(session: Session, name: EntryName, signed: Signed) -> None:
    """Switch an entry on."""
    define(session, EnableEntry(name=name, enabled=True), signed, done=f"{name} is on")
    session.with_store(lambda store: TimetableChore(store, Timing()).lay(name))


@command(app, "disable")
def disable(session: Session, name: EntryName, signed: Signed) -> None:
    """Switch an entry off; its queued fires fall."""
    define(session, EnableEntry(name=name, enabled=False), signed, done=f"{name} is off")


async def _read(store: Store) -> tuple[tuple[EntryView, ...], int, dict[str, int]]:
    """Return the entries, the store's time, and when each entry fired last."""
    entries = await store.read(TimetableQuery())
    now = (await store.read(StatsQuery())).now
    return entries, now, await _last_fires(store, entries, now)


async def _last_fires(store: Store, entries: Sequence[EntryView], now: int) -> dict[str, int]:
    """Return the last moment at which each entry fired, as far as the job is kept.

    A moment that is laid ahead, folded or dropped by an edit does not count. `last_fired` of an
    entry does not say it: it is the moment up to which nothing is fired any more.
    """
    fired = [one for one in entries if one.last_fired is not None]
    ids = tuple(id_ for one in fired for id_ in _recent_ids(one, now))
    found: dict[str, int] = {}
    for first in range(0, len(ids), PAGE):
        page = await store.read(JobsQuery(ids=ids[first : first + PAGE], limit=PAGE))
        _note_fires(found, page.rows)
    # Those whose schedule was another, or whose last fires were folded.
    left = {(one.spec.job.lane, one.spec.job.kind) for one in fired if one.spec.name not in found}
    begun = tuple(state for state in State if state not in {State.SCHEDULED, State.CANCELLED})
    for lane, kind in sorted(left):
        query = JobsQuery(lane=lane, kind=kind, states=begun, newest=True, limit=PAGE)
        _note_fires(found, (await store.read(query)).rows)
    return found


def _recent_ids(entry: EntryView, now: int) -> Iterator[str]:
    spec = entry.spec
    for moment in latest_fires(spec.schedule, entry.first_seen_at - 1, now, RECENT):
        for revision in range(max(1, entry.revision - EARLIER), entry.revision + 1):
            yield fire_id(spec.name, entry.first_seen_at, revision, moment)


def _note_fires(found: dict[str, int], jobs: Iterable[JobView]) -> None:
    for job in jobs:
        began = job.run or job.state not in {State.SCHEDULED, State.CANCELLED}
        if began and job.entry is not None and job.fired_at is not None:
            found[job.entry] = max(found.get(job.entry, 0), job.fired_at)


def _entry_record(entry: EntryView, now: int, n: int) -> Record:
    fields = record(entry)
    fields["schedule"] = _words(entry.spec.schedule)
    fields["next"] = next_fires(entry.spec.schedule, now, n) if entry.spec.enabled else []
    return fields


def _row(session: Session, entry: EntryView, now: int, last: int | None) -> list[str]:
    spec = entry.spec
    fires = next_fires(spec.schedule, now, 1) if spec.enabled else []
    return [
        spec.name,
        _words(spec.schedule),
        spec.job.kind,
        spec.job.lane,
        session.clock.around(fires[0] if fires else None, now),
        session.clock.at(last),
        spec.overlap,
        spec.misfire,
        str(entry.folded),
        "" if spec.enabled else "off",
    ]


def _words(schedule: Schedule) -> str:
    match schedule:
        case Cron(expr=expr, tz=tz):
            return f"cron: {expr} ({tz})"
        case Every(interval_ms=interval_ms):
            return f"every {format_duration(interval_ms, parts=6)}"
        case At(time=time, tz=tz, days=days):
            return f"at {time} {days} ({tz})"
        case _:
            assert_never(schedule)
