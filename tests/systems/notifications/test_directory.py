"""Recipients and message templates over HTTP: stored, changed, imported, previewed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.contract.definitions import Role
from tests.server.problems import problem
from tests.systems.notifications.notify_rig import notifying

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


async def test_recipient_is_stored_changed_and_loses_an_address_by_null(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada(tz="Europe/Berlin", preferences={"opt_out": ["sms", "*:news"]})
        ada = await notify.ok("GET", "/recipients/ada")
        assert (ada["name"], ada["tz"], ada["version"]) == ("ada", "Europe/Berlin", 1)
        assert ada["preferences"] == {"opt_out": ["sms", "*:news"], "quiet_hours": None}
        ada = await notify.ok("PATCH", "/recipients/ada", {"email": None, "devices": []})
        assert (ada["email"], ada["devices"], ada["phone"]) == (None, [], "+14155550100")
        problem(await notify.call("PATCH", "/recipients/ada", {"tz": None}), 422, "invalid_value")
        problem(await notify.call("POST", "/recipients", {"id": "ada"}), 409, "id_conflict")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("tz", "Mars/Phobos", "Mars/Phobos"),
        ("email", "ada", "not an e-mail address"),
        ("email", "Ada <ada@example.org>", "not an e-mail address"),
        ("email", "böb@example.org", "letters other than ASCII before or after the @"),
        ("email", "bob@exämple.org", "letters other than ASCII before or after the @"),
        ("email", "bob@example..org", "not exactly one address"),
        ("email", "bob@" + "a" * 250 + ".org", "too long"),
        ("phone", "0415", "E.164"),
        ("apprise", "nothing://", "apprise"),
        ("webhook_url", "ftp://example.org", "http"),
        ("preferences", {"opt_out": ["fax"]}, "not an opt-out"),
        ("preferences", {"opt_out": ["*"]}, "not an opt-out"),
        ("preferences", {"quiet_hours": "22-7"}, "22"),
        ("preferences", {"quiet": "22:00-07:00"}, "quiet"),
    ],
)
async def test_unusable_field_of_a_recipient_is_refused_by_name(
    tmp_path: Path, field: str, value: object, said: str
):
    async with notifying(tmp_path, work=False) as notify:
        reply = await notify.call("POST", "/recipients", {"id": "bo", field: value})
        assert reply.status_code == 422
        assert field in reply.text
        assert said in reply.text


async def test_recipients_are_imported_and_reported_row_by_row(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        csv = "id,email,devices,preferences\n"
        csv += 'ada,ada@example.org,d1;d2,"{""opt_out"": [""sms""]}"\nbo,,,\n'
        head = {"Content-Type": "text/csv"}
        told = await notify.call("POST", "/recipients/import", content=csv, headers=head)
        assert told.json()["added"] == 2
        ada = await notify.ok("GET", "/recipients/ada")
        assert (ada["devices"], ada["preferences"]["opt_out"]) == (["d1", "d2"], ["sms"])
        csv = "id,email\nada,x@example.org\ncy,nothing\n"
        told = await notify.call("POST", "/recipients/import", content=csv, headers=head)
        assert "row 3" in problem(told, 422, "invalid_value")["detail"]
        assert (await notify.ok("GET", "/recipients/ada"))["email"] == "ada@example.org"


async def test_secret_of_an_apprise_url_is_shown_only_to_definers(tmp_path: Path):
    async with notifying(tmp_path, work=False, tokens=True) as notify:
        await notify.ada(apprise="mailto://me:secret@example.org")
        told = await notify.rig.call(Role.VIEWER, "GET", "/recipients/ada")
        assert told.json()["apprise"] == "mailto://…"
        reply = await notify.call("PATCH", "/recipients/ada", {"apprise": "mailto:secret"})
        assert "secret" not in reply.text


async def test_template_is_rendered_by_the_preview_and_escaped_only_in_html(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        email = {
            "title": "Hi {{ name }}\nthere",
            "text": "Dear {{ name }}",
            "html": "<p>{{ name }}</p>",
        }
        body = {"id": "hello", "channels": {"email": email, "default": {"text": "{{ name }}"}}}
        await notify.ok("POST", "/message-templates", body, 201)
        asked = {"channel": "email", "data": {"name": "<Ada>"}}
        shown = await notify.ok("POST", "/message-templates/hello/preview", asked)
        assert shown == {
            "title": "Hi <Ada> there",
            "text": "Dear <Ada>",
            "html": "<p>&lt;Ada&gt;</p>",
        }
        asked = {"channel": "sms", "data": {"name": "Ada"}}
        shown = await notify.ok("POST", "/message-templates/hello/preview", asked)
        assert shown == {"title": "", "text": "Ada", "html": None}
        reply = await notify.call("POST", "/message-templates/hello/preview", {"channel": "email"})
        told = problem(reply, 422, "invalid_value")["detail"]
        assert "hello, email.title, line 1: 'name' is undefined" in told
        await notify.ok("PATCH", "/message-templates/hello", {"channels": {"email": email}})
        reply = await notify.call("POST", "/message-templates/hello/preview", {"channel": "sms"})
        assert problem(reply, 422, "invalid_value")["detail"] == "hello, sms.text is missing"


@pytest.mark.parametrize("name", ["self", "context", "environment", "args", "kwargs", "data"])
async def test_data_can_have_any_name(tmp_path: Path, name: str):
    async with notifying(tmp_path, work=False) as notify:
        body = {"id": "hello", "channels": {"default": {"text": "Dear {{ who }}"}}}
        await notify.ok("POST", "/message-templates", body, 201)
        asked = {"channel": "sms", "data": {"who": "Ada", name: "x"}}
        shown = await notify.ok("POST", "/message-templates/hello/preview", asked)
        assert shown["text"] == "Dear Ada"


@pytest.mark.parametrize("form", ["title", "text", "html"])
async def test_lone_surrogate_is_a_fault_of_the_template(tmp_path: Path, form: str):
    async with notifying(tmp_path, work=False) as notify:
        email = {"text": "x", form: "{{ '\\ud83d' }}"}
        body = {"id": "bad", "channels": {"email": email}}
        await notify.ok("POST", "/message-templates", body, 201)
        reply = await notify.call("POST", "/message-templates/bad/preview", {"channel": "email"})
        told = problem(reply, 422, "invalid_value")["detail"]
        assert told == f"bad, email.{form}: the result contains half of a surrogate pair"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("a\n{% if %}", "email.text, line 2"),
        ("{{ name", "email.text, line 1"),
        ("{% nothing %}", "unknown tag 'nothing'"),
    ],
)
async def test_template_with_a_syntax_error_is_refused_with_its_line(
    tmp_path: Path, source: str, said: str
):
    async with notifying(tmp_path, work=False) as notify:
        body = {"id": "bad", "channels": {"email": {"text": source}}}
        reply = await notify.call("POST", "/message-templates", body)
        assert reply.status_code == 422
        assert said in reply.text


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ 'a' * 99999999999 }}",
        "{{ 9 ** 999999999 }}",
        "{% for a in range(90000) %}{% for b in range(90000) %}xxxxxxxx{% endfor %}{% endfor %}",
        "{{ names.append(1) }}",
        "{% include 'x' %}",
    ],
)
async def test_template_cannot_leave_its_sandbox_or_fill_memory(tmp_path: Path, source: str):
    async with notifying(tmp_path, work=False) as notify:
        body = {"id": "bad", "channels": {"email": {"text": f"a\n{source}"}}}
        await notify.ok("POST", "/message-templates", body, 201)
        asked = {"channel": "email", "data": {"names": []}}
        reply = await notify.call("POST", "/message-templates/bad/preview", asked)
        told = problem(reply, 422, "invalid_value")["detail"]
        assert "bad, email.text" in told


async def test_templates_are_imported_with_their_json(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        csv = 'id,channels\nhello,"{""default"": {""text"": ""Hi""}}"\n'
        head = {"Content-Type": "text/csv"}
        told = await notify.call("POST", "/message-templates/import", content=csv, headers=head)
        assert told.json()["added"] == 1, told.text
        csv = 'id,channels\nhello,"{""default"": {""text"": ""{{""}}"\n'
        told = await notify.call("POST", "/message-templates/import", content=csv, headers=head)
        assert "default.text, line 1" in problem(told, 422, "invalid_value")["detail"]
