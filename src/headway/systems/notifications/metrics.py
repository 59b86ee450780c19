"""The metrics of notifications, and the rules by which servers alert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import Metric

from headway.contract.store import Store
from headway.contract.views import GatesQuery
from headway.core.duration import format_duration
from headway.runtime.settings_table import Span
from headway.server.alerts.rule_set import Facts, RuleSet
from headway.server.alerts.rules import (
    FindingTexts,
    Grows,
    Lasting,
    Lasts,
    Least,
    Rule,
    Severity,
    Share,
    ThresholdTable,
)
from headway.server.metrics import Families, Samples, one
from headway.server.overview import Overview
from headway.server.service import Service
from headway.systems.directory.tally import (
    COUNTED,
    Counted,
    CountedTimes,
    SystemMetrics,
    Tally,
    Totals,
    by_parts,
    counts_of,
)
from headway.systems.jobs import find_lane
from headway.systems.notifications.notification import (
    BUCKETS_MS,
    FORGOTTEN,
    HISTORY_LANE,
    LOST,
    OFF,
    WRITTEN,
    Channel,
    Status,
    Tallied,
)

FAMILIES = Families()
"""All metrics, in the order of the reference."""
gauge, counter, histogram = FAMILIES.gauge, FAMILIES.counter, FAMILIES.histogram
OUTCOMES = counter(
    "notifications",
    "Sends by outcome: SENT, DELIVERED, FAILED, SKIPPED, answer_lost, and limited or unavailable "
    f"if they were postponed; {COUNTED}.",
    "channel",
    "outcome",
)
LATENESS = histogram(
    "notifications_lateness_seconds",
    f"Time from due until just before the provider is called; {COUNTED}.",
    "channel",
)
OVERDUE = gauge(
    "notifications_overdue_seconds",
    "How long the oldest waiting notification has been due; 0 if none is waiting.",
    "channel",
)
CLOSED = gauge(
    "notifications_channel_closed",
    "Whether the channel is closed, for example by a 429: 1 or 0.",
    "channel",
)

HISTORY_ROWS = counter(
    "notifications_history_rows",
    "Rows of the history: written, forgotten if the store had already deleted the notification, "
    f"or off if the worker has no history; {COUNTED}.",
    "what",
)
HISTORY_BEHIND = gauge(
    "notifications_history_behind_seconds",
    "How long the oldest ended notification has waited to be written to the history; 0 if none is "
    "waiting.",
)


class Thresholds(ThresholdTable):
    """The thresholds of the rules; durations are in ms, shares from 0 to 1.

    Attributes:
        runbooks: start of an alert's link, before `#` and the name of the rule.
        overdue_above_ms: how long a notification may be due and wait while its channel is open.
        overdue_for_ms: how long this must last; also for an unavailable directory and a history
            that is behind.
        history_behind_above_ms: how long an ended notification may wait for the history.
        failing_above: share of a channel's sends within `failing_within_ms` that may fail.
        failing_least: minimum number of failed sends.
        answers_lost_more_than: lost answers tolerated per channel within `answers_lost_within_ms`.
        late_above: share of sends within `late_within_ms` that may be later than `late_ms`, which
            should be a bound of the histogram; other values count as the next smaller bound.
    """

    runbooks: str = "docs/how-to/notifications-runbooks.md"
    overdue_above_ms: Span = 60_000
    overdue_for_ms: Span = 120_000
    failing_above: Share = 0.05
    failing_least: Least = 10
    failing_within_ms: Span = 300_000
    answers_lost_more_than: Least = 0
    answers_lost_within_ms: Span = 900_000
    late_above: Share = 0.01
    late_ms: Span = 5_000
    late_least: Least = 10
    late_within_ms: Span = 300_000
    channel_closed_for_ms: Span = 600_000
    history_behind_above_ms: Span = 600_000


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationsOverview:
    """The state of notifications at one time.

    Attributes:
        at: ms on a monotonic clock.
        overdue_ms: how long the oldest waiting notification has been due, by channel.
        closed: reasons of the closed channels, by channel.
        away: why the directory is unavailable; empty if it is available.
        history_behind_ms: how long the oldest ended notification has waited for the history.
    """

    at: int
    overdue_ms: Mapping[str, int]
    closed: Mapping[str, str]
    totals: Totals
    away: str = ""
    history_behind_ms: int = 0


def notification_rules(at: Thresholds) -> tuple[Rule[NotificationsOverview], ...]:
    """Return the rules, most severe first."""
    outcomes, late = counts_of(Tallied.OUTCOME), counts_of(Tallied.LATE)
    p1, p2 = Severity.P1, Severity.P2
    return (
        Lasts("directory_away", p1, at.overdue_for_ms, _away),
        Lasts("notifications_overdue", p1, at.overdue_for_ms, lambda s: _overdue(at, s)),
        Grows(
            "notifications_failing", p1, at.failing_within_ms, outcomes, lambda g: _failing(at, g)
        ),
        Grows("notifications_late", p1, at.late_within_ms, late, lambda g: _late(at, g)),
        Grows("answers_lost", p2, at.answers_lost_within_ms, outcomes, lambda g: _lost(at, g)),
        Lasts("channel_closed", p2, at.channel_closed_for_ms, _closed),
        Lasts("history_behind", p2, at.overdue_for_ms, lambda s: _history_behind(at, s)),
    )


def _away(overview: NotificationsOverview) -> Lasting:
    """Report that nothing is sent, because no preferences can be read."""
    if not (why := overview.away):
        return {}
    return {"directory": lambda ms: f"nothing has been sent for {format_duration(ms)}: {why}"}


def _overdue(at: Thresholds, overview: NotificationsOverview) -> Lasting:
    """Report notifications that are due and wait, although their channel is open."""
    return {
        channel: lambda ms, late=late, channel=channel: (
            f"a notification by {channel} has been due for {format_duration(late)}, although its "
            f"channel is open (for {format_duration(ms)})"
        )
        for channel, late in overview.overdue_ms.items()
        if late > at.overdue_above_ms and channel not in overview.closed
    }


def _failing(at: Thresholds, grown: Mapping[str, int]) -> FindingTexts:
    """Report channels with too large a share of failed sends."""
    texts: dict[str, str] = {}
    for channel, by in by_parts(grown).items():
        failed = by.get(Status.FAILED, 0)
        every = failed + by.get(Status.SENT, 0) + by.get(LOST, 0)
        if failed >= max(1, at.failing_least) and failed > at.failing_above * every:
            within = format_duration(at.failing_within_ms)
            texts[channel] = f"{failed} of {every} sends by {channel} failed within {within}"
    return texts


def _late(at: Thresholds, grown: Mapping[str, int]) -> FindingTexts:
    """Report channels with too large a share of late sends."""
    texts: dict[str, str] = {}
    for channel, by in by_parts(grown).items():
        every = sum(by.values())
        in_time = sum(n for bound, n in by.items() if bound != "inf" and int(bound) <= at.late_ms)
        late = every - in_time
        if late >= max(1, at.late_least) and late > at.late_above * every:
            wanted = format_duration(at.late_ms)
            texts[channel] = f"{late} of {every} sends by {channel} started more than {wanted} late"
    return texts


def _lost(at: Thresholds, grown: Mapping[str, int]) -> FindingTexts:
    """Report channels with lost answers: it is unknown whether these sends were made."""
    within = format_duration(at.answers_lost_within_ms)
    return {
        channel: f"the provider's answer to {by[LOST]} sends by {channel} was lost within {within}"
        for channel, by in by_parts(grown).items()
        if by.get(LOST, 0) > at.answers_lost_more_than
    }


def _closed(overview: NotificationsOverview) -> Lasting:
    return {
        channel: lambda ms, channel=channel, why=why: (
            f"{channel} has been closed for {format_duration(ms)}: {why}"
        )
        for channel, why in overview.closed.items()
    }


def _history_behind(at: Thresholds, overview: NotificationsOverview) -> Lasting:
    """Report ended notifications that are not in the history."""
    behind_ms = overview.history_behind_ms
    if behind_ms <= at.history_behind_above_ms:
        return {}
    waited = format_duration(behind_ms)
    return {
        "history": lambda ms: (
            f"an ended notification has waited {waited} to be written to the history "
            f"(for {format_duration(ms)})"
        )
    }


def notification_metrics(store: Store, tally: Tally) -> SystemMetrics:
    """Return the metrics of notifications: the counters of the tally, and the channels' states."""

    async def read(overview: Overview) -> Iterable[Metric]:
        closed, overdue = Samples(CLOSED), Samples(OVERDUE)
        now_closed = await _channels(store)
        for channel in Channel:
            closed.put(channel in now_closed, channel)
            overdue.put(overdue_ms(overview, channel.lane) / 1000, channel)
        behind = one(HISTORY_BEHIND, overdue_ms(overview, HISTORY_LANE) / 1000)
        return [overdue.metric(), closed.metric(), behind]

    counted = (
        Counted(event=Tallied.OUTCOME, family=OUTCOMES),
        CountedTimes(
            event=Tallied.LATE, sum_event=Tallied.LATE_MS, family=LATENESS, bounds_ms=BUCKETS_MS
        ),
        Counted(event=Tallied.HISTORY, family=HISTORY_ROWS, labels=(WRITTEN, FORGOTTEN, OFF)),
    )
    return SystemMetrics(tally=tally, counted=counted, read=read)


