"""The dashboard's pages: requests in progress, technicians, and text that must never be run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from headway.contract.definitions import Role
from headway.runtime.timing import REAL
from headway.systems.field_service.live_view import read_live_view
from tests.servers.browser import browsing
from tests.systems.field_service.field_rig import LIMIT_S, FieldRig, a_field
from tests.web.rig import HOSTILE, do, signed_in
from tests.web.test_web_live import LIVE, messages, until
from tests.web.test_web_pages import Tags, plain

EVIL = "<script>window.evil=1</script><img src=x onerror='window.evil=1'>\" onload=evil &amp;"
BOARD, PEOPLE = "/ui/field-service", "/ui/field-service/technicians"


async def evil(field: FieldRig, text: str = EVIL) -> str:
    """Create a request full of hostile text, offered to a technician with such a name."""
    await field.technician("ada", km=1)
    await field.change("ada", name=text[:100], skills=[text[:60]])
    customer = {"name": text[:100], "phone": "+14155550100"}
    sent = await field.ask(customer=customer, address=text[:100], description=text)
    await field.asks(sent["id"], "ada")
    return sent["id"]


async def shows(http: httpx.AsyncClient, words: str) -> None:
    """Wait until the board shows these words: a read is shared for most of a second."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            page = (await http.get(BOARD)).text
            if words in page or words in plain(page):
                return
            await REAL.pause(0.05)


