"""What the dashboard withholds: secrets, pages of ended tokens, data beyond its size limits."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from fastapi import Request, Response

from headway.contract.definitions import CloseGate, DefineRequest, RevokeToken, Role
from headway.contract.views import TokensQuery
from headway.web import dashboard as dashboard_module
from headway.web import feed
from headway.web.sign_in import keep_token, leave_message
from tests.server.rig import LIMIT_S
from tests.servers.stores import DURABLE, NewUrl
from tests.web.rig import dashboard, do, form_of, signed_in
from tests.web.test_web_access import declare
from tests.web.test_web_jobs import Worker
from tests.web.test_web_live import LIVE, messages

SHOWN = "password=hunter2"


async def test_secrets_in_errors_reasons_and_the_trail_are_masked_on_every_page():
    async with dashboard() as rig, signed_in(rig, Role.OPERATOR) as http:
        worker = Worker(rig)
        made = await rig.send(lane="mail")
        await worker.kill("mail", f"Traceback\nError: {SHOWN}", reason=SHOWN)
        digest = (await http.get("/ui/dead")).text.partition("error=")[2][:12]
        seen = [
            (await http.get(path)).text for path in ("/ui/jobs", f"/ui/jobs/{made}", "/ui/dead")
        ]
        seen.append((await http.get(f"/ui/dead?error={digest}")).text)
        await do(http, f"/ui/-/do/retry-job?job={made}", reason=SHOWN)
        seen.append((await http.get("/ui/trail")).text)
        for page in seen:
            assert "hunter2" not in page
            assert "password=[hidden]" in page
        # The timeline of its next life shows the error of the previous run.
        assert "hunter2" not in (await http.get(f"/ui/jobs/{made}")).text


async def test_secrets_in_the_reasons_of_closed_gates_are_masked_on_every_page():
    async with dashboard() as rig, signed_in(rig, Role.OPERATOR) as http:
        await declare(rig, "lines", 1)
        await rig.send(lane="calls", gates=["lines"])
        await rig.send(lane="mail")
        items = tuple(CloseGate(name=one, reason=SHOWN) for one in ("lines", "lane:mail"))
        await rig.store.define(DefineRequest(items=items, author="a test"))
        for path in (
            "/ui",
            "/ui/gates?gate=lines",
            "/ui/gates?gate=lane:mail",
            "/ui/lanes?lane=mail",
        ):
            page = (await http.get(path)).text
            assert "hunter2" not in page
            assert "password=[hidden]" in page


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_token_cookie_is_secure_if_the_server_is_reached_over_https(scheme: str):
    scope = {"type": "http", "scheme": scheme, "path": "/ui", "headers": [], "query_string": b""}
    reply = Response()
    keep_token(Request({**scope, "server": ("headway.example", 443)}), reply, "hw_x")
    assert ("Secure" in reply.headers["set-cookie"]) == (scheme == "https")


async def test_open_page_ends_with_its_token():
    with patch.object(dashboard_module, "QUIET_S", 0.05):
        async with dashboard(events_each_s=0.01) as rig:
            text = await rig.token(Role.VIEWER, name="the visitor")
            async with signed_in(rig, text) as http:
                async with http.stream("GET", "/ui/gates", headers=LIVE) as reply:
                    found = messages(reply)
                    await anext(found)
                    tokens = await rig.store.read(TokensQuery())
                    (id_,) = (one.spec.id for one in tokens if one.spec.name == "the visitor")
                    revoke = RevokeToken(id=id_)
                    await rig.store.define(DefineRequest(items=(revoke,), author="a test"))
                    async with asyncio.timeout(LIMIT_S):
                        async for _ in found:
                            pass
                away = await http.get("/ui/gates")
                assert away.status_code == 303
                asked = (await http.get(away.headers["location"])).text
                assert "Your token has ended or was revoked: nothing was changed." in asked
                assert 'name="token"' in asked
                assert "autofocus" in asked


async def test_number_of_live_pages_is_bounded():
    with patch.object(feed, "MOST_WATCHERS", 1):
        async with (
            dashboard(tokens=False) as rig,
            signed_in(rig, None) as http,
            http.stream("GET", "/ui/gates", headers=LIVE) as reply,
        ):
            await anext(messages(reply))
            refused = await http.get("/ui/lanes", headers=LIVE)
            assert refused.status_code == 429
            assert "1 pages are already open" in refused.json()["wrong"]


async def test_result_of_an_action_is_shown_once():
    async with dashboard(tokens=False) as rig, signed_in(rig, None) as http:
        await declare(rig, "lines")
        await do(http, "/ui/-/do/close-gate?gate=lines")
        assert "lines is closed." in (await http.get("/ui/gates")).text
        assert "lines is closed." not in (await http.get("/ui/gates")).text


def test_message_for_the_next_page_fits_into_a_cookie():
    scope = {"type": "http", "scheme": "http", "path": "/ui", "headers": [], "query_string": b""}
    reply = Response()
    leave_message(Request(scope), reply, "\N{GRINNING FACE}" * 512 + " is closed.")
    assert len(reply.headers["set-cookie"]) < 4_000


@pytest.mark.parametrize("kind", DURABLE)
async def test_value_that_no_store_takes_is_refused(kind: str, new_url: NewUrl):
    async with dashboard(new_url(kind)) as rig, signed_in(rig, Role.OPERATOR) as http:
        for path in ("lanes?lane", "gates?gate", "jobs?subject", "trail?target"):
            reply = await http.get(f"/ui/{path}=%00")
            assert (reply.status_code, "contains NUL" in reply.text) == (422, True)
        for action in ("set-lane-concurrency?lane", "set-gate-capacity?gate"):
            assert (await http.get(f"/ui/-/do/{action}=%00")).status_code == 422
        form = await form_of(http, "/ui/-/do/pause-lane?lane=mail")
        reply = await http.post("/ui/-/do/pause-lane", data={**form, "lane": "\0"})
        assert reply.status_code == 422


async def test_malformed_or_too_large_form_is_refused():
    async with dashboard(tokens=False) as rig, signed_in(rig, None) as http:
        await declare(rig, "lines")
        path = "/ui/-/do/close-gate"
        form = await form_of(http, f"{path}?gate=lines")
        with patch.object(dashboard_module, "MOST_FORM", 1_000):
            reply = await http.post(path, data={**form, "reason": "y" * 1_000})
            assert reply.status_code == 422
        for more in ({"json": form}, {"data": form, "files": {"f": b""}}, {"content": b"\xff"}):
            assert (await http.post(path, **more)).status_code == 422
        assert (await http.post(path, data={**form, "reason": "fine"})).status_code == 303
