"""Lead intake: once for each key, validated by templates, within a token's scope."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.contract.definitions import Role
from headway.core.check import LATEST
from headway.core.errors import InvalidValue
from headway.systems.calls.intake import LeadBody, LeadRecipe, _check_payload
from headway.systems.calls.source_table.settings import LeadRow
from headway.systems.calls.template import Template
from tests.systems.calls.calls_rig import PHONE, Calls, calling

LATER = "2027-06-01T10:00:00Z"
LATER_AT = 1_811_844_000_000


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Calls]:
    async with calling(tmp_path, work=False) as found:
        yield found


def lead(**more: object) -> dict[str, object]:
    return {"phone": PHONE, "tz": "Europe/Berlin", "reseller": "acme", **more}


async def test_key_creates_one_lead_however_often_it_is_sent(calls: Calls) -> None:
    first = await calls.call("POST", "/leads", lead(key="order-17"))
    again = await calls.call("POST", "/leads", lead(key="order-17"))
    other = await calls.call("POST", "/leads", lead(key="order-17", payload={"n": 1}))
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.json()["created"]
    assert not again.json()["created"]
    assert first.json()["id"] == again.json()["id"]
    assert other.json()["code"] == "key_conflict"
    assert first.json()["status"] == "BACKLOG"


async def test_aliases_for_reseller_and_key_are_understood(calls: Calls) -> None:
    body = {"phone": PHONE, "tz": "UTC", "reseller_id": "acme", "request_id": "r1"}
    first = await calls.call("POST", "/leads", body)
    again = await calls.call("POST", "/leads", lead(tz="UTC", key="r1"))
    told = await calls.get_lead(first.json()["id"])
    assert again.json()["id"] == told["id"]
    assert (told["reseller"], told["key"]) == ("acme", "r1")


async def test_list_is_answered_in_order(calls: Calls) -> None:
    phones = [f"+1415555{n:04}" for n in range(1, 31)]
    reply = await calls.call("POST", "/leads", [lead(phone=one) for one in phones])
    assert reply.status_code == 200
    ids = [one["id"] for one in reply.json()["leads"]]
    assert [(await calls.get_lead(one))["phone"] for one in ids] == phones


async def test_repeated_list_returns_the_state_of_its_leads(calls: Calls) -> None:
    leads = [lead(key=f"order-{n}") for n in range(3)]
    first = (await calls.call("POST", "/leads", leads)).json()["leads"]
    await calls.call("DELETE", f"/leads/{first[1]['id']}")
    later = [lead(key=one["key"], next_attempt_at="3d") for one in leads]
    # The last key occurs twice in it.
    again = (await calls.call("POST", "/leads", [*later, later[2]])).json()["leads"]
    first.append(first[2])
    assert [one["id"] for one in again] == [one["id"] for one in first]
    assert [one["due_at"] for one in again] == [one["due_at"] for one in first]
    assert [one["status"] for one in again] == ["BACKLOG", "FINISHED", "BACKLOG", "BACKLOG"]
    assert not any(one["created"] for one in again)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"phone": "4155550100"}, "phone"),
        ({"tz": "Europe/Berln"}, "Europe/Berlin"),
        ({"next_attempt_at": 1_893_456_000}, "pass milliseconds, not seconds"),
        ({"next_attempt_at": True}, "a time is text or milliseconds since 1970"),
        ({"next_attempt_at": "tomorrow"}, '"body.next_attempt_at: the instant'),
        ({"template": "nowhere"}, "there is no template 'nowhere'"),
        ({"reseller": None}, "has no reseller"),
        ({"fone": PHONE}, "no such field"),
        ({"reporting_webhook_url": "https://example.org/x"}, "has no keys to sign reports with"),
    ],
)
async def test_invalid_lead_is_refused_with_a_reason(
    calls: Calls, wrong: dict[str, object], words: str
) -> None:
    reply = await calls.call("POST", "/leads", lead(**wrong))
    assert reply.status_code == 422
    assert words in reply.text
    assert (await calls.ask("/leads"))["rows"] == []


async def test_payload_is_validated_against_the_templates_schema(calls: Calls) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    await calls.template("greeting", payload_schema=schema)
    good = await calls.call("POST", "/leads", lead(template="greeting", payload={"name": "Ada"}))
    bad = await calls.call("POST", "/leads", lead(template="greeting", payload={"name": 7}))
    none = await calls.call("POST", "/leads", lead(template="greeting"))
    assert (good.status_code, bad.status_code, none.status_code) == (201, 422, 422)
    assert "payload.name" in bad.json()["detail"]
    many = await calls.call("POST", "/leads", [lead(), lead(template="greeting", payload={})])
    assert many.json()["lead"] == 1
    assert len((await calls.ask("/leads"))["rows"]) == 1


@pytest.mark.parametrize(
    ("schema", "payload", "words"),
    [
        ({"properties": {"name": {"$ref": "#/$defs/nmae"}}}, {"name": "Ada"}, "'/$defs/nmae'"),
        ({"$ref": "#"}, {}, "nested too deep"),
        ({"multipleOf": 0.5}, 10**400, "too large"),
    ],
)
async def test_lead_whose_payload_the_schema_cannot_check_is_refused(
    calls: Calls, schema: dict[str, object], payload: object, words: str
) -> None:
    await calls.template("greeting", payload_schema=schema)
    reply = await calls.call("POST", "/leads", [lead(), lead(template="greeting", payload=payload)])
    assert reply.status_code == 422, reply.text
    assert words in reply.json()["detail"]
    assert reply.json()["lead"] == 1
    assert (await calls.ask("/leads"))["rows"] == []


NESTED = {"properties": {"code": {"type": "string", "pattern": "^(a+)+$"}}}


async def test_pattern_of_a_schema_takes_linear_time(calls: Calls) -> None:
    """With Python's expressions, each further letter doubled the time, and the server stood."""
    await calls.template("greeting", payload_schema=NESTED)
    for code, status in (("a" * 60, 201), ("a" * 60 + "b", 422), (7, 422)):
        reply = await calls.call(
            "POST", "/leads", lead(template="greeting", payload={"code": code})
        )
        assert reply.status_code == status, code


