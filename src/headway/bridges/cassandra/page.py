"""The dashboard's page of the calendar: how far it is read ahead, by whom, and what came of it."""

from __future__ import annotations

from headway.bridges.cassandra.buckets import MINUTE_MS
from headway.bridges.cassandra.link import Link
from headway.bridges.cassandra.monitoring import RUNBOOKS
from headway.bridges.cassandra.progress import Progress, ahead_ms, load_progress
from headway.core.errors import StoreError
from headway.server.access.caller import Caller, Permission
from headway.web.page import Facts, Look, Page

FRESH_S = 2.0


def calendar_page(link: Link) -> Page:
    """Return the page of a calendar."""

    async def load() -> tuple[Progress | None, str]:
        try:
            return await load_progress(link), ""
        except StoreError as error:
            return None, error.message

    async def read(look: Look) -> Facts:
        now, settings = (await look.sight.overview()).stats.now, link.settings
        progress, away = await look.sight.once("calendar", load, FRESH_S)
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

    return Page(
        path="calendar",
        title="Calendar",
        template="calendar.html",
        fragments=("calendar",),
        read=read,
        permission=Permission.OBSERVE,
        reach=Caller.whole,
        package=__name__.rpartition(".")[0],
    )
