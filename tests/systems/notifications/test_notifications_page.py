"""The dashboard's pages of notifications: what they show, their actions, and access by role."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import httpx
from fastapi import FastAPI

from headway.contract.definitions import Role
from headway.contract.views import GatesQuery
from headway.server.build import build
from headway.server.service import Service
from headway.systems.notifications.notification import Channel
from headway.systems.notifications.sender import Refused
from headway.web.dashboard import add_dashboard
from tests.bridges.cassandra.fake_link import FakeLink
from tests.bridges.cassandra.world import SETTINGS
from tests.server import rig as server_rig
from tests.systems.notifications.notify_rig import NotifyRig, notifying
from tests.web.rig import HOSTILE, do, signed_in
from tests.web.test_web_pages import Tags, plain

PAGE = "/ui/notifications"
TEMPLATES = "/ui/notifications/templates"


@asynccontextmanager
async def operating(
    tmp_path: Path, url: str = "memory://", *, work: bool = True, **settings: object
) -> AsyncIterator[tuple[NotifyRig, httpx.AsyncClient]]:
    """Run the complete system with a dashboard, and an operator's browser."""

    def with_dashboard(service: Service, systems: list[object]) -> FastAPI:
        app = build(service, systems)
        add_dashboard(app, service, systems)
        return app

    with patch.object(server_rig, "build", with_dashboard):
        async with (
            notifying(tmp_path, url, work=work, tokens=True, **settings) as one,
            signed_in(one.rig, Role.OPERATOR) as http,
        ):
            yield one, http


async def text_of(http: httpx.AsyncClient, path: str, **params: str) -> str:
    reply = await http.get(path, params=params)
    assert reply.status_code == 200, reply.text
    return plain(reply.text)


async def test_timeline_shows_the_outcome_of_each_and_why(tmp_path):
    async with operating(tmp_path) as (one, http):
        await one.ada(preferences={"opt_out": ["sms"], "quiet_hours": "22:00-07:00"})
        sent = await one.send(category="otp")
        await one.becomes(sent, "SENT")
        one.email.answers = [Refused("550 no such user")]
        await one.becomes(await one.send(category="alert"), "FAILED")
        text = await text_of(http, PAGE, recipient="ada")
        assert text.index("failed alert") < text.index("sent otp")
        assert "550 no such user" in text
        assert "ada@example.org" in text
        assert "quiet 22:00-07:00" in text
        assert "Opted out ofsms" in text
        main = await text_of(http, PAGE)
        assert "Sent1" in main.replace(" ", "")
        assert "Failed1" in main.replace(" ", "")
        assert "otp" in await text_of(http, PAGE, channel="email")
        assert "otp" not in await text_of(http, PAGE, channel="push")
        failed = await text_of(http, PAGE, status="FAILED")
        assert "no such user" in failed
        assert "otp" not in failed
        only = await text_of(http, PAGE, status="SENT", channel="email")
        assert "otp" in only
        assert "no such user" not in only


async def test_waiting_one_is_cancelled_and_a_sent_one_has_no_button(tmp_path):
    async with operating(tmp_path, work=False) as (one, http):
        await one.ada()
        id_ = await one.send()
        page = (await http.get(PAGE, params={"recipient": "ada"})).text
        assert f"notification={id_}" in page
        reply = await do(http, f"/ui/-/do/notification-cancel?notification={id_}")
        assert reply.status_code == 303
        assert (await one.get(id_))["status"] == "CANCELLED"
        page = (await http.get(PAGE, params={"recipient": "ada"})).text
        assert f"notification={id_}" not in page
        assert "cancelled" in plain(page)


async def test_closed_channel_is_shown_first_and_opened(tmp_path):
    async with operating(tmp_path, work=False) as (one, http):
        await one.ada()
        await one.send()
        gate = Channel.EMAIL.slots
        await do(http, f"/ui/-/do/close-gate?gate={gate}", reason="429 of the provider")
        text = await text_of(http, PAGE)
        assert text.index("email is closed by operator") < text.index("Queued")
        assert "429 of the provider" in text
        assert "1 wait" in text
        await do(http, f"/ui/-/do/open-gate?gate={gate}")
        assert "email is closed by operator" not in await text_of(http, PAGE)
        (state,) = (await one.store.read(GatesQuery(names=(gate,)))).rows
        assert state.closed_until is None


async def test_rate_of_a_channel_is_shown_beside_its_limit(tmp_path):
    limits = {"email": {"rate": 30, "per": "1m", "at_once": 7}}
    async with operating(tmp_path, channels=limits) as (one, http):
        await one.ada()
        await one.becomes(await one.send(), "SENT")
        text = await text_of(http, PAGE)
        assert "of 30 in 1m" in text
        assert "of 7 at once" in text


async def test_backlog_of_the_history_is_shown(tmp_path):
    async with operating(tmp_path, work=False) as (one, http):
        await one.ada()
        assert "History" not in await text_of(http, PAGE)
    link, kept = FakeLink(SETTINGS.model_copy(update={"history": True})), tmp_path / "kept"
    kept.mkdir()
    async with operating(kept, work=False, cassandra=link) as (one, http):
        await one.ada()
        await one.ok("DELETE", f"/notifications/{await one.send()}")
        assert "History1to be written" in await text_of(http, PAGE)