async def test_unique_items_of_a_schema_are_compared_in_linear_time(calls: Calls) -> None:
    """jsonschema compared each object with all others: 79 s for 4,000, and the server stood."""
    await calls.template("greeting", payload_schema={"uniqueItems": True})
    many: list[object] = [{"n": [n]} for n in range(20_000)]
    same: list[list[object]] = [[*many, many[0]], [1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]]
    different: list[object] = [many, [1, True, "1", None], [0, False, ""], [[], {}], [[1], [[1]]]]
    for payloads, status in ((different, 201), (same, 422)):
        for payload in payloads:
            reply = await calls.call("POST", "/leads", lead(template="greeting", payload=payload))
            assert reply.status_code == status, (str(payload)[:80], reply.text[:200])


DRAFT = "https://json-schema.org/draft/2020-12/schema"


async def test_pattern_means_the_same_at_a_reference_to_the_top(calls: Calls) -> None:
    """At "#", jsonschema changed to the validator that $schema names, with Python's expressions."""
    code = {"pattern": "^a$"}  # in Python it matches before a newline at the end, too
    schema = {"$schema": DRAFT, "properties": {"code": code, "next": {"$ref": "#"}}}
    await calls.template("greeting", payload_schema=schema)
    for text, status in (("a", 201), ("a\n", 422)):
        for payload in ({"code": text}, {"next": {"code": text}}):
            reply = await calls.call("POST", "/leads", lead(template="greeting", payload=payload))
            assert reply.status_code == status, payload


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "nothing"}, "not a valid JSON schema"),
        ({"$ref": "https://example.org/schema.json"}, "another document"),
        ({"allOf": [{"pattern": r"(a)\1"}]}, "backreferences are not supported"),
        ({"not": {"pattern": "(?=a)b"}}, "look-around"),
        ({"pattern": r"^\w{1,255}$"}, "maxLength"),
        ({"properties": {"code": {"$schema": DRAFT, "pattern": "a"}}}, "at the top"),
        ({"patternProperties": {"^(a+)+$": {}}}, "propertyNames"),
    ],
)
async def test_unusable_schema_is_refused_with_the_template(
    calls: Calls, schema: dict[str, Any], words: str
) -> None:
    reply = await calls.call("PUT", "/templates/greeting", {"payload_schema": schema})
    assert reply.status_code == 422
    assert words in reply.text
    # One that was stored by an earlier version refuses leads only.
    stored = Template.model_validate({"name": "greeting", "payload_schema": schema})
    with pytest.raises(InvalidValue, match="cannot check the payload"):
        _check_payload(stored, LeadBody.model_validate(lead(template="greeting", payload={})))


