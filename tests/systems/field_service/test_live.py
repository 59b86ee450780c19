"""The live page: what a browser shows of requests as they go on, and what it never runs."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from headway.contract.tokens import Role
from tests.servers.browser import browsing
from tests.systems.field_service.field_rig import FieldRig, a_field

EVIL = "<script>window.evil=1</script><img src=x onerror='window.evil=1'>\" onload=evil &amp;"


class Seen(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


async def evil(field: FieldRig) -> str:
    """A request that carries whatever it can, with an offer to somebody of such a name."""
    await field.technician("ada", km=1)
    await field.change("ada", name=EVIL[:190])
    customer = {"name": EVIL[:200], "phone": "+14155550100"}
    sent = await field.ask(customer=customer, address=EVIL, description=EVIL)
    await field.asks(sent["id"], "ada")
    return sent["id"]


async def test_the_page_shows_who_is_asked_and_the_time_left_and_nothing_in_it_is_markup(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await evil(field)
        reply = await field.rig.http.get("/field-service/live")
        assert reply.headers["content-type"].startswith("text/html")
        policy = reply.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        seen = Seen(reply.text)
        assert EVIL in seen.text
        assert "s left" in seen.text
        scripts = [attrs for tag, attrs in seen.tags if tag == "script"]
        assert scripts == [{"src": "/field-service/live/live.js", "defer": None}]
        assert "img" not in {tag for tag, _ in seen.tags}
        assert not [name for _, attrs in seen.tags for name in attrs if name.startswith("on")]
        for name in ("live.js", "live.css"):
            assert (await field.rig.http.get(f"/field-service/live/{name}")).is_success


async def test_the_stream_sends_the_board_whenever_it_changes(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        http = field.rig.http
        async with http.stream("GET", "/field-service/live/events") as stream:
            lines = stream.aiter_lines()

            async def board() -> str:
                async for line in lines:
                    if line.startswith("data: "):
                        return line
                raise AssertionError

            assert "No service requests" in await board()
            sent = await field.ask()
            while "is asked since" not in (line := await board()):
                assert sent["id"] in line
            await field.say(sent["id"], "accept", "ada")
            while "has it" not in await board():
                pass


async def test_without_a_token_the_page_shows_no_request_and_asks_for_one(tmp_path: Path):
    async with a_field(tmp_path, tokens=True, offer_timeout="1h", lines={}) as field:
        await evil(field)
        token = await field.rig.token(Role.VIEWER)
        scoped = await field.rig.token(Role.VIEWER, tenants=["acme"])
        for who in (None, scoped):
            reply = await field.rig.call(who, "GET", "/field-service/live")
            assert reply.status_code == 200
            assert "Bo Li" not in reply.text
            assert "onerror" not in reply.text
            refused = await field.rig.call(who, "GET", "/field-service/live/events")
            assert refused.status_code in {401, 403}
        reply = await field.rig.call(token, "GET", "/field-service/live")
        assert "onerror" in Seen(reply.text).text


@pytest.mark.slow
async def test_a_browser_shows_the_offer_the_answer_and_the_token_form_and_runs_nothing_else(
    tmp_path: Path,
):
    async with (
        a_field(tmp_path, tokens=True, offer_timeout="1h", lines={}) as field,
        browsing() as browser,
    ):
        request = await evil(field)
        page = await browser.new_page(viewport={"width": 390, "height": 844})
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        await page.goto(f"{field.rig.url}/field-service/live")
        await page.fill("#token", field.rig.tokens[Role.VIEWER])
        await page.get_by_role("button").click()
        await page.get_by_text("is asked since").wait_for()
        await page.locator("#state", has_text="live").wait_for()
        assert (await page.locator(".left").inner_text()).endswith("s left")
        assert await page.locator("#door").is_hidden()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        await field.say(request, "accept", "ada")
        await page.locator(".has", has_text="has it").wait_for()
        assert EVIL in await page.locator("#board").inner_text()
        assert await page.evaluate("window.evil === undefined")
        assert wrong == []
