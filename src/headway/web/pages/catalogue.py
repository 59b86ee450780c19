"""The pages of the engine, in the order of the menu."""

from __future__ import annotations

from headway.web.page import Page
from headway.web.pages import (
    cascades,
    dead,
    gates,
    job,
    jobs,
    lanes,
    now,
    timetable,
    trail,
    workers,
)

PAGES: tuple[Page, ...] = (
    now.PAGE,
    lanes.PAGE,
    gates.PAGE,
    jobs.PAGE,
    job.PAGE,
    dead.PAGE,
    timetable.PAGE,
    cascades.PAGE,
    workers.PAGE,
    trail.PAGE,
)
"""Each page; a system brings its own besides."""
