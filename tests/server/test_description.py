"""The API description is complete: effect, parameters, replies and errors of each operation."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

import pytest
from jsonschema_rs import Draft202012Validator

from headway.contract.definitions import Role
from headway.server.api_docs import api_page
from headway.server.build import ROUTERS, build
from headway.server.service import ServerOptions, Service
from headway.stores import open_store
from tests.server.rig import serving
from tests.servers.browser import browsing


def description() -> dict[str, Any]:
    return build(Service(open_store("memory://"), ServerOptions())).openapi()


WHOLE = description()


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in WHOLE["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


OPERATIONS = dict(operations())
OURS = {name: one for name, one in OPERATIONS.items() if name.split(" ")[1].split("/")[1] == "v1"}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its reference resolved."""
    while "$ref" in schema:
        found: Any = WHOLE
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, operation in OPERATIONS.items():
        content = operation.get("requestBody", {}).get("content", {})
        # The body of a webhook is for its provider to describe.
        if "application/json" in content and "/hooks/" not in name:
            yield name, content["application/json"]


BODY_OF = dict(bodies())


def examples_of(media: dict[str, Any]) -> list[Any]:
    schema = resolved(media.get("schema", {}))
    named = [one["value"] for one in media.get("examples", {}).values()]
    single = [media["example"]] if "example" in media else []
    return [*named, *single, *schema.get("examples", [])]


def test_server_serves_the_routes_of_its_routers_without_rebuilding_them() -> None:
    app = build(Service(open_store("memory://"), ServerOptions()))
    served = {id(route) for route in app.router.routes}
    assert {id(route) for one in ROUTERS for route in one.routes} <= served


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_documents_its_purpose_and_results(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation["summary"]
    assert len(operation["description"]) > 20
    assert "Raises:" not in operation["description"]
    assert "_v1_" not in operation["operationId"]  # a name for generated clients
    assert operation["tags"]
    assert {"4XX", "5XX"} <= operation["responses"].keys()
    for status in ("4XX", "5XX"):
        content = operation["responses"][status]["content"]
        assert content.keys() == {"application/problem+json"}
    assert any(status.startswith("2") for status in operation["responses"])
    ids = [one["operationId"] for one in OPERATIONS.values()]
    assert ids.count(operation["operationId"]) == 1


@pytest.mark.parametrize("name", OURS)
def test_every_reply_has_a_schema(name: str) -> None:
    for status, reply in OURS[name]["responses"].items():
        if status.startswith("2"):
            assert resolved(reply["content"]["application/json"]["schema"]), status


@pytest.mark.parametrize("name", OURS)
def test_every_parameter_with_an_unclear_name_is_described(name: str) -> None:
    for one in OURS[name].get("parameters", []):
        assert one.get("description") or one["in"] == "path", one["name"]


@pytest.mark.parametrize("name", BODY_OF)
def test_every_body_has_an_example_that_fits_it(name: str) -> None:
    media = BODY_OF[name]
    found = examples_of(media)
    assert found
    document = {**media["schema"], "components": WHOLE["components"]}
    for example in found:
        Draft202012Validator(document).validate(example)


async def test_examples_of_jobs_are_accepted_by_a_server() -> None:
    async with serving() as rig:
        for name, body in (
            ("numbers", {"kind": "slots", "capacity": 1}),
            ("customer:{phone}", {"kind": "rate", "limit": 7, "per": "1h"}),
        ):
            declared = await rig.call(Role.ADMIN, "PUT", f"/v1/gates/{name}", body)
            assert declared.status_code == 200
        for name in ("POST /v1/jobs", "POST /v1/moves", "POST /v1/closures", "POST /v1/tokens"):
            method, path = name.split(" ")
            for example in examples_of(BODY_OF[name]):
                reply = await rig.call(Role.ADMIN, method, path, example)
                assert reply.status_code in {200, 201}, (example, reply.text)
        for name in ("PUT /v1/lanes/{name}", "PUT /v1/gates/{name}", "PUT /v1/timetable/{name}"):
            method, path = name.split(" ")
            for n, example in enumerate(examples_of(BODY_OF[name])):
                reply = await rig.call(Role.ADMIN, method, path.replace("{name}", f"x{n}"), example)
                assert reply.status_code == 200, (example, reply.text)


class Links(HTMLParser):
    """The links and resources of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses |= {
            value or "" for name, value in attrs if name in {"href", "src", "action"}
        }


async def test_api_page_shows_every_operation_and_names_no_other_host() -> None:
    async with serving(tokens=False, docs=True) as rig:
        reply = await rig.http.get("/docs")
    assert reply.status_code == 200
    found = Links(reply.text)
    assert found.addresses == {"/openapi.json"}
    assert found.tags.isdisjoint({"script", "link", "img", "iframe", "form"})
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "http" not in policy
    assert "url(" not in reply.text.split("</style>")[0]
    for methods in WHOLE["paths"].values():
        for operation in methods.values():
            assert escape(operation["summary"]) in reply.text
    assert all(f"<code>{escape(path)}</code>" in reply.text for path in WHOLE["paths"])


async def test_api_page_is_absent_unless_enabled() -> None:
    async with serving(tokens=False) as rig:
        assert (await rig.http.get("/docs")).status_code == 404


def test_api_page_escapes_descriptions() -> None:
    evil = "<script>alert(1)</script>"
    operation: dict[str, Any] = {"summary": evil, "description": evil, "tags": [evil]}
    operation["responses"] = {evil: {"description": evil}}
    operation["parameters"] = [
        {"name": evil, "in": evil, "description": evil, "schema": {"x": evil}}
    ]
    page = api_page(
        {
            "info": {"title": evil, "version": evil, "description": evil},
            "paths": {evil: {evil: operation}},
            "components": {"schemas": {evil: {"title": evil}}},
        }
    )
    assert "<script" not in page.lower()


@pytest.mark.slow
async def test_browser_shows_the_api_page_and_contacts_no_other_host() -> None:
    async with serving(tokens=False, docs=True) as rig, browsing() as browser:
        page = await browser.new_page()
        asked: list[str] = []
        wrong: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: wrong.append(message.text))
        await page.goto(f"{rig.url}/docs")
        await page.locator("summary", has_text="/v1/claims").first.click()
        # The stylesheet is the page's own, and its content security policy permits it.
        assert await page.evaluate("getComputedStyle(document.body).maxWidth") != "none"
        assert {urlsplit(url).netloc for url in asked} == {urlsplit(rig.url).netloc}
        assert [line for line in wrong if "favicon" not in line] == []
