"""The timetable as a calendar: upcoming fires, outcomes of past fires, and actions on entries.

The id of a fire's job is derived from its entry and its time. So the outcomes of any days are read
by ids, and the cost depends on what the page shows, never on the number of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from zoneinfo import ZoneInfo

from headway.contract.views import EntryView, JobView, TimetableQuery
from headway.core.errors import InvalidValue, UnknownEntry
from headway.core.local_time import find_zone, first_instant, wall_clock
from headway.core.state import State
from headway.core.timetable.fires import fires_between, latest_fires, next_fires
from headway.core.timetable.schedule import Every, Schedule, format_schedule
from headway.server.caller import Caller, Permission
from headway.server.entry_fires import fire_ids, has_fired
from headway.server.finding import jobs_by_id
from headway.server.routes import timetable as routes
from headway.web.page import Action, DashboardPage, PageView, RouteCall, TemplateContext, rows_of
from headway.web.shared_reads import SLOW_S

DRAWN = 100
"""Number of entries drawn in the calendar: the first by name."""
OFTEN = {"week": 21, "day": 24}
"""Number of fires of an entry above which the calendar summarizes them in one line."""
LAST = 5
"""Number of past fires shown per entry in the list; an entry's own page shows four times that."""
MOST_LOOKED = 200
"""Maximum fires in the calendar whose jobs are read: those nearest to now."""
VIEWS = ("week", "day")