async def test_text_with_a_brace_that_is_no_placeholder_is_refused(calls: Calls) -> None:
    for say in ("Hello {nam", "Hello name}", "Hello {first name}", "Hello {}"):
        reply = await calls.call("PUT", "/templates/greeting", {"say": say})
        assert reply.status_code == 422, say
        assert "say contains a brace outside a placeholder" in reply.json()["detail"]
    assert (await calls.call("GET", "/templates/greeting")).status_code == 404


@pytest.mark.parametrize("url", ["http://[", "https://:80/", "https://example.org:99999/"])
async def test_url_of_a_template_without_a_usable_host_is_refused(calls: Calls, url: str) -> None:
    for name, body in (
        ("fetch", {"fetch": url}),
        ("checks[1].url", {"checks": [{"check": "validity"}, {"check": "http", "url": url}]}),
    ):
        reply = await calls.call("PUT", "/templates/greeting", body)
        assert reply.status_code == 422, reply.text
        assert reply.json()["detail"].startswith(name)


async def test_lead_is_due_at_its_time_or_a_little_later_and_never_before(
    tmp_path: Path,
) -> None:
    async with calling(tmp_path, work=False, settings={"jitter": "200ms"}) as calls:
        leads = [lead(phone=f"+1415555{n:04}", next_attempt_at=LATER) for n in range(200)]
        reply = await calls.call("POST", "/leads", leads)
        spread = [one["due_at"] - LATER_AT for one in reply.json()["leads"]]
        assert min(spread) >= 0
        assert max(spread) <= 200
        assert len(set(spread)) > 50


async def test_lead_without_a_time_is_due_after_its_templates_offset(calls: Calls) -> None:
    await calls.template("slow", initial_offset="2h")
    now = await calls.rig.service.now()
    told = await calls.get_lead(await calls.lead(template="slow"))
    assert 7_200_000 <= told["due_at"] - now < 7_260_000
    assert told["why"].startswith("scheduled")


async def test_token_reaches_only_the_leads_of_its_resellers(calls: Calls) -> None:
    mine = await calls.lead()
    others = await calls.lead(reseller="globex")
    token = await calls.rig.token(Role.OPERATOR, tenants=["acme"])
    assert (await calls.call("GET", f"/leads/{mine}", who=token)).status_code == 200
    for method, path in (
        ("GET", f"/leads/{others}"),
        ("DELETE", f"/leads/{others}"),
        ("POST", f"/leads/{others}/dispatch-now"),
    ):
        assert (await calls.call(method, path, who=token)).status_code == 404
    listed = await calls.rig.ask(token, "/leads")
    assert [one["id"] for one in listed["rows"]] == [mine]
    refused = await calls.call("POST", "/leads", lead(reseller="globex"), who=token)
    assert refused.status_code == 403
    own = await calls.call("POST", "/leads", {"phone": PHONE, "tz": "UTC"}, who=token)
    assert (await calls.get_lead(own.json()["id"]))["reseller"] == "acme"
    for path in ("/numbers", "/templates"):
        assert (await calls.call("GET", path, who=token)).status_code == 403
    body = {"number": "+15550001009", "provider": "twilio", "maximum_channels": 1}
    assert (await calls.call("POST", "/numbers", body, who=token)).status_code == 403


