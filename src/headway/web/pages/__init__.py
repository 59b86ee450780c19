"""The engine's pages, in menu order; systems add their own."""

from __future__ import annotations

from headway.web.page import DashboardPage
from headway.web.pages import dead, gates, job, jobs, lanes, overview, timetable

PAGES: tuple[DashboardPage, ...] = (
    overview.NOW,
    lanes.PAGE,
    gates.PAGE,
    jobs.PAGE,
    job.PAGE,
    dead.PAGE,
    timetable.PAGE,
    jobs.CASCADES,
    overview.WORKERS,
    overview.TRAIL,
)
