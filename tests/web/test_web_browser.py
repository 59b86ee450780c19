"""The dashboard in a real browser: live updates, stored state, and scripts that must never run."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import pytest
from playwright.async_api import Request, Route, expect

from headway.contract.definitions import CloseGate, DefineRequest, Role
from headway.contract.views import GatesQuery
from headway.web import dashboard as dashboard_module
from headway.web.pages import PAGES
from headway.web.rendering import span
from tests.servers.browser import browsing
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.web.driving import LIMIT_MS, MOST_TABS, is_live, opened
from tests.web.rig import HOSTILE, dashboard
from tests.web.test_web_access import declare
from tests.web.test_web_jobs import Worker
from tests.web.test_web_pages import take

pytestmark = pytest.mark.slow


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/web.db"
        case "postgres":
            server: PostgresServer = request.getfixturevalue("fast_postgres_server")
            return f"{server.url}?namespace=web_{abs(hash(tmp_path)) % 10**9}"
        case _:
            found: RedisServer = request.getfixturevalue("redis_server")
            return f"{found.url}?namespace=web{abs(hash(tmp_path)) % 10**9}"


async def test_two_browsers_see_each_others_actions_and_the_store_changes(store_url: str):
    async with dashboard(store_url, events_each_s=0.05) as rig, browsing() as browser:
        await declare(rig, "lines", 1)
        for _ in range(4):
            await rig.send(lane="calls", gates=["lines"], tenant="acme")
        await take(rig, "calls", 4)
        async with (
            opened(browser, rig, "/ui/-/sign-in") as one,
            opened(browser, rig, "/ui/gates?gate=lines") as two,
        ):
            for page, role in ((one, Role.OPERATOR), (two, Role.VIEWER)):
                await page.fill("#token", rig.tokens[role])
                await page.get_by_role("button", name="Sign in").click()
                await is_live(page)
            await expect(one.locator(".cause")).to_contain_text("slots lines is full (1 of 1)")
            assert await two.locator("[data-ask]").count() == 0
            await one.goto(f"{rig.url}/ui/gates?gate=lines")
            await is_live(one)
            await one.get_by_role("link", name="Close…").click()
            await one.get_by_label("Reason").fill("a fire")
            await one.get_by_role("dialog").get_by_role("button", name="Close").click()
            await expect(one.locator("#said")).to_have_text("lines is closed.")
            await expect(two.locator(".banner")).to_contain_text("a fire")
            (gate,) = (await rig.store.read(GatesQuery(names=("lines",)))).rows
            assert (gate.closed_by, gate.closed_reason) == ("operator", "a fire")
            await one.get_by_role("link", name="Open…").click()
            await one.get_by_role("dialog").get_by_role("button", name="Open").click()
            await expect(two.locator(".banner")).to_have_count(0)
            await one.get_by_role("link", name="Release…").click()
            await one.get_by_label("Reason").fill("its call is over")
            await one.get_by_role("dialog").get_by_role("button", name="Release").click()
            await expect(two.locator("#gates")).to_contain_text("Held by 0")


async def test_every_form_works_without_the_script():
    async with dashboard(tokens=False) as rig, browsing() as browser:
        await declare(rig, "lines", 1)
        async with opened(browser, rig, "/ui/gates?gate=lines", java_script_enabled=False) as page:
            await page.get_by_role("link", name="Set capacity…").click()
            await page.get_by_label("At most").fill("7")
            await page.get_by_role("button", name="Set capacity").click()
            await expect(page.locator("#said")).to_have_text("lines has a capacity of 7.")
            assert page.url.endswith("/ui/gates?gate=lines")
            await expect(page.locator(".big").first).to_contain_text("of 7")


async def test_typed_focused_and_open_elements_stay_while_fragments_change():
    async with dashboard(tokens=False, events_each_s=0.05) as rig, browsing() as browser:
        await declare(rig, "a-gate", 1)
        await declare(rig, "lines", 1)
        async with opened(browser, rig, "/ui/gates") as page:
            await is_live(page)
            await page.locator("tr[data-key='lines'] th a").focus()
            row = await page.locator("tr[data-key='lines']").element_handle()
            await declare(rig, "before", 3)
            await rig.store.define(
                DefineRequest(items=(CloseGate(name="lines", reason="x"),), author="a test")
            )
            await expect(page.locator("tr[data-key='lines']")).to_contain_text("closed")
            await page.locator("tr[data-key='before']").wait_for()
            assert await row.evaluate(
                "row => row.isConnected && row.contains(document.activeElement)"
            )
            await page.locator("tr[data-key='a-gate']").get_by_role("link", name="Close…").click()
            await page.get_by_label("Reason").fill("half writ")
            await declare(rig, "another", 3)
            await page.locator("tr[data-key='another']").wait_for()
            assert await page.get_by_label("Reason").input_value() == "half writ"
            assert await page.get_by_role("dialog").is_visible()


async def test_open_page_reports_an_unreachable_server_and_recovers_by_itself():
    async with browsing() as browser:
        async with dashboard(tokens=False, events_each_s=0.05) as rig:
            port = int(rig.url.rpartition(":")[2])
            context = await browser.new_context()
            page = await context.new_page()
            page.set_default_timeout(LIMIT_MS)
            await page.goto(f"{rig.url}/ui/gates")
            await is_live(page)
        await expect(page.locator("#link")).to_contain_text("no connection")
        async with dashboard(tokens=False, events_each_s=0.05, port=port) as rig:
            await declare(rig, "after-the-restart", 1)
            await page.locator("tr[data-key='after-the-restart']").wait_for()
            await is_live(page)
            await context.close()


@pytest.mark.parametrize("quiet_s", [3_600, 0.05])
async def test_stream_that_receives_nothing_is_opened_again(quiet_s: float):
    streams: list[str] = []

    def note(request: Request) -> None:
        if request.resource_type == "eventsource":
            streams.append(request.url)

    with patch.object(dashboard_module, "QUIET_S", quiet_s):
        async with (
            dashboard(tokens=False) as rig,
            browsing() as browser,
            opened(browser, rig) as page,
        ):
            await page.clock.install()
            await page.goto(f"{rig.url}/ui/gates")
            await is_live(page)
            page.on("request", note)
            for _ in range(2):
                await page.clock.fast_forward(30_000)
                while quiet_s < 1 and await page.evaluate("Date.now() - receivedAt > 20_000"):
                    await rig.service.timing.pause(0.01)
            while await page.evaluate("Date.now() - receivedAt > 20_000"):
                await rig.service.timing.pause(0.01)
            await is_live(page)
    # An event that only shows that the connection is alive keeps it open.
    assert len(streams) == (0 if quiet_s < 1 else 1)


async def test_action_whose_reply_is_lost_is_not_sent_again():
    sent: list[str] = []

    async def lose(route: Route) -> None:
        if route.request.method == "POST":
            sent.append(route.request.url)
            await route.fetch()
            await route.abort()
        else:
            await route.continue_()

    async with dashboard(tokens=False) as rig, browsing() as browser:
        made = await rig.send(None, due="1h")
        async with opened(browser, rig, f"/ui/jobs/{made}") as page:
            await page.route("**/-/do/cancel-job*", lose)
            await page.get_by_role("link", name="Cancel…").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_role("button", name="Cancel").click()
            await expect(dialog.get_by_role("alert")).to_contain_text("The reply was lost")
            await expect(page.locator("#why")).to_contain_text("cancelled")
            await expect(dialog).to_be_visible()
    assert len(sent) == 1


async def test_refusal_without_a_form_has_a_name_and_a_button_that_closes_it():
    async with (
        dashboard(tokens=False) as rig,
        browsing() as browser,
        opened(browser, rig) as page,
    ):
        await page.evaluate("request('/ui/-/do/nothing')")
        dialog = page.get_by_role("dialog", name="there is no such action")
        await dialog.get_by_role("button", name="Close").click()
        await expect(dialog).to_be_hidden()


async def test_place_of_messages_is_known_to_screen_readers_before_the_first():
    async with (
        dashboard(tokens=False) as rig,
        browsing() as browser,
        opened(browser, rig) as page,
    ):
        shown = await page.locator("#said").evaluate("one => getComputedStyle(one).display")
        assert shown != "none"
        assert await page.locator("#said").get_attribute("role") == "status"


async def test_day_of_another_year_is_shown_with_its_year():
    async with dashboard(tokens=False) as rig, browsing() as browser:
        made = await rig.send(None, due="2031-05-06T12:00Z")
        async with opened(
            browser, rig, f"/ui/jobs/{made}", locale="en-GB", timezone_id="UTC"
        ) as page:
            due = page.locator("dt:has-text('Due') + dd")
            await expect(due).to_have_text(re.compile("^6 May 2031,? 12:00:00$"))


_BROKEN_WORDS = """() => {
  const found = new Set(), range = document.createRange();
  const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (const word of node.data.matchAll(/[A-Za-z0-9]{3,}/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const seen = [...range.getClientRects()].filter(one => one.width > 1);
      if (new Set(seen.map(one => Math.round(one.top))).size > 1) found.add(word[0]);
    }
  }
  return [...found];
}"""


async def test_pages_on_a_phone_break_no_word_and_keep_their_rows_low():
    async with dashboard(tokens=False) as rig, browsing() as browser, opened(browser, rig) as page:
        await declare(rig, "lines:numbers-of-the-corporation", 100_000)
        await declare(rig)
        reason = "The customer asked for it, and operations agreed to send it first. " * 2
        job = {"lane": "outbound-notifications", "kind": "send_confirmation_message"}
        for n in range(3):
            made = await rig.send(None, **job, tenant="acme-corporation", gates=["lines"])
            body = {"priority": n, "reason": reason}
            await rig.call(None, "POST", f"/v1/jobs/{made}/edit", body)
        await page.set_viewport_size({"width": 390, "height": 900})
        for name in ("", *(f"/{one.path}" for one in PAGES if one.menu), f"/jobs/{made}"):
            await page.goto(f"{rig.url}/ui{name}")
            await is_live(page)
            assert await page.evaluate(_BROKEN_WORDS) == [], name
            rows = await page.eval_on_selector_all(
                "tbody tr", "all => all.map(one => one.getBoundingClientRect().height)"
            )
            assert max(rows, default=0) < 120, name
        await page.goto(f"{rig.url}/ui/jobs")
        controls = await page.eval_on_selector_all(
            ".filters label", "all => all.map(one => one.lastElementChild.getBoundingClientRect())"
        )
        assert {one["height"] for one in controls} == {controls[0]["height"]}
        # Lane, kind and tenant; key, subject and state.
        for row in (controls[:3], controls[3:6]):
            assert {one["top"] for one in row} == {row[0]["top"]}


async def test_latencies_of_days_fit_on_a_phone():
    async with dashboard(tokens=False) as rig, browsing() as browser, opened(browser, rig) as page:
        await rig.send(None, lane="calls")
        await Worker(rig, "hand").take("calls", 1)
        await page.set_viewport_size({"width": 375, "height": 900})
        await page.goto(f"{rig.url}/ui/lanes?lane=calls")
        await is_live(page)
        # No test can wait for days: the longer text is put into the page instead.
        many, width = await page.evaluate(
            """text => {
              const all = document.querySelectorAll(".pair dd");
              all.forEach(one => one.textContent = text);
              return [all.length, document.documentElement.scrollWidth];
            }""",
            span(17_999_999_000),
        )
        assert (many, width) == (2, 375)


@pytest.mark.parametrize("width", [375, 1440])
async def test_hostile_names_run_nothing_and_break_no_layout(width: int):
    async with dashboard(tokens=False, events_each_s=0.05) as rig, browsing() as browser:
        gates = [f"g{i} {one.replace('{', '(').replace('}', ')')}" for i, one in enumerate(HOSTILE)]
        for i, (evil, gate) in enumerate(zip(HOSTILE, gates, strict=True)):
            await declare(rig, gate, 0)
            await rig.send(None, lane=f"l{i} {evil}", tenant=evil, kind=evil, gates=[gate])
            await rig.call(None, "POST", "/v1/closures", {"gate": gate, "reason": evil})
        async with opened(browser, rig, viewport={"width": width, "height": 800}) as page:
            for path in ("/ui", "/ui/lanes", "/ui/gates"):
                await page.goto(rig.url + path)
                await is_live(page)
                assert await page.evaluate("window.evil") is None
                assert await page.evaluate("document.documentElement.scrollWidth") <= width
                links = page.locator("main a[href*='gate='], main a[href*='lane=']")
                assert await links.count() >= len(HOSTILE)
            await page.locator("tbody th a").first.click()
            await is_live(page)
            await page.locator("[data-ask]").first.click()
            await page.get_by_role("dialog").wait_for()
            assert await page.evaluate("window.evil") is None


async def test_theme_is_switched_and_kept():
    async with (
        dashboard(tokens=False) as rig,
        browsing() as browser,
        opened(browser, rig, color_scheme="light") as page,
    ):
        ground = "getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(ground)
        await page.get_by_role("button", name="Dark colours").click()
        dark = await page.evaluate(ground)
        assert dark != light
        await page.goto(f"{rig.url}/ui/lanes")
        assert await page.evaluate(ground) == dark


_FOCUS = """() => {
  const one = document.activeElement;
  const look = () => {
    const style = getComputedStyle(one);
    const drawn = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
    const clear = /, 0\\)$|transparent/.test(style.outlineColor);
    return [drawn && !clear ? style.outline : '', style.boxShadow.replace('none', '')].join(' ');
  };
  const focused = look(), what = one.localName;
  one.blur();
  return {what, focused, plain: look(), html: one.outerHTML.slice(0, 120)};
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_keyboard_focus_is_visible_on_each_kind_of_element(theme: Any):
    async with dashboard(tokens=False) as rig, browsing() as browser:
        await declare(rig, "lines", 1)
        job = await rig.send(None, lane="calls", gates=["lines"])
        await take(rig, "calls", 1)
        ask = "/ui/-/do/pause-lane?lane=calls"
        kinds: set[str] = set()
        wrong: list[str] = []
        async with opened(browser, rig, "/ui", color_scheme=theme) as page:
            for path in ("/ui", "/ui/jobs", f"/ui/jobs/{job}", "/ui/gates?gate=lines", ask):
                await page.goto(rig.url + path)
                for _ in range(MOST_TABS):
                    await page.keyboard.press("Tab")
                    seen = await page.evaluate(_FOCUS)
                    if seen["what"] == "body":
                        break
                    kinds.add(seen["what"])
                    if not seen["focused"].strip() or seen["focused"] == seen["plain"]:
                        wrong.append(f"{path}: {seen['html']}: {seen['focused']!r}")
        assert not wrong, "\n".join(wrong)
        assert kinds >= {"a", "button", "input", "select", "summary"}


async def test_current_page_is_visible_in_the_menu_of_a_phone():
    async with dashboard(tokens=False) as rig, browsing() as browser, opened(browser, rig) as page:
        await page.set_viewport_size({"width": 375, "height": 800})
        for path in (one.path for one in PAGES if one.menu):
            await page.goto(f"{rig.url}/ui/{path}")
            await is_live(page)
            place = await page.eval_on_selector(
                ".menu [aria-current]", "one => one.getBoundingClientRect()"
            )
            assert (place["left"] >= 0, place["right"] <= 375) == (True, True), path