async def _channels(store: Store) -> dict[str, str]:
    """Return the reasons of the closed channels, by channel."""
    names = {channel.slots: str(channel) for channel in Channel}
    page = await store.read(GatesQuery(names=tuple(names)))
    return {
        names[one.name]: f"by {one.closed_by}: {one.closed_reason}"
        for one in page.rows
        if one.closed_until is not None
    }


def overdue_ms(overview: Overview, lane: str) -> int:
    """Return how long the oldest queued job of a lane has been due; 0 if none is queued."""
    found = find_lane(overview, lane)
    if found is None or found.oldest_due_at is None:
        return 0
    return max(0, overview.stats.now - found.oldest_due_at)


def start_monitoring(service: Service, tally: Tally, thresholds: Thresholds) -> None:
    """Add the rules and metrics of notifications to a server that is starting."""

    async def see(facts: Facts) -> NotificationsOverview | None:
        if facts.overview is None:
            return None
        return NotificationsOverview(
            at=facts.at,
            overdue_ms={one: overdue_ms(facts.overview, one.lane) for one in Channel},
            closed=await _channels(service.store),
            totals=await tally.totals(),
            away=tally.away,
            history_behind_ms=overdue_ms(facts.overview, HISTORY_LANE),
        )

    service.alerts.add(
        RuleSet(
            rules=lambda: notification_rules(thresholds), read=see, runbooks=thresholds.runbooks
        )
    )
    service.scrapes.add(notification_metrics(service.store, tally))
