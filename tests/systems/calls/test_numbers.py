"""Numbers: their owners and lines, and which changes to them apply at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

import headway as hw
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.views import GatesQuery
from headway.core.errors import StoreUnavailable
from headway.systems.calls import catalogue_routes, make, requeueing
from headway.systems.calls.catalogue import (
    CatalogueContents,
    Number,
    changed_gates,
    gate_layout,
    pool_gate,
    reseller_gate,
)
from headway.systems.calls.template import HoursBody, Template
from headway.systems.directory.database import Directory
from headway.systems.parts import Parts
from headway.systems.telephony.providers import Telephony
from tests.server.rig import serving
from tests.servers.postgres import fresh_database
from tests.servers.stores import SERVERS_SAMPLED, NewUrl
from tests.systems.calls.calls_rig import NUMBER, OTHER, PHONE, Calls, calling

THIRD = "+15550001003"


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Calls]:
    """Run calls that stay connected once they are answered."""
    async with calling(tmp_path, talk="1000000s", post_lost=1.0) as found:
        yield found


async def from_(calls: Calls, lead: str) -> str:
    """Return the number from which a lead is called."""
    told = await calls.until_status(lead, "PROCESSING")

    async def known() -> Any:
        found = await calls.get_lead(lead)
        return found["attempts"] and found["attempts"][-1]["call_id"] and found

    told = await calls.until(known, "a call")
    return str(told["attempts"][-1]["number"])


async def end(calls: Calls, lead: str) -> None:
    """End the call of a lead."""
    attempt = (await calls.get_lead(lead))["attempts"][-1]
    await calls.webhook(f"{lead}:{attempt['run']}", attempt["call_id"], "completed", n=3)


async def test_reseller_is_called_from_its_own_numbers_and_others_from_the_default(
    calls: Calls,
) -> None:
    await calls.number(NUMBER, channels=5)
    await calls.number(OTHER, reseller="acme")
    assert await from_(calls, await calls.lead()) == OTHER
    waits = await calls.lead("+14155550111")
    await calls.until_why(waits, "calls.numbers:acme")
    assert await from_(calls, await calls.lead("+14155550112", reseller="globex")) == NUMBER


async def test_server_without_a_provider_of_calls_says_so_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = Directory(f"sqlite:///{tmp_path}/directory.db")
    parts = Parts(directory=directory, telephony=Telephony({}, {}))
    system, app = make({}, parts), hw.App("memory://")
    system.declare(app)
    await parts.open("http://127.0.0.1")
    async with serving(app=app, systems=[system]):
        assert (
            "no call provider is configured: add a table such as [telephony.twilio]"
            in caplog.messages
        )
    await parts.close()
    await app.store.close()


async def test_lead_without_a_number_waits_and_says_why(calls: Calls) -> None:
    lead = await calls.lead()
    await calls.until_why(lead, "pool calls.numbers has no members")
    await calls.number(NUMBER)
    assert await from_(calls, lead) == NUMBER


async def test_number_with_the_most_free_lines_is_used(calls: Calls) -> None:
    await calls.number(NUMBER, channels=2)
    await calls.number(OTHER, channels=2)
    used = [await from_(calls, await calls.lead(f"+1415555010{n}")) for n in range(4)]
    assert sorted(used) == [NUMBER, NUMBER, OTHER, OTHER]
    assert used[0] != used[1]


async def test_reseller_with_many_leads_does_not_keep_the_only_line(calls: Calls) -> None:
    await calls.number(NUMBER)
    big = [await calls.lead("+14155550200", reseller="big")]
    await from_(calls, big[0])
    big += [await calls.lead(f"+1415555020{n}", reseller="big") for n in range(1, 8)]
    small = [await calls.lead(f"+1415555030{n}", reseller="small") for n in range(2)]
    for lead in (*big[1:], *small):
        await calls.until_why(lead, "1 of 1")
    order: list[str] = []
    waiting, on_the_line = {*big, *small}, big[0]
    while len(order) < 7:
        order.append("big" if on_the_line in big else "small")
        await end(calls, on_the_line)
        waiting.remove(on_the_line)

        async def called() -> Any:
            for lead in waiting:
                attempts = (await calls.get_lead(lead))["attempts"]
                if attempts and attempts[-1]["call_id"]:
                    return lead
            return None

        on_the_line = await calls.until(called, "a next call")
    assert order.count("small") == 2, order


async def test_more_channels_apply_at_once_and_fewer_leave_live_calls_alone(calls: Calls) -> None:
    await calls.number(NUMBER)
    first = await calls.lead()
    await from_(calls, first)
    second = await calls.lead("+14155550101")
    await calls.until_why(second, "1 of 1")
    await calls.change(NUMBER, maximum_channels=2)
    await from_(calls, second)
    await calls.change(NUMBER, maximum_channels=1)
    third = await calls.lead("+14155550102")
    assert (await calls.get_lead(first))["status"] == "PROCESSING"
    await end(calls, first)
    await calls.until_why(third, "1 of 1")
    await end(calls, second)
    await from_(calls, third)
    await calls.audit()


async def test_disabled_number_starts_no_call_and_its_live_calls_continue(calls: Calls) -> None:
    await calls.number(NUMBER, channels=2)
    first = await calls.lead()
    await from_(calls, first)
    await calls.change(NUMBER, status="DISABLED")
    second = await calls.lead("+14155550111")
    await calls.until_why(second, "no member with a capacity above 0")
    assert (await calls.get_lead(first))["status"] == "PROCESSING"
    await end(calls, first)
    assert (await calls.get_lead(first))["outcome"] == "COMPLETED"
    assert (await calls.get_lead(second))["status"] == "BACKLOG"
    await calls.change(NUMBER, status="AVAILABLE")
    assert await from_(calls, second) == NUMBER


async def test_waiting_leads_move_to_the_resellers_own_number_as_soon_as_it_exists(
    calls: Calls,
) -> None:
    lead = await calls.lead()
    await calls.until_why(lead, "calls.numbers has no members")
    await calls.number(OTHER, reseller="acme")
    assert await from_(calls, lead) == OTHER
    waits = await calls.lead("+14155550111")
    await calls.until_why(waits, "calls.numbers:acme")
    await calls.number(NUMBER)
    reply = await calls.call("DELETE", f"/numbers/{OTHER}")
    assert reply.status_code == 204
    assert await from_(calls, waits) == NUMBER
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"


async def test_template_can_have_its_own_pool(calls: Calls) -> None:
    await calls.number(NUMBER, channels=9)
    await calls.template("vip", numbers="gold")
    lead = await calls.lead(template="vip")
    await calls.until_why(lead, "calls.pool:gold has no members")
    await calls.number(OTHER, pool="gold")
    assert await from_(calls, lead) == OTHER
    await end(calls, lead)
    await calls.change(OTHER, pool=None)
    waits = await calls.lead("+14155550111", template="vip")
    await calls.until_why(waits, "calls.pool:gold has no members")
    await calls.template("vip")
    assert await from_(calls, waits) in {NUMBER, OTHER}


@pytest.mark.parametrize("kind", SERVERS_SAMPLED)
async def test_number_in_use_stays_in_its_pool_which_counts_its_calls(
    tmp_path: Path, new_url: NewUrl, kind: str
) -> None:
    async with calling(tmp_path, store=new_url(kind), talk="1000000s", post_lost=1.0) as calls:
        await calls.number(NUMBER, pool="gold")
        await calls.template("vip", numbers="gold")
        first = await calls.lead(template="vip")
        await from_(calls, first)
        for change in ({"pool": None}, {"pool": "silver"}):
            reply = await calls.call("PATCH", f"/numbers/{NUMBER}", change)
            assert reply.status_code == 409, reply.text
        other = await calls.lead("+14155550111")
        await calls.until_why(other, "calls.numbers has no members")
        second = await calls.lead("+14155550112", template="vip")
        await calls.until_why(second, "calls.pool:gold", "1 of 1")
        assert (await calls.ask("/numbers"))["rows"][0]["pool"] == "gold"
        await calls.change(NUMBER, status="DISABLED")
        await end(calls, first)
        await calls.change(NUMBER, status="AVAILABLE", pool=None)
        assert await from_(calls, other) == NUMBER
        await calls.audit()


@pytest.mark.parametrize("kind", SERVERS_SAMPLED)
async def test_number_removed_during_its_call_joins_no_other_pool_until_the_call_has_ended(
    tmp_path: Path, new_url: NewUrl, kind: str
) -> None:
    async with calling(tmp_path, store=new_url(kind), talk="1000000s", post_lost=1.0) as calls:
        await calls.template("vip", numbers="gold")
        body = {"number": NUMBER, "provider": "twilio", "maximum_channels": 1}
        await calls.number(NUMBER, pool="gold")
        first = await calls.lead(template="vip")
        await from_(calls, first)
        assert (await calls.call("DELETE", f"/numbers/{NUMBER}")).status_code == 204
        for other in ({}, {"pool": "silver"}, {"reseller": "acme"}):
            reply = await calls.call("POST", "/numbers", body | other)
            assert reply.status_code == 409, reply.text
        assert (await calls.ask("/numbers"))["rows"] == []
        waits = await calls.lead("+14155550111")
        await calls.until_why(waits, "calls.numbers has no members")
        # Its own pool still counts the call.
        await calls.number(NUMBER, pool="gold")
        second = await calls.lead("+14155550112", template="vip")
        await calls.until_why(second, "calls.pool:gold", "1 of 1")
        assert (await calls.call("DELETE", f"/numbers/{NUMBER}")).status_code == 204
        await end(calls, first)
        await calls.number(NUMBER)
        assert await from_(calls, waits) == NUMBER
        await calls.audit()


async def test_number_in_use_is_in_no_pool_while_its_change_is_checked(calls: Calls) -> None:
    await calls.number(NUMBER, pool="gold")
    await calls.template("vip", numbers="gold")
    await from_(calls, await calls.lead(template="vip"))
    read, seen = calls.store.read, list[tuple[str, ...]]()

    async def between(query: Any) -> Any:
        if isinstance(query, GatesQuery) and query.names:
            page = await read(GatesQuery(names=("calls.numbers", "calls.pool:gold")))
            seen.append(tuple(one.name for row in page.rows for one in row.members if one.capacity))
        return await read(query)

    calls.store.read = between  # pyright: ignore[reportAttributeAccessIssue]
    reply = await calls.call("PATCH", f"/numbers/{NUMBER}", {"pool": None})
    assert reply.status_code == 409, reply.text
    assert seen == [()]
    page = await read(GatesQuery(names=("calls.pool:gold", "calls.numbers")))
    assert [len(row.members) for row in page.rows] == [1, 0]


async def test_number_stays_in_its_pool_if_its_change_is_cancelled(calls: Calls) -> None:
    await calls.number(NUMBER, pool="gold")
    await calls.template("vip", numbers="silver")
    read = calls.store.read

    async def cancelled(query: Any) -> Any:
        if isinstance(query, GatesQuery) and query.names:
            # As a server does to the requests that are left some time after its stop.
            calls.store.read = read  # pyright: ignore[reportAttributeAccessIssue]
            raise asyncio.CancelledError
        return await read(query)

    calls.store.read = cancelled  # pyright: ignore[reportAttributeAccessIssue]
    reply = await calls.call("PATCH", f"/numbers/{NUMBER}", {"pool": "silver"})
    assert reply.status_code == 500
    assert await members(calls, "gold", "silver") == [[NUMBER], []]


async def test_paused_reseller_starts_nothing_and_loses_nothing(calls: Calls) -> None:
    await calls.number(NUMBER, channels=9)
    for gate in ("tenant:acme", "all", "lane:calls", f"calls.numbers/{NUMBER}"):
        await calls.close(gate)
        lead = await calls.lead(f"+1415555{len(gate):04}")
        await calls.until_why(lead, "calls.numbers" if "/" in gate else "a complaint")
        assert not calls.calls_to(f"+1415555{len(gate):04}")
        await calls.open(gate)
        assert await from_(calls, lead) == NUMBER


async def test_invalid_number_is_refused(calls: Calls) -> None:
    await calls.number(NUMBER)
    good = {"number": THIRD, "provider": "twilio", "maximum_channels": 1}
    for wrong, status in (
        ({"number": NUMBER}, 409),
        ({"provider": "nobody"}, 422),
        ({"maximum_channels": 0}, 422),
        ({"number": "15550001003"}, 422),
        ({"status": "BUSY"}, 422),
        ({"reseller": "a{b}"}, 422),
    ):
        reply = await calls.call("POST", "/numbers", {**good, **wrong})
        assert reply.status_code == status, reply.text
    for path, body in ((THIRD, {"status": "DISABLED"}), ("nothing", {})):
        assert (await calls.call("PATCH", f"/numbers/{path}", body)).status_code == 404
    long = await calls.call("GET", f"/numbers/{'1' * 65}")
    assert long.json()["detail"] == "path.number: it should have at most 64 characters"
    none = await calls.call("PATCH", f"/numbers/{NUMBER}", {"status": None})
    assert none.status_code == 422
    listed = (await calls.ask("/numbers"))["rows"]
    assert [one["number"] for one in listed] == [NUMBER]
    assert PHONE not in str(listed)


async def test_change_of_a_number_is_refused_if_another_was_made_meanwhile(calls: Calls) -> None:
    await calls.number(NUMBER, pool="gold")
    path = f"/numbers/{NUMBER}"
    read = await calls.call("GET", path)
    assert read.headers["ETag"] == '"1"'
    assert read.json() == {
        "number": NUMBER,
        "provider": "twilio",
        "maximum_channels": 1,
        "status": "AVAILABLE",
        "reseller": None,
        "pool": "gold",
        "version": 1,
    }
    known = {"If-Match": '"1"'}
    changed = await calls.call("PATCH", path, {"maximum_channels": 2}, headers=known)
    assert (changed.status_code, changed.headers["ETag"]) == (200, '"2"')
    for method, body in (("PATCH", {"maximum_channels": 9, "pool": None}), ("DELETE", None)):
        late = await calls.call(method, path, body, headers=known)
        assert (late.status_code, late.json()["title"]) == (409, "revision conflict"), late.text
    # Nothing of a refused change was declared to the store.
    (gold,) = (await calls.store.read(GatesQuery(names=("calls.pool:gold",)))).rows
    assert [(one.name, one.capacity) for one in gold.members] == [(f"calls.pool:gold/{NUMBER}", 2)]
    cleared = await calls.call("PATCH", path, {"pool": None}, headers={"If-Match": '"2"'})
    assert (cleared.json()["pool"], cleared.json()["version"]) == (None, 3)
    assert (await calls.call("DELETE", path, headers={"If-Match": '"3"'})).status_code == 204
    assert (await calls.call("GET", path)).status_code == 404


async def test_numbers_are_listed_in_pages_by_reseller_and_pool(calls: Calls) -> None:
    await calls.number(OTHER, reseller="acme", pool="gold")
    await calls.number(NUMBER, reseller="acme")
    await calls.number(THIRD, pool="gold")

    async def listed(**which: Any) -> list[str]:
        found, cursor = list[str](), {}
        while cursor is not None:
            page = await calls.ask("/numbers", limit=1, **which, **cursor)
            found += [one["number"] for one in page["rows"]]
            cursor = page["cursor"] and {"cursor": page["cursor"]}
        return found

    assert await listed() == [NUMBER, OTHER, THIRD]
    assert await listed(reseller="acme") == [NUMBER, OTHER]
    assert await listed(pool="gold") == [OTHER, THIRD]
    assert await listed(pool="gold", reseller="acme") == [OTHER]


async def imports(calls: Calls, *rows: str, query: str = "") -> httpx.Response:
    """Import rows with all columns."""
    text = "\n".join(("number,provider,maximum_channels,status,reseller,pool", *rows))
    return await calls.call(
        "POST", f"/numbers/import{query}", content=text, headers={"Content-Type": "text/csv"}
    )


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_import_declares_the_gates_of_all_its_numbers_in_few_requests(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr(catalogue_routes, "STEP", 5)
    async with AsyncExitStack() as stack:
        directory: Path | str = tmp_path
        if kind == "postgresql":
            server = request.getfixturevalue("fast_postgres_server")
            directory = stack.enter_context(fresh_database(server.url))
        calls = await stack.enter_async_context(calling(directory, work=False))
        await calls.number(NUMBER, 3, pool="p7")
        define, sizes = calls.store.define, list[int]()

        async def counted(request: Any) -> Any:
            if request.reason == "import of numbers":
                sizes.append(len(request.items))
            return await define(request)

        calls.store.define = counted  # pyright: ignore[reportAttributeAccessIssue]
        rows = [f"+1555100{n:04},twilio,2,,,p{n % 12}" for n in range(600)]
        reply = await imports(calls, f"{NUMBER},twilio,4,disabled,acme,", *rows)
        assert reply.status_code == 200, reply.text
        told = {"rows": 601, "added": 600, "changed": 1, "unchanged": 0, "refused": 0}
        assert reply.json() == {**told, "faults": []}
        # First what the known number has less, then all pools.
        assert sizes == [1, 5, 5, 2]
        # An empty field keeps its value.
        found = await calls.ask(f"/numbers/{NUMBER}")
        assert (found["maximum_channels"], found["status"]) == (4, "DISABLED")
        assert (found["reseller"], found["pool"], found["version"]) == ("acme", "p7", 2)
        (gate,) = (await calls.store.read(GatesQuery(names=("calls.pool:p7",)))).rows
        members = {one.name.rpartition("/")[2]: one.capacity for one in gate.members}
        assert members == {NUMBER: 0} | {f"+1555100{n:04}": 2 for n in range(7, 600, 12)}
        sizes.clear()
        again = (await imports(calls, *rows)).json()
        assert (again["unchanged"], sizes) == (600, [])


async def test_import_reports_its_invalid_rows_and_writes_the_others_if_asked(
    calls: Calls,
) -> None:
    rows = (
        f"{NUMBER},twilio,1,,,",
        f"{OTHER},vonnage,1,,,",
        f"{THIRD},twilio,many,,,",
        "15550001004,twilio,1,,,",
        f"{NUMBER},twilio,2,,,",
    )
    refused = await imports(calls, *rows)
    assert refused.status_code == 422
    errors = [(one["where"], one["what"]) for one in refused.json()["errors"]]
    for (where, what), (row, start) in zip(
        errors,
        (
            ("row 3", "no call provider is named 'vonnage'"),
            ("row 4", "maximum_channels is 'many' (it must be a whole number"),
            ("row 5", "number: "),
            ("row 6", f"row 2 has the number '{NUMBER}' too"),
        ),
        strict=True,
    ):
        assert where == row
        assert what.startswith(start)
    assert (await calls.ask("/numbers"))["rows"] == []
    written = (await imports(calls, *rows, query="?partial=true")).json()
    assert (written["added"], written["refused"]) == (1, 4)
    assert [one["number"] for one in (await calls.ask("/numbers"))["rows"]] == [NUMBER]
    assert await from_(calls, await calls.lead()) == NUMBER


async def test_import_that_would_move_a_number_during_its_call_changes_nothing(
    calls: Calls,
) -> None:
    await calls.number(NUMBER, pool="gold")
    await calls.template("vip", numbers="gold")
    await from_(calls, await calls.lead(template="vip"))
    reply = await imports(calls, f"{OTHER},twilio,1,,,silver", f"{NUMBER},twilio,1,,,silver")
    assert reply.status_code == 409
    told = f"1 channels of the number are in use ({NUMBER}): another pool would not count them"
    assert told in reply.text
    listed = (await calls.ask("/numbers"))["rows"]
    assert [(one["number"], one["pool"]) for one in listed] == [(NUMBER, "gold")]
    page = await calls.store.read(GatesQuery(names=("calls.pool:gold", "calls.pool:silver")))
    assert [[one.name for one in row.members] for row in page.rows] == [
        [f"calls.pool:gold/{NUMBER}"],
        [],
    ]


async def test_partial_import_refuses_only_the_numbers_that_cannot_move_during_their_calls(
    calls: Calls,
) -> None:
    await calls.number(NUMBER, pool="gold")
    await calls.template("vip", numbers="gold")
    await from_(calls, await calls.lead(template="vip"))
    moved = f"{NUMBER},twilio,1,,,silver"
    rows = [f"{OTHER},vonnage,1,,,", f"{THIRD},twilio,1,,,silver", moved]
    rows += [f"+1555100{n:04},twilio,2,,,silver" for n in range(7)]
    report = await imports(calls, *rows, query="?partial=true")
    assert report.status_code == 200, report.text
    found = report.json()
    assert (found["rows"], found["added"], found["refused"]) == (10, 8, 2)
    assert [one["row"] for one in found["faults"]] == [2, 4]
    assert found["faults"][1]["what"].startswith("1 channels of the number are in use")
    listed = {one["number"]: one["pool"] for one in (await calls.ask("/numbers"))["rows"]}
    assert (listed.pop(NUMBER), set(listed.values()), len(listed)) == ("gold", {"silver"}, 8)
    (gold, silver) = await members(calls, "gold", "silver")
    assert (gold, sorted(silver)) == ([NUMBER], sorted(listed))


@pytest.mark.parametrize("kind", SERVERS_SAMPLED)
async def test_import_of_many_numbers_asks_only_for_those_with_calls(
    tmp_path: Path, new_url: NewUrl, kind: str
) -> None:
    async with calling(tmp_path, store=new_url(kind), talk="1000000s", post_lost=1.0) as calls:
        await calls.template("vip", numbers="gold")
        await calls.number(NUMBER, pool="gold")
        await from_(calls, await calls.lead(template="vip"))
        assert (await calls.call("DELETE", f"/numbers/{NUMBER}")).status_code == 204
        read, asked = calls.store.read, list[tuple[str, ...]]()

        async def counted(query: Any) -> Any:
            if isinstance(query, GatesQuery) and query.names:
                asked.append(query.names)
            return await read(query)

        calls.store.read = counted  # pyright: ignore[reportAttributeAccessIssue]
        rows = [f"+1555100{n:04},twilio,2,,,p{n % 4}" for n in range(400)]
        assert (await imports(calls, *rows)).json()["added"] == 400
        assert asked == []
        rows = [f"+1555200{n:04},twilio,2,,,p{n % 4}" for n in range(400)]
        reply = await imports(calls, *rows, f"{NUMBER},twilio,1,,,p1")
        assert reply.status_code == 409
        assert f"1 channels of the number are in use ({NUMBER})" in reply.text
        assert {name.rpartition("/")[2] for names in asked for name in names} == {NUMBER}


async def members(calls: Calls, *pools: str) -> list[list[str]]:
    """Return the numbers in each named pool, as the store knows it."""
    page = await calls.store.read(GatesQuery(names=tuple(f"calls.pool:{one}" for one in pools)))
    return [[one.name.rpartition("/")[2] for one in row.members] for row in page.rows]


async def test_number_stays_in_its_pool_if_its_new_pool_cannot_be_declared(calls: Calls) -> None:
    await calls.number(NUMBER, pool="gold")
    slots = {"kind": "slots", "capacity": 1, "shared": True}
    assert (await calls.call("PUT", "/v1/gates/calls.pool:silver", slots)).status_code == 200
    refused = await calls.call("PATCH", f"/numbers/{NUMBER}", {"pool": "silver"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_value")
    assert (await calls.ask(f"/numbers/{NUMBER}"))["pool"] == "gold"
    assert await members(calls, "gold") == [[NUMBER]]


async def test_import_that_fails_half_way_leaves_each_number_in_its_pool(calls: Calls) -> None:
    await calls.number(NUMBER, pool="gold")
    await calls.template("vip", numbers="silver")
    define, requests = calls.store.define, count(1)

    async def failing(request: Any) -> Any:
        # The second one would add the numbers to the new pool, the third restores the old one.
        if 2 <= next(requests) <= 3:
            message = "the store does not answer"
            raise StoreUnavailable(message)
        return await define(request)

    calls.store.define = failing  # pyright: ignore[reportAttributeAccessIssue]
    reply = await imports(calls, f"{OTHER},twilio,1,,,silver", f"{NUMBER},twilio,1,,,silver")
    assert reply.status_code == 503
    assert [one["number"] for one in (await calls.ask("/numbers"))["rows"]] == [NUMBER]

    async def restored() -> bool:
        return await members(calls, "gold", "silver") == [[NUMBER], []]

    await calls.until(restored, "the number in its pool")


async def test_gates_of_a_change_that_was_never_committed_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requeueing, "LOOK_S", 0.01)
    monkeypatch.setattr(requeueing, "SECOND_PASS_S", 0.01)
    # As a server does that is killed before the commit.
    emptied = DeclareGate(spec=hw.Pool("calls.pool:gold", {}, shared=True))
    async with calling(tmp_path) as calls:

        async def restored() -> bool:
            return await members(calls, "gold") == [[NUMBER]]

        await calls.number(NUMBER, pool="gold")
        await calls.store.define(DefineRequest(items=(emptied,), author="lost"))
        await calls.until(restored, "the number in its pool")


async def test_template_names_only_existing_providers(calls: Calls) -> None:
    refused = await calls.call("PUT", "/templates/x", {"providers": ["twilio", "vonnage"]})
    assert refused.status_code == 422
    assert "no call provider is named 'vonnage'" in refused.text
    assert (await calls.call("GET", "/templates/x")).status_code == 404
    await calls.template("x", providers=["twilio"])


async def test_number_names_only_an_existing_provider(calls: Calls) -> None:
    await calls.number()
    refused = await calls.call("PATCH", f"/numbers/{NUMBER}", {"provider": "vonnage"})
    assert refused.status_code == 422
    assert "no call provider is named 'vonnage'" in refused.text
    assert (await calls.ask("/numbers"))["rows"][0]["provider"] == "twilio"


def test_only_relevant_changes_recheck_waiting_leads() -> None:
    number = Number(number=NUMBER, provider="twilio", maximum_channels=1)
    default = Template(name="default")
    page = CatalogueContents(revision=1, numbers={NUMBER: number}, templates={"default": default})

    def moves(**change: Any) -> bool:
        return gate_layout(replace(page, **change)) != gate_layout(page)

    assert not moves(numbers={NUMBER: replace(number, maximum_channels=9, provider="vonage")})
    assert not moves(
        templates={"default": default.model_copy(update={"say": "Other.", "max_retry": 0})}
    )
    assert moves(numbers={})
    assert moves(numbers={NUMBER: replace(number, reseller="acme")})
    assert moves(numbers={NUMBER: replace(number, pool="p")})
    assert moves(templates={})
    for change in (
        {"numbers": "p"},
        {"customer_limit": 1},
        {"hours": HoursBody(spans="09:00-17:00")},
    ):
        assert moves(templates={"default": default.model_copy(update=change)}), change


def test_number_of_a_reseller_in_a_named_pool_is_a_member_of_that_pool_alone() -> None:
    number = Number(
        number=NUMBER, provider="twilio", maximum_channels=2, reseller="acme", pool="vip"
    )
    assert number.gate == pool_gate("vip")
    assert replace(number, pool=None).gate == reseller_gate("acme")


def test_pool_that_has_lost_its_last_number_is_declared_empty() -> None:
    number = Number(number=NUMBER, provider="twilio", maximum_channels=2, reseller="acme")
    before = CatalogueContents(revision=1, numbers={NUMBER: number}, templates={})
    after = CatalogueContents(revision=2, numbers={}, templates={})
    (emptied,) = changed_gates(before, after)
    assert (emptied.name, emptied.members) == (reseller_gate("acme"), ())
    # It was empty already.
    assert changed_gates(after, after) == ()
