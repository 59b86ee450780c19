"""Who can sign in, what each role sees, and what other sites' pages cannot do."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from headway.contract.definitions import DeclareGate, DefineRequest, Role
from headway.contract.views import GatesQuery, TrailQuery
from headway.core.errors import Forbidden
from headway.core.gates.slots import Slots
from headway.web.sign_in import COOKIE, check_form, form_token, inside
from tests.server.rig import Rig
from tests.web.rig import dashboard, do, form_of, signed_in


async def declare(rig: Rig, name: str = "lines", capacity: int = 2) -> None:
    await rig.store.define(
        DefineRequest(items=(DeclareGate(spec=Slots(name, capacity)),), author="a test")
    )


async def closed(rig: Rig, name: str) -> bool:
    (gate,) = (await rig.store.read(GatesQuery(names=(name,)))).rows
    return gate.closed_until is not None


async def test_root_leads_to_the_dashboard_and_an_open_server_shows_it_at_once():
    async with dashboard(tokens=False) as rig:
        reply = await rig.http.get("/")
        assert reply.status_code == 307
        assert reply.headers["location"] == "/ui"
        page = await rig.http.get("/ui")
        assert page.status_code == 200
        assert "Held up, and why" in page.text
        assert "Sign out" not in page.text
        assert (await rig.http.get("/ui/-/sign-in")).headers["location"] == "/ui"


async def test_every_page_has_the_strict_policy_and_no_inline_script_or_style():
    async with dashboard(tokens=False) as rig:
        await declare(rig)
        for path in (
            "/ui",
            "/ui/lanes",
            "/ui/gates",
            "/ui/gates?gate=lines",
            "/ui/-/do/stop-everything",
        ):
            reply = await rig.http.get(path)
            assert reply.status_code == 200
            assert reply.headers["content-security-policy"] == (
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
            )
            assert "<style" not in reply.text
            assert " style=" not in reply.text
            assert " onclick" not in reply.text
            assert reply.text.count("<script") == 1


async def test_unknown_page_is_a_page_to_a_browser_and_a_problem_to_a_program():
    async with dashboard() as rig, signed_in(rig, Role.VIEWER) as http:
        for path in ("/ui/nowhere", "/ui/-/nowhere"):
            page = await http.get(path, headers={"Accept": "text/html,*/*;q=0.8"})
            assert page.status_code == 404
            assert page.headers["content-type"].startswith("text/html")
            assert "content-security-policy" in page.headers
            assert f"there is no page {path}" in page.text
            assert 'href="/ui/jobs"' in page.text
            problem = await http.get(path)
            assert (problem.status_code, problem.json()["code"]) == (404, "unknown_path")
        outside = await http.get("/nowhere", headers={"Accept": "text/html"})
        assert outside.json()["code"] == "unknown_path"
        wrong_method = await http.post("/ui/gates", headers={"Accept": "text/html"})
        assert wrong_method.status_code == 405
    async with dashboard() as rig, signed_in(rig, None) as http:
        page = await http.get("/ui/<b>nowhere", headers={"Accept": "text/html"})
        assert page.status_code == 404
        assert "<b>" not in page.text
        assert 'href="/ui/jobs"' not in page.text


async def test_every_page_without_a_token_leads_to_the_sign_in_and_back():
    async with dashboard() as rig, signed_in(rig, None) as http:
        reply = await http.get("/ui/gates?only=shut")
        assert reply.status_code == 303
        assert reply.headers["location"] == "/ui/-/sign-in?next=%2Fui%2Fgates%3Fonly%3Dshut"
        form = await form_of(http, reply.headers["location"])
        wrong = await http.post(reply.headers["location"], data={**form, "token": "hw_no"})
        assert wrong.status_code == 401
        assert COOKIE not in http.cookies
        right = await http.post(
            reply.headers["location"], data={**form, "token": rig.tokens[Role.VIEWER]}
        )
        assert right.status_code == 303
        assert right.headers["location"] == "/ui/gates?only=shut"
        kept = right.headers["set-cookie"]
        assert "HttpOnly" in kept
        assert "SameSite=strict" in kept
        assert "Path=/ui" in kept
        assert (await http.get("/ui/gates?only=shut")).status_code == 200


async def test_cookie_is_not_an_api_token():
    async with dashboard() as rig, signed_in(rig, Role.ADMIN) as http:
        assert (await http.get("/ui/gates")).status_code == 200
        assert (await http.get("/v1/gates")).status_code == 401


async def test_signing_out_forgets_the_token():
    async with dashboard() as rig, signed_in(rig, Role.VIEWER) as http:
        page = await http.get("/ui")
        token = page.text.partition('name="form" value="')[2].partition('"')[0]
        assert (await http.post("/ui/-/sign-out", data={"form": "forged"})).status_code == 403
        reply = await http.post("/ui/-/sign-out", data={"form": token})
        assert reply.status_code == 303
        assert 'headway_token=""; ' in reply.headers["set-cookie"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
    ],
)
@pytest.mark.parametrize("tokens", [True, False])
async def test_form_from_another_site_is_refused_even_with_the_right_token(
    headers: dict[str, str], tokens: bool
):
    async with dashboard(tokens=tokens) as rig:
        await declare(rig)
        async with signed_in(rig, Role.ADMIN if tokens else None) as http:
            form = await form_of(http, "/ui/-/do/close-gate?gate=lines")
            del http.headers["Sec-Fetch-Site"]
            reply = await http.post("/ui/-/do/close-gate", data=form, headers=headers)
            assert reply.status_code == 403
            assert not await closed(rig, "lines")


def request_with(headers: dict[str, str]) -> Request:
    pairs = {"host": "headway.example", "cookie": f"{COOKIE}=hw_secret", **headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in pairs.items()]
    return Request({"type": "http", "headers": raw})


@pytest.mark.parametrize(
    ("headers", "accepted"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": ""}, False),
        ({"Sec-Fetch-Site": "same-site", "Origin": "https://headway.example"}, False),
        ({"Origin": "https://headway.example"}, True),
        ({"Origin": "https://other.headway.example"}, False),
        ({"Origin": "https://headway.example:444"}, False),
        ({"Origin": "http://["}, False),
        ({"Origin": "null"}, False),
        ({}, False),
    ],
)
def test_form_check_accepts_only_forms_of_the_same_origin(headers: dict[str, str], accepted: bool):
    # The server's middleware refuses most of these earlier; this is the check behind it.
    request = request_with(headers)
    token = form_token(request)
    if accepted:
        check_form(request, token)
    else:
        with pytest.raises(Forbidden, match="does not belong to a page of this dashboard"):
            check_form(request, token)


async def test_token_of_a_sign_in_without_this_dashboards_form_is_not_kept():
    async with dashboard() as rig, signed_in(rig, None) as http:
        token = rig.tokens[Role.VIEWER]
        for form in ({"token": token}, {"token": token, "form": "0" * 64}):
            reply = await http.post("/ui/-/sign-in", data=form)
            assert reply.status_code == 403
            assert "set-cookie" not in reply.headers


async def test_form_with_another_token_than_its_page_is_refused():
    async with dashboard() as rig:
        await declare(rig)
        async with signed_in(rig, Role.OPERATOR) as other, signed_in(rig, Role.ADMIN) as http:
            form = await form_of(other, "/ui/-/do/close-gate?gate=lines")
            for forged in (form["form"], "", "0" * 64, "\N{SNOWMAN}"):
                reply = await http.post("/ui/-/do/close-gate", data={**form, "form": forged})
                assert reply.status_code == 403
            assert not await closed(rig, "lines")


async def test_viewer_sees_no_button_and_is_refused_the_form_and_the_action():
    async with dashboard() as rig:
        await declare(rig)
        async with signed_in(rig, Role.OPERATOR) as http:
            assert "/ui/-/do/" in (await http.get("/ui/gates?gate=lines")).text
            form = await form_of(http, "/ui/-/do/close-gate?gate=lines")
        async with signed_in(rig, Role.VIEWER) as http:
            for path in ("/ui", "/ui/lanes", "/ui/gates", "/ui/gates?gate=lines"):
                page = await http.get(path)
                assert page.status_code == 200
                assert "/ui/-/do/" not in page.text
            assert (await http.get("/ui/-/do/close-gate?gate=lines")).status_code == 403
            assert (await http.post("/ui/-/do/close-gate", data=form)).status_code == 403
        assert not await closed(rig, "lines")


async def test_token_for_one_lane_sees_only_that_lane_and_can_pause_no_other():
    async with dashboard() as rig:
        for lane in ("mine", "theirs"):
            await rig.send(lane=lane)
        text = await rig.token(Role.OPERATOR, lanes=["mine"])
        async with signed_in(rig, text) as http:
            for path in ("/ui", "/ui/lanes"):
                page = (await http.get(path)).text
                assert "mine" in page
                assert "theirs" not in page
                assert "/ui/gates" not in page
            assert (await http.get("/ui/gates")).status_code == 403
            assert (await http.get("/ui/lanes?lane=theirs")).status_code == 403
            assert (await http.get("/ui/-/do/pause-lane?lane=theirs")).status_code == 403
            other = await do(http, "/ui/-/do/pause-lane?lane=mine", lane="theirs")
            assert other.status_code == 403
            assert (await do(http, "/ui/-/do/pause-lane?lane=mine")).status_code == 303
        assert await closed(rig, "lane:mine")


async def test_tenants_token_sees_only_its_own_jobs():
    async with dashboard() as rig:
        await rig.send(lane="ours", tenant="acme")
        await rig.send(lane="ours", tenant="acme")
        await rig.send(lane="secret-lane", tenant="globex")
        text = await rig.token(Role.VIEWER, tenants=["acme"])
        async with signed_in(rig, text) as http:
            page = (await http.get("/ui")).text
            assert "waiting <b>2</b>" in page
            assert "secret-lane" not in page
            assert "globex" not in page
            for path in ("/ui/lanes", "/ui/gates"):
                assert f'href="{path}"' not in page
                assert (await http.get(path)).status_code == 403


async def test_expired_token_leads_to_the_sign_in_and_is_forgotten():
    async with dashboard() as rig:
        text = await rig.token(Role.VIEWER, expires_at=1)
        async with signed_in(rig, text) as http:
            reply = await http.get("/ui")
            assert reply.status_code == 303
            assert 'headway_token=""; ' in reply.headers["set-cookie"]


@pytest.mark.parametrize(
    ("given", "to"),
    [
        ("/ui/gates?only=shut", "/ui/gates?only=shut"),
        ("https://evil.example", "/ui"),
        ("//evil.example/ui", "/ui"),
        ("/ui//evil.example", "/ui"),
        ("/ui\\evil", "/ui"),
        ("/ui\n", "/ui"),
        ("/v1/jobs", "/ui"),
        ("/uix", "/ui"),
    ],
)
def test_nothing_leads_out_of_the_dashboard(given: str, to: str):
    assert inside(given) == to


async def test_actions_are_in_the_trail_in_the_tokens_name():
    async with dashboard() as rig:
        await declare(rig)
        async with signed_in(rig, Role.OPERATOR) as http:
            reply = await do(http, "/ui/-/do/close-gate?gate=lines", reason="a fire")
            assert reply.status_code == 303
            assert "lines is closed." in (await http.get(reply.headers["location"])).text
        (line,) = (await rig.store.read(TrailQuery(target="lines", limit=1))).rows
        assert (line.author, line.reason) == ("operator", "a fire")