Jobs = Mapping[tuple[str, int], JobView]
"""The jobs of fires, by the entry's name and the fire's time (ms UTC)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fire:
    """A fire of an entry.

    Attributes:
        at: ms UTC.
        clock: Wall-clock time in the calendar's zone, such as "09:05".
        job: Its job; None if it has not been created.
    """

    entry: EntryView
    at: int
    clock: str
    job: JobView | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stretch:
    """A column of a week, or a row of a day.

    Attributes:
        title: The day or the hour, for display.
        date: The day, as in the page's parameter.
        start_at: ms UTC.
        today: Whether it contains the current time.
    """

    title: str
    date: str
    start_at: int
    today: bool
    fires: Sequence[Fire]


@dataclass(frozen=True, kw_only=True, slots=True)
class Often:
    """An entry that fires too often to draw each time."""

    entry: EntryView
    each: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """An entry of the list.

    Attributes:
        when: Its schedule, as users write it.
        zone: Its time zone; "" for an interval.
        next_at: ms UTC; None if it is disabled, or never fires again.
        last: Its last fires, oldest first.
    """

    entry: EntryView
    when: str
    zone: str
    next_at: int | None
    last: Sequence[Fire]

    @property
    def failed(self) -> bool:
        """Whether the last finished fire is dead."""
        states = [one.job.state for one in self.last if one.job is not None]
        ended = [one for one in states if one in {State.SUCCEEDED, State.DEAD}]
        return ended[-1:] == [State.DEAD]


async def read(view: PageView) -> TemplateContext:
    """Return the calendar and the list of entries, or the details of one entry."""
    now = await view.service.now()
    found = await view.reads.cached("timetable", lambda: view.service.store.read(TimetableQuery()))
    entries = [one for one in found if view.caller.sees(one.spec.job)]
    facts: dict[str, object] = {"now": now, "views": VIEWS}
    if name := view.values["entry"]:
        return {**facts, "one": await _one(view, entries, name, now)}
    sought = view.values["q"].casefold()
    entries = [one for one in entries if sought in one.spec.name.casefold()]
    calendar = _Calendar(view, now)
    shown, often = calendar.fires(entries[:DRAWN])
    listed, place = rows_of(view.values, entries)
    last = [(one, at) for one in listed for at in _last(one, now, LAST)]
    near = sorted(shown, key=lambda one: abs(one[1] - now))[:MOST_LOOKED]
    key = ("fires", view.caller.lanes, *sorted(view.values.items()))
    jobs = await view.reads.cached(key, lambda: _jobs(view, [*last, *near]), SLOW_S / 2)
    rows = [_row(one, now, calendar.clock, jobs) for one in listed]
    rows.sort(key=lambda one: (not one.failed, one.next_at is None, one.next_at or 0))
    stretches = calendar.stretches(shown, jobs)
    return {
        **facts,
        **place,
        "version": (stretches, often, rows, len(entries)),
        "one": None,
        "calendar": calendar,
        "stretches": stretches,
        "often": often,
        "rows": rows,
        "failed": [one for one in rows if one.failed],
        "undrawn": max(0, len(entries) - DRAWN),
    }


async def _one(view: PageView, entries: Sequence[EntryView], name: str, now: int) -> object:
    entry = next((one for one in entries if one.spec.name == name), None)
    if entry is None:
        message = f"there is no entry {name[:80]!r}"
        raise UnknownEntry(message, hint="the timetable lists them")
    clock = _Calendar(view, now).clock
    last = [(entry, at) for at in _last(entry, now, 4 * LAST)]
    ahead = next_fires(entry.spec.schedule, now, 10) if entry.spec.enabled else []
    pairs = [*last, *((entry, at) for at in ahead)]
    key = ("entry", name, view.caller.lanes)
    jobs = await view.reads.cached(key, lambda: _jobs(view, pairs), 1.0)
    return {
        "row": _row(entry, now, clock, jobs, 4 * LAST),
        "ahead": _fires([(entry, at) for at in ahead], now, clock, jobs),
    }


class _Calendar:
    """The requested days or hours, in a time zone."""

    def __init__(self, view: PageView, now: int) -> None:
        """Read the page's parameters."""
        self.now = now
        self.tz = view.values["tz"] or "UTC"
        self.zone = find_zone(self.tz)
        self.view = "day" if view.values["view"] == "day" else "week"
        today = wall_clock(self.zone, now).replace(hour=0, minute=0, second=0, microsecond=0)
        self.day = self._day(view.values["day"]) if view.values["day"] else today
        steps = 7 if self.view == "week" else 1
        self.before = self._text(-steps)
        self.after = self._text(steps)
        self.is_now = self.day <= today < self.day + timedelta(days=steps)
        self.title = f"{self.day:%-d %b %Y}"
        if steps > 1:
            self.title = f"{self.day:%-d %b} to {self.day + timedelta(days=6):%-d %b %Y}"
        each = [timedelta(days=n) for n in range(8)]
        if self.view == "day":
            each = [timedelta(hours=n) for n in range(25)]
        self.walls = [self.day + one for one in each]
        # An hour that is skipped when the clock changes has a length of zero.
        self.edges = [first_instant(self.zone, one) for one in self.walls]

    def _day(self, text: str) -> datetime:
        try:
            day = datetime.strptime(text, "%Y-%m-%d")  # noqa: DTZ007  (a wall clock)
        except ValueError:
            message = f"{text[:40]!r} is not a day"
            raise InvalidValue(message, hint='write it as "2026-12-24"') from None
        if not 1971 <= day.year <= 9000:
            message = f"{text[:40]!r} is not a day that the calendar can show"
            raise InvalidValue(message, hint="use a day in the years 1971 to 9000")
        return day

    def _text(self, days: int) -> str:
        return f"{self.day + timedelta(days=days):%Y-%m-%d}"

    def clock(self, at: int) -> str:
        """Return the wall-clock time in the calendar's zone."""
        return _clock(self.zone, at)

    def fires(
        self, entries: Sequence[EntryView]
    ) -> tuple[list[tuple[EntryView, int]], list[Often]]:
        """Return the fires in the calendar, in order, and the entries with too many to draw."""
        found: list[tuple[EntryView, int]] = []
        often: list[Often] = []
        most = OFTEN[self.view]
        for one in entries:
            schedule, spec = one.spec.schedule, one.spec
            moments = _between(schedule, self.edges[0] - 1, self.edges[-1] - 1, most + 1)
            if len(moments) > most:
                if spec.enabled:
                    often.append(Often(entry=one, each=_words(schedule)))
                continue
            # Past fires may exist since the entry was first seen; future ones if it is enabled.
            found += [
                (one, at)
                for at in moments
                if (one.first_seen_at < at if at <= self.now else spec.enabled)
            ]
        return sorted(found, key=lambda pair: (pair[1], pair[0].spec.name)), often

    def stretches(self, shown: Sequence[tuple[EntryView, int]], jobs: Jobs) -> list[_Stretch]:
        """Return the calendar's days or hours, with their fires."""
        found: list[_Stretch] = []
        edges = zip(self.walls, self.edges, self.edges[1:], strict=False)
        for wall, start, end in edges:
            inside = [pair for pair in shown if start <= pair[1] < end]
            found.append(
                _Stretch(
                    title=f"{wall:%a %-d %b}" if self.view == "week" else f"{wall:%H:%M}",
                    date=f"{wall:%Y-%m-%d}",
                    start_at=start,
                    today=start <= self.now < end,
                    fires=_fires(inside, self.now, self.clock, jobs),
                )
            )
        return found


