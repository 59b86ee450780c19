"""Checks of other configured services: Kafka, Cassandra, the system field_service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from headway.bridges.cassandra.rows import ahead_ms, load_progress
from headway.cli.directory import directory_url, make_link
from headway.cli.doctor import Finding, ok, problem, warning
from headway.cli.extras import needs_extra
from headway.cli.settings import Settings
from headway.contract.store import Store
from headway.contract.views import LanesQuery, StatsQuery
from headway.core.duration import format_duration
from headway.core.errors import CallerError, StoreError
from headway.core.naming import counted


async def check_kafka(settings: Settings) -> list[Finding]:
    """Check the brokers, topics and lag of Kafka, if there is a table [kafka]."""
    if not settings.kafka:
        return []
    with needs_extra("kafka"):
        from headway.bridges.kafka.settings import read_kafka_settings  # noqa: PLC0415
    with needs_extra("server"):
        from headway.bridges.kafka.monitoring import GroupMonitor  # noqa: PLC0415
    read = read_kafka_settings(settings.kafka)
    seen = await GroupMonitor(read).status()
    if seen.away:
        hint = "check servers and client in [kafka], and the brokers"
        return [problem("kafka", f"no broker reachable at {read.servers}: {seen.away}", hint)]
    found = [
        problem("kafka", f"there is no topic {name!r}", "create it, or correct [kafka.in]")
        for name in seen.missing
    ]
    behind = {place: lag for place, lag in seen.lag.items() if lag > read.in_.lag_above}
    found += [
        warning(
            "kafka",
            f"{counted(lag, 'message')} behind in partition {partition} of {topic}",
            "start another `headway bridge kafka-in`, or check its log",
        )
        for (topic, partition), lag in behind.items()
    ]
    total = counted(sum(seen.lag.values()), "message")
    return found or [ok("kafka", f"the group {read.in_.group} is {total} behind")]


async def check_calendar(settings: Settings, store: Store) -> list[Finding]:
    """Check the calendar and the history, if there is a table [cassandra]."""
    if not settings.cassandra:
        return []
    link = make_link(settings)
    try:
        progress = await load_progress(link)
    except (StoreError, CallerError) as error:
        return [problem("calendar", error.message, error.hint)]
    finally:
        await link.close()
    now = (await store.read(StatsQuery())).now
    history = await _check_history(settings, store, now) if link.settings.history else []
    if progress is None:
        hint = "headway serve --system notifications reads it"
        return [warning("calendar", "it has never been read", hint), *history]
    found: list[Finding] = []
    ahead = ahead_ms(progress, now)
    rows = counted(f"{progress.rows_read:,}", "row")
    progress_text = f"read {format_duration(ahead)} ahead, {rows} so far"
    if ahead < link.settings.horizon // 2:
        found.append(
            problem("calendar", progress_text, "see calendar_behind in docs/how-to/cassandra.md")
        )
    if progress.shards != link.settings.shards:
        shards = counted(progress.shards, "shard")
        made = f"created with {shards}, but cassandra.shards is {link.settings.shards}"
        found.append(problem("calendar", made, "set it to the number it was created with"))
    if progress.refused:
        refused = counted(f"{progress.refused:,}", "row was", "rows were")
        kept = f"{refused} refused, and kept separately"
        found.append(warning("calendar", kept, "see calendar_refused in docs/how-to/cassandra.md"))
    return [*(found or [ok("calendar", progress_text)]), *history]


async def _check_history(settings: Settings, store: Store, now: int) -> list[Finding]:
    with needs_extra("systems"):
        from headway.runtime.settings_table import read_table  # noqa: PLC0415
        from headway.systems.notifications.metrics import Thresholds  # noqa: PLC0415
        from headway.systems.notifications.notification import HISTORY_LANE  # noqa: PLC0415
    (lane,) = await store.read(LanesQuery(names=(HISTORY_LANE,)))
    if lane.oldest_due_at is None:
        return [ok("history", "no notification is waiting to be written")]
    behind_ms = max(0, now - lane.oldest_due_at)
    text = f"{lane.unfinished:,} waiting to be written, the oldest for {format_duration(behind_ms)}"
    alerts = settings.notifications.get("alerts", {})
    limits = read_table("notifications.alerts", Thresholds, cast("Mapping[str, object]", alerts))
    if behind_ms > limits.history_behind_above_ms:
        hint = f"see history_behind in {limits.runbooks}"
        return [warning("history", text, hint)]
    return [ok("history", text)]


async def check_field_service(settings: Settings, store_url: str) -> list[Finding]:
    """Check the system, if it is configured, without writing or migrating anything."""
    if not settings.field_service:
        return []
    with needs_extra("systems"):
        from headway.systems.directory.database import Directory  # noqa: PLC0415
        from headway.systems.field_service.doctor import check_system  # noqa: PLC0415
        from headway.systems.field_service.settings import read_settings  # noqa: PLC0415
        from headway.systems.telephony.providers import read_telephony  # noqa: PLC0415
    url = directory_url(settings, store_url)
    if _is_missing(url):
        hint = "headway serve --system field_service creates it"
        return [warning("field_service", "there is no directory yet", hint)]
    telephony = read_telephony(settings.telephony)
    directory = Directory(url)
    try:
        await directory.open()
        found = await check_system(directory, read_settings(settings.field_service, telephony))
    except StoreError as error:
        return [problem("field_service", error.message, error.hint)]
    finally:
        await directory.close()
        await telephony.close()
    findings = [warning(one.subject, one.found, one.hint) for one in found]
    return findings or [ok("field_service", "technicians and dispatchers can be reached")]


def _is_missing(url: str) -> bool:
    place = url.removeprefix("sqlite:///")
    return place != url and not Path(place).exists()
