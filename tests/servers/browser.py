"""A real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright

from tests.servers.fixtures import missing


@asynccontextmanager
async def browsing() -> AsyncGenerator[Browser]:
    """Run a headless browser until the block exits; skip the test if there is none."""
    path = shutil.which("chromium")
    if path is None:
        missing("there is no chromium (apt-get install chromium)")
    async with async_playwright() as play:
        # Chromium's sandbox refuses to run as root.
        browser = await play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()
