"""The pages of the engine, in the order of the menu."""

from __future__ import annotations

from headway.web.page import Page
from headway.web.pages import gates, lanes, now

PAGES: tuple[Page, ...] = (now.PAGE, lanes.PAGE, gates.PAGE)
"""Each page; a system brings its own besides."""
