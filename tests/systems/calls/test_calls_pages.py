"""The dashboard's pages of calls: numbers with their channels, and the outcomes of calls."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from headway.contract.definitions import Role
from headway.systems.calls.lead import Outcome
from headway.systems.calls.pages import Campaign
from headway.web.rendering import fragments
from tests.systems.calls.calls_rig import NUMBER, OTHER, calling
from tests.web.rig import HOSTILE, do, signed_in
from tests.web.test_web_live import LIVE, messages, until
from tests.web.test_web_pages import Tags, plain

NUMBERS, CAMPAIGNS = "/ui/calls", "/ui/calls/campaigns"


async def test_numbers_show_their_channels_and_are_closed_disabled_and_changed(tmp_path: Path):
    async with calling(tmp_path, work=False) as calls, signed_in(calls.rig, Role.ADMIN) as http:
        await calls.number(NUMBER, 2)
        await calls.number(OTHER, 3, reseller="acme")
        text = plain((await http.get(NUMBERS)).text)
        assert "calls.numbers 0 of 2 lines in use" in text
        assert "calls.numbers:acme 0 of 3 lines in use" in text
        assert f"{NUMBER} 0 of 2 free" in text
        assert OTHER not in plain((await http.get(f"{NUMBERS}?q=1001")).text)
        assert OTHER in plain((await http.get(f"{NUMBERS}?from={'9' * 5_000}")).text)
        path = f"/ui/-/do/calls-disable-number?number=%2B{NUMBER[1:]}"
        assert path in (await http.get(NUMBERS)).text
        assert (await do(http, path)).status_code == 303
        assert (await calls.ask("/numbers"))["rows"][0]["status"] == "DISABLED"
        assert f"{NUMBER} 0 of 2 disabled" in plain((await http.get(NUMBERS)).text)
        assert (await do(http, path.replace("disable", "enable"))).status_code == 303
        assert (await calls.ask("/numbers"))["rows"][0]["status"] == "AVAILABLE"
        path = path.replace("disable-number", "set-channels")
        assert (await do(http, path, channels="none")).status_code == 422
        assert (await do(http, path, channels="7")).status_code == 303
        assert f"{NUMBER} 0 of 7 free" in plain((await http.get(NUMBERS)).text)
        gate = f"calls.numbers/{NUMBER}".replace("/", "%2F").replace("+", "%2B")
        path = f"/ui/-/do/close-gate?gate={gate}"
        assert path in (await http.get(NUMBERS)).text
        assert (await do(http, path, reason="a complaint")).status_code == 303
        assert "a complaint" in (await http.get(NUMBERS)).text
        async with http.stream("GET", NUMBERS, headers=LIVE) as reply:
            assert await until(messages(reply), "a complaint") == "change"


async def test_campaigns_count_call_outcomes_by_reseller_and_template(tmp_path: Path):
    async with calling(tmp_path) as calls, signed_in(calls.rig, Role.VIEWER) as http:
        await calls.number(NUMBER, 2)
        await calls.template("spring")
        await calls.finished(await calls.lead(template="spring"))
        # The reseller's own numbers are disabled, so the lead waits.
        await calls.number(OTHER, 1, reseller="globex", status="DISABLED")
        await calls.lead("+14155550199", reseller="globex")
        page = (await http.get(CAMPAIGNS)).text
        # The page of numbers is its parent, but the menu marks only the open page.
        menu = page.partition("</nav>")[0]
        assert f'href="{CAMPAIGNS}" aria-current="page"' in menu
        assert menu.count("aria-current") == 1
        text = plain(page)
        assert "Outcomes of 1 calls completed 1" in text
        assert "acme spring 1 0 0 100 %" in text
        assert "globex default 1 " in text
        async with http.stream("GET", CAMPAIGNS, headers=LIVE) as reply:
            assert await until(messages(reply), "globex") == "change"
        own = await calls.rig.token(Role.VIEWER, tenants=["acme"])
        async with signed_in(calls.rig, own) as mine:
            page = (await mine.get(CAMPAIGNS)).text
            assert "spring" in page
            assert "globex" not in page
            assert (await mine.get(f"{CAMPAIGNS}?reseller=globex")).status_code == 403
            assert (await mine.get(NUMBERS)).status_code == 403


def test_outcomes_of_campaigns_have_one_order_and_a_legend():
    endings = {"BUSY": 1, "COMPLETED": 2, "FAILED": 3}
    rows = [
        Campaign(reseller=name, template="spring", outcomes=Counter(dict(pairs)))
        for name, pairs in (("a", endings.items()), ("b", reversed(endings.items())))
    ]
    outcomes = [(str(one), 2 * endings[one]) for one in Outcome if one in endings]
    facts = {"rows": rows, "outcomes": outcomes, "calls": 12, "leads": 12, "most": 9, "more": 0}
    package = "headway.systems.calls"
    html = fragments(package, "calls-campaigns.html", ("campaigns",), facts)["campaigns"]
    legend = re.findall(r'<i class="dot (\w+)"></i>([\w ]+) <b>', html)
    assert [name for _, name in legend] == [one.lower() for one, _ in outcomes]
    bars = [re.findall(r'<rect class="(\w+)"', one)[1:] for one in html.split("<svg")[1:]]
    assert bars == [[colour for colour, _ in legend]] * 2
    assert len(set(bars[0])) == 3


async def test_viewer_sees_no_button_and_hostile_names_are_text(tmp_path: Path):
    async with calling(tmp_path, work=False) as calls, signed_in(calls.rig, Role.VIEWER) as http:
        names = [one for one in HOSTILE if one.isprintable() and len(one) <= 200]
        for i, one in enumerate(names):
            body = {"number": f"+1555000200{i}", "provider": "twilio", "maximum_channels": 1}
            await calls.call("POST", "/numbers", {**body, "reseller": one})
            lead = {"phone": f"+1415555020{i}", "tz": "UTC", "reseller": one}
            await calls.call("POST", "/leads", lead)
        for path in (NUMBERS, CAMPAIGNS, *(f"{CAMPAIGNS}?reseller=x{i}" for i in range(2))):
            reply = await http.get(path)
            assert reply.status_code == 200
            assert "/ui/-/do/" not in reply.text
            seen = Tags(reply.text)
            assert seen.scripts == 1
            assert "img" not in seen.names
            assert not [one for one in seen.attributes if one.startswith("on")]
            assert not [one for one in seen.links if one.startswith("javascript")]
        assert "window.evil=1" in plain((await http.get(CAMPAIGNS)).text)
        for name in ("disable-number", "enable-number", "set-channels"):
            assert (await http.get(f"/ui/-/do/calls-{name}?number=%2B1")).status_code == 403