async def test_board_shows_who_is_asked_and_the_time_left_without_markup(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        request = await evil(field)
        for path in (BOARD, PEOPLE, f"/ui/-/do/field-assign?request={request}"):
            reply = await field.rig.http.get(path)
            assert reply.status_code == 200
            policy = reply.headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            seen = Tags(reply.text)
            assert seen.scripts == 1
            assert "img" not in seen.names
            assert not [one for one in seen.attributes if one.startswith("on")]
        text = plain((await field.rig.http.get(BOARD)).text)
        assert EVIL in text
        assert "Being offered 1" in text
        assert "is asked, 59m" in text
        assert EVIL[:60] in plain((await field.rig.http.get(PEOPLE)).text)


async def test_invisible_characters_of_a_name_are_shown_as_a_sign(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        for one in HOSTILE:
            await field.change("ada", name=one[:100], skills=[one[:60]])
            for path in (BOARD, PEOPLE):
                text = Tags((await field.rig.http.get(path)).text).text
                for sign in ("\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"):
                    assert sign not in text


async def test_open_board_receives_each_turn(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        async with field.rig.http.stream("GET", BOARD, headers=LIVE) as stream:
            found = messages(stream)
            await until(found, "No service requests")
            sent = await field.ask()
            await until(found, "is asked, ")
            await field.say(sent["id"], "accept", "ada")
            await until(found, "has it")


async def test_old_address_leads_to_the_board_and_without_a_token_to_the_sign_in(
    tmp_path: Path,
):
    async with a_field(tmp_path, tokens=True, offer_timeout="1h", lines={}) as field:
        await evil(field)
        reply = await field.rig.http.get("/field-service/live")
        assert (reply.status_code, reply.headers["location"]) == (307, BOARD)
        scoped = await field.rig.token(Role.VIEWER, tenants=["acme"])
        lane = await field.rig.token(Role.VIEWER, lanes=["mail"])
        for who, status in ((None, 303), (scoped, 403), (lane, 403), (Role.VIEWER, 200)):
            async with signed_in(field.rig, who) as http:
                for path in (BOARD, PEOPLE):
                    reply = await http.get(path)
                    assert reply.status_code == status
                    assert ("onerror" in reply.text) == (status == 200)


async def test_dispatcher_assigns_completes_offers_again_and_withdraws(tmp_path: Path):
    async with a_field(tmp_path, tokens=True, offer_timeout="1h", lines={}) as field:
        for name in ("ada", "bob"):
            await field.technician(name, km=1)
        sent = (await field.ask())["id"]
        await field.asks(sent, "ada")
        async with signed_in(field.rig, Role.VIEWER) as http:
            page = (await http.get(BOARD)).text
            assert sent in page
            assert "/ui/-/do/" not in page
            for name in ("assign", "complete", "redispatch", "withdraw"):
                reply = await http.get(f"/ui/-/do/field-{name}?request={sent}")
                assert reply.status_code == 403
        async with signed_in(field.rig, Role.ADMIN) as http:

            async def move(name: str, request: str, **more: str) -> None:
                path = f"/ui/-/do/field-{name}?request={request}"
                await shows(http, path)
                reply = await do(http, path, **more)
                assert reply.status_code == 303, reply.text

            await move("assign", sent, technician="bob", wait="no")
            assert (await field.becomes(sent, "assigned"))["technician"] == "bob"
            await shows(http, "Bob has it")
            await move("complete", sent)
            await field.becomes(sent, "completed")
            await shows(http, "Completed last 1")
            other = (await field.ask())["id"]
            await move("withdraw", other)
            await field.becomes(other, "cancelled")
            await move("redispatch", other)
            assert (await field.get(other))["status"] == "dispatching"
            reply = await do(http, f"/ui/-/do/field-assign?request={other}", technician="zoe")
            assert reply.status_code == 404


async def test_technicians_show_their_requests_and_go_on_and_off_duty(tmp_path: Path):
    async with a_field(tmp_path, tokens=True, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1, skills=("gas",))
        await field.technician("zoe", km=2, on_duty=False)
        sent = (await field.ask())["id"]
        await field.asks(sent, "ada")
        async with signed_in(field.rig, Role.VIEWER) as http:
            page = (await http.get(PEOPLE)).text
            assert f"/ui/jobs/{sent}" in page
            assert "/ui/-/do/" not in page
        async with signed_in(field.rig, Role.ADMIN) as http:
            for query in ("duty=off", "q=zoe"):
                text = plain((await http.get(f"{PEOPLE}?{query}")).text)
                assert "Zoe" in text
                assert "Ada" not in text
            reply = await do(http, "/ui/-/do/field-on-duty?technician=zoe")
            assert reply.status_code == 303
            assert (await field.rig.ask(Role.ADMIN, "/technicians/zoe"))["on_duty"]
            assert "Zoe" in plain((await http.get(f"{PEOPLE}?duty=on")).text)
            assert (await do(http, "/ui/-/do/field-off-duty?technician=zoe")).status_code == 303
            assert not (await field.rig.ask(Role.ADMIN, "/technicians/zoe"))["on_duty"]


@pytest.mark.slow
async def test_browser_follows_the_old_address_signs_in_and_sees_the_answer_arrive(
    tmp_path: Path,
):
    async with (
        a_field(tmp_path, tokens=True, offer_timeout="1h", lines={}) as field,
        browsing() as browser,
    ):
        request = await evil(field)
        page = await browser.new_page(viewport={"width": 375, "height": 844})
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        await page.goto(f"{field.rig.url}/field-service/live")
        await page.fill("input[name=token]", field.rig.tokens[Role.VIEWER])
        await page.keyboard.press("Enter")
        await page.get_by_text("is asked, ").wait_for()
        await page.locator("#link.live").wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 375
        await field.say(request, "accept", "ada")
        await page.get_by_text("has it").wait_for()
        assert EVIL in await page.locator("#requests").inner_text()
        assert await page.evaluate("window.evil === undefined")
        assert wrong == []


async def test_board_shows_an_open_offer_behind_any_number_of_newer_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.stores.memory.jobs.MOST_EXAMINED", 2)
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        for _ in range(3):
            later = {"kind": "noop", "lane": "later", "due": "1h"}
            made = await field.rig.call(field.who, "POST", "/v1/jobs", later)
            assert made.status_code == 201
        (shown,) = (await read_live_view(field.store, field.directory)).requests
        assert (shown.id, shown.offer is not None) == (sent["id"], True)
