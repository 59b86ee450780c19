"""The page of automations in a real browser: live output, and a session started from the page."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from headway.contract.definitions import Role
from headway.core.state import State
from tests.servers.browser import browsing
from tests.systems.automations.sessions_rig import new_repository
from tests.systems.automations.test_automations_page import PAGE, jobs, operating
from tests.systems.automations.test_dispatching import entry, holding
from tests.web.driving import LIMIT_MS, is_live, opened

pytestmark = pytest.mark.slow


async def test_session_is_started_and_its_output_followed_to_the_end(tmp_path):
    where = new_repository(tmp_path / "repository")
    evil = "<script>window.evil=1</script><img src=x onerror=window.evil=1>"
    command = f"seq 1 200; {holding(tmp_path)}; echo '{evil} last'"
    one = entry("hold", where, command, schedule="at 09:00")
    async with (
        operating(tmp_path, one, work=True) as (rig, _),
        browsing() as browser,
        opened(browser, rig, PAGE) as page,
    ):
        await page.fill("#token", rig.tokens[Role.OPERATOR])
        await page.get_by_role("button", name="Sign in").click()
        await is_live(page)
        await page.locator("tr[data-key='hold']").get_by_role("link", name="Run now…").click()
        await page.get_by_role("dialog").get_by_role("button", name="Run now").click()
        await expect(page.locator("#said")).to_have_text("A session of hold is due.")
        running = page.locator("#sessions tr", has_text="running")
        await running.get_by_role("link", name="hold").click(timeout=LIMIT_MS)
        await is_live(page)
        output = page.locator(".output")
        await expect(output).to_contain_text("200", timeout=LIMIT_MS)
        (tmp_path / "go").touch()
        await expect(output).to_contain_text("ended: exit, status 0", timeout=LIMIT_MS)
        await expect(page.locator("#sessions")).to_contain_text("succeeded", timeout=LIMIT_MS)
        assert f"{evil} last" in await output.inner_text()
        assert await page.evaluate("window.evil") is None
        # The end of the output is visible without a script that scrolls.
        assert await output.evaluate("one => Math.abs(one.scrollTop) < 2")
        assert [job.state for job in await jobs(rig, State.SUCCEEDED)] == [State.SUCCEEDED]
