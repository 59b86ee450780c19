"""What keeps the calendar in Cassandra from being read ahead, if it is configured."""

from __future__ import annotations

from headway.bridges.cassandra.progress import ahead_ms, load_progress
from headway.cli.cassandra import make_link
from headway.cli.doctor.finding import Finding, problem, warning, well
from headway.cli.settings import Settings
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.duration import format_duration
from headway.core.errors import CallerError, StoreError

SUBJECT = "calendar"


async def look_at_calendar(settings: Settings, store: Store) -> list[Finding]:
    """Look at the calendar; nothing is looked at without a table [cassandra].

    Args:
        store: into which the calendar is read.

    Returns:
        What was found.

    Raises:
        InvalidValue: a setting is unusable.
    """
    if not settings.cassandra:
        return []
    link = make_link(settings)
    try:
        progress = await load_progress(link)
    except (StoreError, CallerError) as error:
        return [problem(SUBJECT, error.message, error.hint)]
    finally:
        await link.close()
    if progress is None:
        hint = "headway serve --system notifications reads it"
        return [warning(SUBJECT, "it was never read", hint)]
    found: list[Finding] = []
    ahead = ahead_ms(progress, (await store.read(StatsQuery())).now)
    progress_text = f"read {format_duration(ahead)} ahead, {progress.rows_read:,} rows so far"
    if ahead < link.settings.horizon // 2:
        found.append(
            problem(SUBJECT, progress_text, "see calendar_behind in docs/how-to/cassandra.md")
        )
    if progress.shards != link.settings.shards:
        made = f"made with {progress.shards} shards, and cassandra.shards is {link.settings.shards}"
        found.append(problem(SUBJECT, made, "give the number that it was made with"))
    if progress.refused:
        kept = f"{progress.refused:,} rows were refused, and are kept apart"
        found.append(warning(SUBJECT, kept, "see calendar_refused in docs/how-to/cassandra.md"))
    return found or [well(SUBJECT, progress_text)]
