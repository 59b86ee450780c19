"""Drive a browser by keyboard alone, and check each page that it shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from playwright.async_api import Browser, Locator, Page, expect

from headway.web.sign_in import COOKIE
from tests.server.rig import Rig
from tests.servers.fixtures import missing

LIMIT_MS = 240_000
expect.set_options(timeout=LIMIT_MS)
MOST_TABS = 120
WINDOWS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((320, "light"), (1440, "dark"))
"""Widths, each with the theme that axe-core checks."""


@asynccontextmanager
async def opened(
    browser: Browser, rig: Rig, path: str = "/ui", *, token: str | None = None, **how: Any
) -> AsyncIterator[Page]:
    """Open a page in its own browser profile; it must not meet any error.

    Args:
        browser: the browser that the profile belongs to.
        rig: the rig with the dashboard.
        path: path to open.
        token: token that the browser already has.
        how: options of the profile.
    """
    context = await browser.new_context(**how)
    context.set_default_timeout(LIMIT_MS)
    if token is not None:
        await context.add_cookies([{"name": COOKIE, "value": token, "url": f"{rig.url}/ui"}])
    page = await context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None
    )
    await page.goto(rig.url + path)
    yield page
    assert wrong == []
    await context.close()


async def is_live(page: Page) -> None:
    await page.locator("#link.live").wait_for()


async def show(page: Page, rig: Rig, path: str) -> None:
    """Go to a page, and wait until it is live."""
    await page.goto(rig.url + path)
    await is_live(page)


def button(page: Page, name: str, within: str = "") -> Locator:
    """Return the first button of an action, within a part of the page."""
    return page.locator(f"{within} [data-ask][href*='/-/do/{name}?']").first


async def tab_to(page: Page, place: Locator) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(MOST_TABS):
        if await place.evaluate("one => one === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    message = f"{place} is not reached by the keyboard"
    raise AssertionError(message)


async def act(page: Page, name: str, said: str, *, within: str = "", **fields: str) -> None:
    """Perform an action by keyboard alone.

    Args:
        page: the page with the action's button.
        name: name of the action.
        said: text that the page shows when the action is done.
        within: a selector, if several buttons of the action are shown.
        fields: values to fill in, by field name.
    """
    await button(page, name, within).focus()
    await page.keyboard.press("Enter")
    await fill_in(page, said, **fields)


async def fill_in(page: Page, said: str, **fields: str) -> None:
    """Fill in the dialog that is open or opens, and submit it, by keyboard alone."""
    dialog = page.get_by_role("dialog")
    await dialog.locator("form.ask").wait_for()
    for field, text in fields.items():
        place = dialog.locator(f"[name={field}]")
        await tab_to(page, place)
        if await place.evaluate("one => one.localName") == "select":
            await place.select_option(text)
        else:
            await page.keyboard.press("Control+A")
            await page.keyboard.press("Delete")
            await page.keyboard.insert_text(text)
    await tab_to(page, dialog.locator(".acts button"))
    await page.keyboard.press("Enter")
    await expect(page.locator("#said")).to_have_text(said)
    await expect(dialog).to_be_hidden()


async def look_at(page: Page, rig: Rig, paths: Sequence[str]) -> None:
    """Check pages, and the dialog of each action on them, for layout, safety and accessibility.

    User text is never executed; nothing is wider than the window, on a phone or a desktop; axe-core
    finds nothing, in the light or the dark theme; each dialog gets the focus, keeps it, and returns
    it to where it came from.
    """
    wrong: list[str] = []
    seen: set[str] = set()
    for path in paths:
        for width, theme in WINDOWS:
            await page.set_viewport_size({"width": width, "height": 900})
            await show(page, rig, path)
            wrong += await _faults(page, path, width, theme)
        names = await page.eval_on_selector_all(
            "[data-ask]", "all => all.map(one => one.pathname.split('/').pop())"
        )
        for name in dict.fromkeys(names):
            if name not in seen:
                seen.add(name)
                wrong += await _faults_of_dialog(page, name)
    assert not wrong, "\n".join(wrong)


async def _faults(page: Page, where: str, width: int, theme: Literal["light", "dark"]) -> list[str]:
    wrong: list[str] = []
    if await page.evaluate("window.evil") is not None:
        wrong.append(f"{where}: a text has run")
    whole = await page.evaluate("document.documentElement.scrollWidth")
    if whole > width:
        wrong.append(f"{where}: {whole} px wide of {width}")
    await page.emulate_media(color_scheme=theme)
    wrong += [f"{where} ({width} px, {theme}): {one}" for one in await _axe(page)]
    return wrong


async def _faults_of_dialog(page: Page, name: str) -> list[str]:
    wrong: list[str] = []
    opener = button(page, name)
    href = await opener.get_attribute("href")
    await opener.focus()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    await dialog.locator("form.ask").wait_for()
    for width, theme in WINDOWS:
        await page.set_viewport_size({"width": width, "height": 900})
        wrong += await _faults(page, f"the dialog {name}", width, theme)
        inner = await dialog.evaluate("one => one.scrollWidth - one.clientWidth")
        if inner > 0:
            wrong.append(f"the dialog {name}: {inner} px too wide inside of {width}")
    for _ in range(12):
        # Something outside the page, such as the address bar, may have the focus in between.
        inside = await page.evaluate(
            "document.activeElement === document.body"
            " || document.getElementById('ask').contains(document.activeElement)"
        )
        if not inside:
            wrong.append(f"the dialog {name}: the focus leaves it")
            break
        await page.keyboard.press("Tab")
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    if await page.evaluate("document.activeElement.getAttribute('href')") != href:
        wrong.append(f"the dialog {name}: the focus does not come back")
    return wrong


async def _axe(page: Page) -> list[str]:
    try:
        from axe_playwright_python.async_playwright import Axe  # noqa: PLC0415
    except ImportError:
        missing("there is no axe-core (make setup)")
    found = (await Axe().run(page)).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:160]}"
        for one in found
        for node in one["nodes"][:3]
    ]
