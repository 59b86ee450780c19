"""The calendar in a server: reader, metrics, alert rules and dashboard page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from prometheus_client.core import Metric

from headway.bridges.cassandra.link import Link
from headway.bridges.cassandra.reader import Reader
from headway.bridges.cassandra.rows import MINUTE_MS, CalendarProgress, ahead_ms, load_progress
from headway.core.duration import format_duration
from headway.core.errors import StoreError
from headway.server.alerts.rule_set import Facts, RuleSet
from headway.server.alerts.rules import FindingTexts, Grows, Lasting, Lasts, Rule, Severity
from headway.server.caller import Caller, Permission
from headway.server.metrics import Families, Samples, one
from headway.server.overview import Overview
from headway.server.sending import send_jobs
from headway.server.service import Service
from headway.web.page import DashboardPage, PageView, TemplateContext

FAMILIES = Families()
"""All metrics, in the order of the reference."""
gauge, counter = FAMILIES.gauge, FAMILIES.counter
UP = gauge("calendar_up", "Whether Cassandra responds: 1 or 0; if 0, the others are missing.")
AHEAD = gauge(
    "calendar_ahead_seconds", "How far ahead of now the calendar has been read; 0 if it is behind."
)
OPEN = gauge(
    "calendar_open_seconds",
    "How long ago the first minute that is still read started; normally about 200.",
)
ROWS = counter(
    "calendar_rows",
    "Rows by result, since the calendar was created: read, enqueued, late (in a minute "
    "that had been read before), refused.",
    "what",
)

RUNBOOKS = "docs/how-to/cassandra.md"
LASTING_MS = 60_000
"""How long a problem must last before it alerts."""
REFUSED_WITHIN_MS = 900_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CalendarStatus:
    """The state of the calendar.

    Attributes:
        at: when it was read, in ms of a monotonic clock.
        now: the store's time, ms UTC.
        horizon_ms: how far the calendar should be read ahead.
        progress: None if Cassandra does not respond, or the calendar was never used.
        away: why Cassandra does not respond; empty if it does.
    """

    at: int
    now: int
    horizon_ms: int
    progress: CalendarProgress | None = None
    away: str = ""


class CalendarMetrics:
    """The calendar's metrics, which every server reports, not only the leader."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """See `MetricsSource.metrics`."""
        try:
            progress = await load_progress(self._link)
        except StoreError:
            return [one(UP, 0)]
        up = [one(UP, 1)]
        if progress is None or overview is None:
            return up
        now, rows = overview.stats.now, Samples(ROWS)
        for what in ("read", "enqueued", "late", "refused"):
            rows.put(getattr(progress, "rows_read" if what == "read" else what), what)
        opened = (progress.done_through + 1) * MINUTE_MS
        return [
            *up,
            one(AHEAD, ahead_ms(progress, now) / 1000),
            one(OPEN, max(0, now - opened) / 1000),
            rows.metric(),
        ]


def calendar_rules() -> tuple[Rule[CalendarStatus], ...]:
    """Return the alert rules, most severe first."""
    return (
        Lasts("calendar_away", Severity.P1, LASTING_MS, _away),
        Lasts("calendar_behind", Severity.P1, LASTING_MS, _behind),
        Grows("calendar_refused", Severity.P2, REFUSED_WITHIN_MS, _refusals, _refused),
    )


def start_calendar(service: Service, link: Link) -> None:
    """Read the calendar ahead while the server runs, and add its metrics and alert rules.

    Any number of servers may do so; one of them leads.
    """
    settings = link.settings

    async def see(facts: Facts) -> CalendarStatus | None:
        if facts.overview is None:
            return None
        now = facts.overview.stats.now
        progress, away = await _load(link)
        return CalendarStatus(
            at=facts.at, now=now, horizon_ms=settings.horizon, progress=progress, away=away
        )

    service.alerts.add(RuleSet(rules=calendar_rules, read=see, runbooks=RUNBOOKS))
    service.scrapes.add(CalendarMetrics(link))
    if service.options.chores:
        send = partial(send_jobs, service)
        reader = Reader(link, service.store, service.timing, send=send)
        service.keep_running(reader.run, "calendar")


async def _load(link: Link) -> tuple[CalendarProgress | None, str]:
    try:
        return await load_progress(link), ""
    except StoreError as error:
        return None, error.message


def _away(status: CalendarStatus) -> Lasting:
    """Alert if nothing is read ahead, and jobs due far ahead are refused."""
    if not status.away:
        return {}
    return {"cassandra": lambda ms: f"no response for {format_duration(ms)}: {status.away}"}


def _behind(status: CalendarStatus) -> Lasting:
    """Alert if less than half the horizon is read ahead."""
    if status.progress is None:
        return {}
    ahead = ahead_ms(status.progress, status.now)
    if ahead >= status.horizon_ms // 2:
        return {}
    wanted = format_duration(status.horizon_ms)
    return {
        "calendar": lambda ms: (
            f"read {format_duration(ahead)} ahead instead of {wanted}, "
            f"for {format_duration(ms)} now"
        )
    }


def _refusals(status: CalendarStatus) -> Mapping[str, int]:
    return {} if status.progress is None else {"calendar": status.progress.refused}


def _refused(grown: Mapping[str, int]) -> FindingTexts:
    """Alert if the store refused jobs permanently."""
    within = format_duration(REFUSED_WITHIN_MS)
    return {
        where: f"{n} rows were refused within {within} and are stored separately"
        for where, n in grown.items()
        if n
    }


FRESH_S = 2.0


def calendar_page(link: Link) -> DashboardPage:
    """Return the dashboard page of the calendar."""

    async def read(view: PageView) -> TemplateContext:
        now, settings = (await view.reads.overview()).stats.now, link.settings
        progress, away = await view.reads.cached("calendar", partial(_load, link), FRESH_S)
        ahead = 0 if progress is None else ahead_ms(progress, now)
        return {
            "now": now,
            "progress": progress,
            "away": away,
            "ahead": ahead,
            "late": progress is not None and ahead < settings.horizon // 2,
            "open_at": 0 if progress is None else (progress.done_through + 1) * MINUTE_MS,
            "settings": settings,
            "runbooks": RUNBOOKS,
        }

    return DashboardPage(
        path="calendar",
        title="Calendar",
        template="calendar.html",
        fragments=("calendar",),
        read=read,
        permission=Permission.OBSERVE,
        reach=Caller.whole,
        package=__name__.rpartition(".")[0],
    )
