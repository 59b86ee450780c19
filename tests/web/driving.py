"""A browser that is driven by keyboard alone, and what is looked for on each page that it shows."""

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
WINDOWS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((375, "light"), (1440, "dark"))
"""Widths, each with the theme in which axe-core looks."""


@asynccontextmanager
async def opened(
    browser: Browser, rig: Rig, path: str = "/ui", *, token: str | None = None, **how: Any
) -> AsyncIterator[Page]:
    """A page of a browser profile of its own, that must meet no error.

    Args:
        browser: whose profile.
        rig: whose dashboard.
        path: that is opened.
        token: that the browser keeps already.
        how: of the profile.
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
    """Goes to a page, and waits until it is live."""
    await page.goto(rig.url + path)
    await is_live(page)


def button(page: Page, name: str, within: str = "") -> Locator:
    """The first button of an action, within a part of the page."""
    return page.locator(f"{within} [data-ask][href*='/-/do/{name}?']").first


async def tab_to(page: Page, place: Locator) -> None:
    """Presses Tab until a place has the focus."""
    for _ in range(MOST_TABS):
        if await place.evaluate("one => one === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    message = f"{place} is not reached by the keyboard"
    raise AssertionError(message)


async def act(page: Page, name: str, said: str, *, within: str = "", **fields: str) -> None:
    """Does an action by keyboard alone.

    Args:
        page: that shows its button.
        name: of the action.
        said: what the page says when it is done.
        within: a selector, where several buttons of the action are shown.
        fields: what is filled in, by name.
    """
    await button(page, name, within).focus()
    await page.keyboard.press("Enter")
    await fill_in(page, said, **fields)


async def fill_in(page: Page, said: str, **fields: str) -> None:
    """Fills in the dialog that is open or opens, and sends it, by keyboard alone."""
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
    """Looks at pages, and at the dialog of each action on them: they must be whole for everybody.

    No text of users runs; nothing is wider than the window, on a telephone and on a desk; axe-core
    finds nothing, in the light and in the dark; each dialog gets the focus, keeps it, and gives it
    back where it came from.
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
        # What is not of the page, such as the address, may have it between.
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
