"""What the pages show, and what their forms do."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from html.parser import HTMLParser

import httpx
import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import Role
from headway.contract.views import GatesQuery, GateState
from headway.core.errors import InvariantBroken
from headway.web.page import rows_of
from headway.web.pages import gates
from headway.web.shared_reads import GateTrack
from tests.server.rig import Rig
from tests.web.rig import HOSTILE, dashboard, do, signed_in
from tests.web.test_web_access import declare
from tests.web.test_web_live import LIVE, messages, until


@asynccontextmanager
async def operating(**options: object) -> AsyncIterator[tuple[Rig, httpx.AsyncClient]]:
    async with dashboard(**options) as rig, signed_in(rig, Role.OPERATOR) as http:
        yield rig, http


async def gate_of(rig: Rig, name: str) -> GateState:
    return (await rig.store.read(GatesQuery(names=(name,)))).rows[0]


async def take(rig: Rig, lane: str, n: int = 1) -> list[str]:
    """Start jobs of a lane with a live worker; return their ids."""
    request = ClaimRequest(
        worker="w", request=1, lanes=((lane, 1),), n=n, free=n, lease_ms=3_600_000
    )
    return [one.id for one in (await rig.store.claim(request)).jobs]


async def test_two_actions_of_one_name_are_refused():
    other = replace(gates.RELEASE, label="Other")
    page = replace(gates.PAGE, path="other", actions=(other,))
    with pytest.raises(InvariantBroken, match="two actions are named release-permit"):
        async with dashboard(pages=(page,)):
            pass


async def test_now_shows_causes_of_waiting_with_the_most_jobs_first():
    async with operating() as (rig, http):
        await declare(rig, "lines", 2)
        for _ in range(7):
            await rig.send(lane="calls", gates=["lines"])
        await take(rig, "calls", 2)
        for _ in range(3):
            await rig.send(lane="nobody")
        page = (await http.get("/ui")).text
        text = plain(page)
        assert "5 jobs slots lines is full (2 of 2)" in text
        assert "3 jobs no live worker serves lane nobody" in text
        assert text.index("5 jobs") < text.index("3 jobs")
        assert "about" not in text.partition("Jobs by state")[0]


async def test_now_says_when_a_full_gate_next_has_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(GateTrack, "next_free_at", lambda _track, now: now + 20_000)
    async with operating(events_each_s=0.01) as (rig, http):
        await declare(rig, "lines", 2)
        for _ in range(3):
            await rig.send(lane="calls", gates=["lines"])
        await take(rig, "calls", 2)
        assert "(2 of 2); next free in about 20s" in plain((await http.get("/ui")).text)
        async with http.stream("GET", "/ui", headers=LIVE) as reply:
            assert await until(messages(reply), "next free in about") == "change"


async def test_jobs_of_keyed_gates_are_one_line_for_their_template():
    async with operating() as (rig, http):
        await declare(rig, "customer:{phone}", 1)
        for phone in ("1", "1", "1", "2", "2"):
            await rig.send(lane="calls", gates=["customer:{phone}"], args={"phone": phone})
        await take(rig, "calls", 5)
        text = plain((await http.get("/ui")).text)
        assert "3 jobs slots customer:{phone} is full for 2 keys" in text


async def test_template_of_keyed_gates_has_no_button_to_close_it_but_its_gates_have():
    async with operating() as (rig, http):
        await declare(rig, "customer:{phone}", 1)
        await rig.send(lane="calls", gates=["customer:{phone}"], args={"phone": "1"})
        await take(rig, "calls", 1)
        page = (await http.get("/ui/gates")).text
        assert page.count("-/do/close-gate?") == 1
        assert "template" in plain(page)
        template = "/ui/gates?gate=customer%3A%7Bphone%7D"
        assert "-/do/close-gate?" not in (await http.get(template)).text
        assert "-/do/close-gate?" in (await http.get("/ui/gates?gate=customer%3A1")).text


@pytest.mark.parametrize("names", ["ab", "abz"])
async def test_search_that_did_not_read_all_gates_says_so(
    monkeypatch: pytest.MonkeyPatch, names: str
):
    for limit in ("MOST_GATES", "PAGE"):
        monkeypatch.setattr(f"headway.server.overview.{limit}", 2)
    async with operating() as (rig, http):
        for name in names:
            await declare(rig, name, 1)
        for given in ({"q": "z"}, {"only": "closed"}, {"q": "a"}):
            page = (await http.get("/ui/gates", params=given)).text
            read_all = "z" not in names
            said = "Only the first 2 gates by name are searched." in plain(page)
            assert said == (not read_all)
            assert ("No gate matches." in page) == (read_all and given != {"q": "a"})
            assert ("/ui/gates?gate=z" in page) == (not read_all and given == {"q": "z"})


async def test_kill_switch_stops_everything_with_reason_and_end_and_starts_it_again():
    async with operating() as (rig, http):
        await rig.send(lane="calls")
        reply = await do(http, "/ui/-/do/stop-everything", reason="a flood", until="20m")
        assert reply.status_code == 303
        page = await http.get(reply.headers["location"])
        text = plain(page.text)
        assert "Everything is paused. closed by operator until" in text
        assert "a flood" in text
        assert (await gate_of(rig, "all")).closed_reason == "a flood"
        assert (await do(http, "/ui/-/do/start-everything")).status_code == 303
        assert (await gate_of(rig, "all")).closed_until is None


async def test_lane_is_paused_and_resumed_and_its_concurrency_set():
    async with operating() as (rig, http):
        await rig.send(lane="calls", tenant="acme")
        await do(http, "/ui/-/do/pause-lane?lane=calls", reason="wait", until="1h")
        assert "Paused. closed by operator until" in plain(
            (await http.get("/ui/lanes?lane=calls")).text
        )
        assert "is paused by operator" in plain((await http.get("/ui")).text)
        await do(http, "/ui/-/do/resume-lane?lane=calls")
        assert (await gate_of(rig, "lane:calls")).closed_until is None
        await do(http, "/ui/-/do/set-lane-concurrency?lane=calls", capacity="3")
        assert (await gate_of(rig, "lane:calls")).capacity == 3
        text = plain((await http.get("/ui/lanes?lane=calls")).text)
        assert "of 3" in text
        assert "acme" in text


async def test_gate_shows_its_holders_and_waiters_and_a_permit_is_released_by_force():
    async with operating() as (rig, http):
        await declare(rig, "lines", 1)
        for _ in range(3):
            await rig.send(lane="calls", gates=["lines"], tenant="acme")
        (holder,) = await take(rig, "calls", 3)
        text = plain((await http.get("/ui/gates?gate=lines")).text)
        assert "In use 1 of 1" in text
        assert "Held by 1" in text
        assert holder[-8:] in text
        path = f"/ui/-/do/release-permit?gate=lines&job={holder}"
        asked = await http.get(path)
        assert "by force" in asked.text
        reply = await do(http, path, reason="its call is over")
        assert reply.status_code == 303
        assert (await gate_of(rig, "lines")).used == 0


async def test_capacity_is_set_and_reset_and_a_wrong_number_is_reported_in_the_form():
    async with operating() as (rig, http):
        await declare(rig, "lines", 1)
        path = "/ui/-/do/set-gate-capacity?gate=lines"
        assert 'name="capacity" value="1"' in (await http.get(path)).text
        wrong = await do(http, path, capacity="many", reason="kept as typed")
        assert wrong.status_code == 422
        assert "capacity" in wrong.text
        assert "kept as typed" in wrong.text
        assert (await do(http, path, capacity="5")).status_code == 303
        assert (await gate_of(rig, "lines")).capacity == 5
        await do(http, "/ui/-/do/reset-gate?gate=lines")
        assert (await gate_of(rig, "lines")).capacity == 1


async def test_closing_until_a_time_in_the_past_is_refused_in_the_form():
    async with operating() as (rig, http):
        await declare(rig, "lines", 1)
        reply = await do(http, "/ui/-/do/close-gate?gate=lines", until="2020-01-01T00:00Z")
        assert reply.status_code == 422
        assert "until is 2020-01-01T00:00:00Z, which is not in the future" in reply.text
        assert (await gate_of(rig, "lines")).closed_until is None


async def test_command_beside_a_form_does_the_same_over_http():
    async with operating() as (rig, http):
        name = 'it\'s "quoted" & <b>'
        await declare(rig, name, 1)
        page = await http.get("/ui/-/do/close-gate", params={"gate": name, "reason": "so"})
        command = html.unescape(page.text.partition("<code>")[2].partition("</code>")[0])
        words = shlex.split(command)
        assert words[:4] == ["curl", "-X", "POST", "--json"]
        assert words[5:7] == ["-H", "Authorization: Bearer $HEADWAY_TOKEN"]
        body = json.loads(words[4])
        reply = await rig.call(Role.OPERATOR, "POST", words[7].removeprefix(rig.url), body)
        assert reply.status_code == 200
        assert (await gate_of(rig, name)).closed_reason == "so"


async def test_script_receives_only_the_form_and_the_message_as_json():
    async with operating() as (rig, http):
        await declare(rig, "lines", 1)
        path = "/ui/-/do/close-gate?gate=lines"
        form = await http.get(path, headers={"X-Headway-Script": "1"})
        assert form.text.lstrip().startswith("<form")
        reply = await do(http, path, script=True)
        assert reply.json() == {"said": "lines is closed."}


async def test_page_of_lanes_beyond_the_last_is_the_last():
    async with operating() as (rig, http):
        for n in range(52):
            await rig.send(lane=f"lane {n:02}")
        text = plain((await http.get("/ui/lanes?from=100")).text)
        assert "51 to 52 of 52" in text
        assert "lane 51" in text
    facts = {"first": 50, "many": 100, "size": 50}
    assert rows_of({"from": "100"}, [*range(100)]) == ([*range(50, 100)], facts)


async def test_hostile_names_and_texts_are_shown_as_text_on_every_page():
    async with operating() as (rig, http):
        # In a gate's name, braces may only enclose placeholders.
        gates = [f"g{i} {one.replace('{', '(').replace('}', ')')}" for i, one in enumerate(HOSTILE)]
        for i, (evil, gate) in enumerate(zip(HOSTILE, gates, strict=True)):
            await declare(rig, gate, 0)
            await rig.send(lane=f"l{i} {evil}", tenant=evil, kind=evil, gates=[gate])
            body = {"gate": gate, "reason": evil}
            await rig.call(Role.OPERATOR, "POST", "/v1/closures", body)
        for i, (evil, gate) in enumerate(zip(HOSTILE, gates, strict=True)):
            params = {"lane": f"l{i} {evil}"}, {"gate": gate}
            paths = [("/ui", {}), ("/ui/lanes", {}), ("/ui/gates", {}), ("/ui/lanes", {"q": evil})]
            paths += [("/ui/trail", {})]
            paths += [("/ui/lanes", params[0]), ("/ui/gates", params[1])]
            paths += [("/ui/-/do/close-gate", params[1]), ("/ui/-/do/pause-lane", params[0])]
            for path, query in paths:
                reply = await http.get(path, params=query)
                assert reply.status_code == 200, (path, query)
                seen = Tags(reply.text)
                assert seen.scripts == 1
                assert "img" not in seen.names
                assert not [one for one in seen.attributes if one.startswith("on")]
                assert not [one for one in seen.links if one.startswith("javascript")]
                for sign in ("\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"):
                    assert sign not in seen.text + seen.labels


_LABELS = {"alt", "aria-label", "placeholder", "title"}


class Tags(HTMLParser):
    """The tags of a page, its text, and the labels that are read aloud or shown in its place."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts = 0
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.labels = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "action"}]
        self.labels += "".join(value or "" for name, value in attrs if name in _LABELS)

    def handle_data(self, data: str) -> None:
        self.text += data


def plain(page: str) -> str:
    """Return the text of a page, with single spaces."""
    return " ".join(Tags(page).text.split())


async def test_refused_form_names_its_own_field():
    async with operating() as (rig, http):
        await rig.send(lane="calls")
        refused = await do(http, "/ui/-/do/pause-lane?lane=calls", until="tomorrow")
        assert refused.status_code == 422
        text = plain(refused.text)
        assert "until: the instant 'tomorrow' is not understood" in text
        assert "body." not in text