async def test_waiting_lead_is_cancelled_at_once(calls: Calls) -> None:
    waits = await calls.lead(next_attempt_at=LATER)
    reply = await calls.call("DELETE", f"/leads/{waits}")
    assert reply.json() == {"id": waits, "status": "FINISHED", "outcome": "ABORT"}
    assert (await calls.get_lead(waits))["outcome"] == "ABORT"
    assert (await calls.call("DELETE", f"/leads/{waits}")).status_code == 409
    assert (await calls.call("DELETE", "/leads/nothing")).status_code == 404


async def test_leads_are_listed_by_status_reseller_phone_and_outcome(calls: Calls) -> None:
    ada = await calls.lead(next_attempt_at=LATER)
    bob = await calls.lead("+14155550111", reseller="globex")
    await calls.call("DELETE", f"/leads/{ada}")

    async def listed(**asked: str) -> list[str]:
        return [one["id"] for one in (await calls.ask("/leads", **asked))["rows"]]

    assert await listed() == [ada, bob]
    assert await listed(newest="true") == [bob, ada]
    assert await listed(status="BACKLOG") == [bob]
    assert await listed(outcome="ABORT") == [ada]
    assert await listed(reseller="globex") == [bob]
    assert await listed(reseller="globex", phone="+14155550111") == [bob]
    assert await listed(reseller="acme", phone="+14155550111") == []
    alone = await calls.call("GET", "/leads?phone=%2B14155550111")
    assert alone.status_code == 422


async def test_lead_whose_job_cannot_be_created_writes_no_row(tmp_path: Path) -> None:
    async with calling(tmp_path, work=False, settings={"table": {"own": True}}) as calls:
        for wrong, status in (
            ({"payload": "x" * 1_000_000}, 413),
            ({"next_attempt_at": LATEST + 1}, 422),
        ):
            reply = await calls.call("POST", "/leads", [lead(), lead(**wrong)])
            assert reply.status_code == status, reply.text
        assert await table_rows(calls) == []


async def test_leads_written_to_a_table_are_accepted_although_their_lane_is_full(
    tmp_path: Path,
) -> None:
    """A 429 after the commit made callers send them again, and both were called."""
    async with calling(tmp_path, work=False, settings={"table": {"own": True}}) as calls:
        await calls.rig.call(Role.ADMIN, "PUT", "/v1/lanes/calls", {"max_backlog": 1})
        reply = await calls.call("POST", "/leads", [lead(), lead()])
        assert reply.status_code == 200, reply.text
        ids = [one["id"] for one in reply.json()["leads"]]
        assert sorted(row.lead for row in await table_rows(calls)) == sorted(ids)


async def test_reseller_whose_results_could_not_be_reported_is_refused(tmp_path: Path) -> None:
    keys = {"reporting_keys": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}
    async with calling(tmp_path, work=False, settings=keys) as calls:
        url = "https://example.org/results"
        for length, more, status in (
            (498, {"reporting_webhook_url": url}, 201),
            (499, {"reporting_webhook_url": url}, 422),
            (512, {}, 201),
        ):
            reply = await calls.call("POST", "/leads", lead(reseller="r" * length, **more))
            assert reply.status_code == status, reply.text


async def table_rows(calls: Calls) -> list[LeadRow]:
    table = calls.system.context.table
    assert table is not None
    return [row async for page in table.table.pending(ours=True) for row in page]


async def test_row_of_a_table_says_when_it_is_due_and_is_not_spread_again(tmp_path: Path) -> None:
    async with calling(tmp_path, work=False, settings={"jitter": "1h"}) as calls:
        row = LeadRow(id="7", phone=PHONE, tz="Europe/Paris", reseller="acme", due_at=1_000_000)
        recipe = LeadRecipe(context=calls.system.context)
        assert recipe.lead_job(row, job_id=row.lead, key=None).due_at != row.due_at
        assert recipe.job(row).due_at == row.due_at