async def _jobs(view: PageView, fires: Sequence[tuple[EntryView, int]]) -> Jobs:
    """Return the jobs of fires that are still stored and that the caller may see."""
    ids = {id_: (one.spec.name, at) for one, at in fires for id_ in fire_ids(one, [at])}
    found = jobs_by_id(view.service.store, ids)
    return {ids[job.id]: job async for job in found if view.caller.sees(job)}


def _fires(
    pairs: Sequence[tuple[EntryView, int]], now: int, clock: Callable[[int], str], jobs: Jobs
) -> list[Fire]:
    """Return the fires that have fired, and those in the future."""
    found = [
        Fire(entry=one, at=at, clock=clock(at), job=jobs.get((one.spec.name, at)))
        for one, at in pairs
    ]
    return [one for one in found if one.at > now or (one.job and has_fired(one.job))]


def _row(
    entry: EntryView, now: int, clock: Callable[[int], str], jobs: Jobs, most: int = LAST
) -> _Row:
    schedule = entry.spec.schedule
    ahead = _ahead(schedule, now, 1) if entry.spec.enabled else ()
    return _Row(
        entry=entry,
        when=_words(schedule),
        zone="" if isinstance(schedule, Every) else schedule.tz,
        next_at=ahead[0] if ahead else None,
        last=_fires([(entry, at) for at in _last(entry, now, most)], now, clock, jobs),
    )


def _words(schedule: Schedule) -> str:
    return format_schedule(schedule).removeprefix("cron: ")


# Wall-clock schedules have no seconds, so the time is rounded down to the minute: all reads within
# a minute then share one cached calculation.


def _last(entry: EntryView, now: int, most: int) -> Sequence[int]:
    schedule = entry.spec.schedule
    until = now if isinstance(schedule, Every) else now - now % 60_000
    return _latest(schedule, entry.first_seen_at, until, most)


def _ahead(schedule: Schedule, now: int, most: int) -> Sequence[int]:
    return _next(schedule, now if isinstance(schedule, Every) else now - now % 60_000, most)


@lru_cache(maxsize=4096)
def _clock(zone: ZoneInfo, at: int) -> str:
    return f"{wall_clock(zone, at):%H:%M}"


_latest = lru_cache(maxsize=1024)(latest_fires)
_next = lru_cache(maxsize=1024)(next_fires)
_between = lru_cache(maxsize=1024)(fires_between)


_on_entry = partial(
    Action, call=lambda values: RouteCall(path={"name": values["entry"]}), of=("entry",)
)

DISABLE = _on_entry(
    name="disable-entry",
    label="Disable",
    title="Disable the entry {entry}",
    explains="It does not fire until it is enabled, and its scheduled fires are cancelled. What "
    "would have fired in the meantime is not made up for.",
    endpoint=routes.disable_entry,
    done="{entry} is disabled.",
    danger=True,
)
ENABLE = _on_entry(
    name="enable-entry",
    label="Enable",
    title="Enable the entry {entry}",
    explains="It fires on its schedule again.",
    endpoint=routes.enable_entry,
    done="{entry} fires again.",
)
FIRE = _on_entry(
    name="fire-entry",
    label="Fire now",
    title="Fire the entry {entry} now",
    explains="Creates its job once more, due now and outside the timetable: it shifts no fire, and "
    "can start while an earlier one runs, if its gates allow.",
    endpoint=routes.fire_entry,
    done="A job of {entry} was created.",
)

PAGE = DashboardPage(
    path="timetable",
    title="Timetable",
    template="timetable.html",
    fragments=("failed", "calendar", "entries"),
    read=read,
    permission=Permission.OBSERVE,
    reach=Caller.every_tenant,
    params=("entry", "view", "day", "tz", "q", "from"),
    actions=(DISABLE, ENABLE, FIRE),
)