async def test_template_is_previewed_as_text_and_errors_are_shown(tmp_path):
    evil = "<script>window.evil=1</script>"
    forms = {
        "title": "Hi {{ name }}",
        "text": "Hello {{ name }}",
        "html": f"<b>{{{{ name }}}}</b>{evil}",
    }
    async with operating(tmp_path, work=False) as (one, http):
        body = {"id": "hello", "channels": {"email": forms, "default": {"text": "plain"}}}
        await one.ok("POST", "/message-templates", body, 201)
        assert "hello" in await text_of(http, TEMPLATES)
        source = (await http.get(TEMPLATES, params={"template": "hello"})).text
        assert "Hello {{ name }}" in plain(source)
        data = json.dumps({"name": "Ada <img src=x>"})
        asked = {"template": "hello", "channel": "email", "data": data}
        shown = await http.get(TEMPLATES, params=asked)
        for page in (source, shown.text):
            seen = Tags(page)
            assert seen.scripts == 1
            assert not {"img", "iframe", "b"} & seen.names
        assert "Hello Ada <img src=x>" in plain(shown.text)
        assert "<b>Ada &lt;img src=x&gt;</b>" in plain(shown.text)
        policy = shown.headers["content-security-policy"]
        assert policy == (await http.get("/ui")).headers["content-security-policy"]
        for given, told in (
            ("{}", "'name' is undefined"),
            ("[]", "not a JSON object"),
            ("{", "not a JSON object"),
            ('{"name": 1e400}', "not a JSON object"),
        ):
            wrong = await text_of(http, TEMPLATES, **{**asked, "data": given})
            assert told in wrong
        nowhere = await text_of(http, TEMPLATES, **{**asked, "channel": "pigeon"})
        assert "no such channel" in nowhere
        assert (await http.get(TEMPLATES, params={"template": "none"})).status_code == 404


async def test_edited_template_is_previewed_in_its_new_form_and_a_long_one_is_cut(tmp_path):
    async with operating(tmp_path, work=False) as (one, http):
        body = {"id": "t", "channels": {"default": {"text": "first"}}}
        await one.ok("POST", "/message-templates", body, 201)
        asked = {"template": "t", "channel": "sms"}
        assert "first" in await text_of(http, TEMPLATES, **asked)
        change = {"channels": {"default": {"text": "second {{ 'x' * 30000 }}"}}}
        await one.ok("PATCH", "/message-templates/t", change)
        text = await text_of(http, TEMPLATES, **asked)
        assert "second" in text
        assert "first" not in text
        assert "… and more" in text
        assert "x" * 20_001 not in text


async def test_viewer_sees_no_button_and_other_tokens_no_page(tmp_path):
    async with operating(tmp_path, work=False) as (one, http):
        await one.ada()
        id_ = await one.send()
        assert "data-ask" in (await http.get(PAGE)).text
        async with signed_in(one.rig, Role.VIEWER) as viewer:
            for path in (PAGE, f"{PAGE}?recipient=ada", TEMPLATES):
                page = await viewer.get(path)
                assert page.status_code == 200
                assert "data-ask" not in page.text
            form = f"/ui/-/do/notification-cancel?notification={id_}"
            assert (await viewer.get(form)).status_code == 403
        async with signed_in(one.rig, Role.PRODUCER) as producer:
            text = await text_of(producer, PAGE, recipient="ada")
            assert "ada@example.org" not in text
            assert "at once" not in await text_of(producer, PAGE)
            assert (await producer.get(TEMPLATES)).status_code == 403
        for scope in ({"tenants": ["acme"]}, {"lanes": ["other"]}):
            token = await one.rig.token(Role.OPERATOR, **scope)
            async with signed_in(one.rig, token) as other:
                assert PAGE not in (await other.get("/ui")).text
                for path in (PAGE, f"{PAGE}?recipient=ada", TEMPLATES, form):
                    assert (await other.get(path)).status_code == 403


async def test_hostile_texts_are_shown_as_text(tmp_path):
    async with operating(tmp_path, work=False) as (one, http):
        await one.ada(name="<img src=x>")
        for i, evil in enumerate(HOSTILE):
            source = "{% raw %}" + evil.replace("{%", "(").replace("%}", ")") + "{% endraw %}"
            body = {"id": f"t{i}", "name": f"n {i}", "channels": {"default": {"text": source}}}
            await one.ok("POST", "/message-templates", body, 201)
            gate = Channel.EMAIL.slots
            await one.send(text=evil, title=evil)
            closing = {"gate": gate, "reason": evil}
            await one.rig.call(Role.OPERATOR, "POST", "/v1/closures", closing)
            paths: list[tuple[str, dict[str, str]]] = [(PAGE, {}), (PAGE, {"recipient": "ada"})]
            paths += [
                (PAGE, {"recipient": evil}),
                (PAGE, {"channel": evil, "status": evil}),
                (TEMPLATES, {}),
            ]
            paths += [(TEMPLATES, {"template": f"t{i}", "channel": "sms", "data": evil})]
            paths += [(TEMPLATES, {"template": f"t{i}", "channel": "sms"})]
            for path, query in paths:
                reply = await http.get(path, params=query)
                assert reply.status_code == 200, (path, query)
                seen = Tags(reply.text)
                assert seen.scripts == 1
                assert "img" not in seen.names
                assert not [name for name in seen.attributes if name.startswith("on")]
