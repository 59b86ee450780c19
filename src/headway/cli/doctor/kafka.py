"""Whether the brokers of the table [kafka] answer, and how far behind the bridge is."""

from __future__ import annotations

from headway.cli.doctor.finding import Finding, problem, warning, well
from headway.cli.extras import needs_extra
from headway.cli.settings import Settings

SUBJECT = "kafka"


async def look_at_kafka(settings: Settings) -> list[Finding]:
    """Return what should be looked at; nothing is looked at without a table [kafka].

    Raises:
        InvalidValue: a setting of Kafka is not valid, or a package is missing.
    """
    if not settings.kafka:
        return []
    with needs_extra("kafka"):
        from headway.bridges.kafka.settings import read_kafka_settings  # noqa: PLC0415
    with needs_extra("server"):
        from headway.bridges.kafka.watching import GroupWatch  # noqa: PLC0415
    read = read_kafka_settings(settings.kafka)
    seen = await GroupWatch(read).look()
    if seen.away:
        hint = "check servers and client in [kafka], and the brokers"
        return [problem(SUBJECT, f"no broker answers at {read.servers}: {seen.away}", hint)]
    found = [
        problem(SUBJECT, f"there is no topic {name!r}", "create it, or correct [kafka.in]")
        for name in seen.missing
    ]
    behind = {place: lag for place, lag in seen.lag.items() if lag > read.in_.lag_above}
    found += [
        warning(
            SUBJECT,
            f"{lag} messages behind in partition {partition} of {topic}",
            "start another `headway bridge kafka-in`, or see its log",
        )
        for (topic, partition), lag in behind.items()
    ]
    total = sum(seen.lag.values())
    return found or [well(SUBJECT, f"the group {read.in_.group} is {total} messages behind")]
