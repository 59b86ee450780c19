"""The metrics of field_service: outcomes of offers, waiting times, and pending requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as parse

from headway.runtime.timing import REAL
from headway.systems.field_service.dispatching import RequestMoves
from headway.systems.field_service.metrics import OfferEnd
from tests.systems.field_service.field_rig import LIMIT_S, FieldRig, a_field

OFFERS = "headway_field_service_offers_total"
WAITS = "headway_field_service_time_to_accept_seconds"
PENDING = "headway_field_service_pending"


async def scraped(field: FieldRig, name: str) -> dict[str, float]:
    """Return the values of a metric family, by its single label."""
    reply = await field.rig.call(field.who, "GET", "/metrics")
    assert reply.status_code == 200, reply.text
    return {
        "".join(sample.labels.values()): sample.value
        for family in parse(reply.text)
        for sample in family.samples
        if sample.name == name
    }


async def counts(field: FieldRig, wanted: Mapping[str, int]) -> None:
    """Return when these counts of offers by outcome are reached, with no others."""
    found: Mapping[str, float] = {}
    expected = {end.value: wanted.get(end, 0) for end in OfferEnd}
    try:
        async with asyncio.timeout(LIMIT_S):
            while found != expected:
                found = await scraped(field, OFFERS)
                await REAL.pause(0.01)
    except TimeoutError:
        raise AssertionError(found) from None


async def test_offers_are_counted_by_how_they_ended(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h") as field:
        await field.technician("ada", "busy", km=1)
        await field.technician("cleo", "decline", km=2)
        await field.technician("dan", "accept", km=3)
        await counts(field, {})
        sent = await field.ask()
        await field.becomes(sent["id"], "assigned")
        await counts(field, {"missed": 1, "declined": 1, "accepted": 1})
        # A repeated answer does not count again, and a late one does not count at all.
        assert (await field.say(sent["id"], "accept", "dan")).status_code == 200
        assert (await field.say(sent["id"], "accept", "cleo")).status_code == 409
        await field.settled("ring", 3)
        await counts(field, {"missed": 1, "declined": 1, "accepted": 1})


async def test_expired_offer_is_counted_once(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="200ms", line_wait="1s") as field:
        await field.technician("ada", "silent", channel="text")
        sent = await field.ask()
        await field.becomes(sent["id"], "pending")
        await counts(field, {"timeout": 1})
        # All reviews of the request are done.
        await field.settled("offer_review", 3)
        await counts(field, {"timeout": 1})


async def test_offers_ended_by_a_dispatcher_are_withdrawn(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        await field.technician("bob", km=2)
        first = await field.ask()
        await field.asks(first["id"], "ada")
        await field.withdraw(first["id"])
        await counts(field, {"withdrawn": 1})
        second = await field.ask()
        await field.asks(second["id"], "ada")
        reply = await field.move(second["id"], "assign", technician="bob", by="Dora")
        assert reply.status_code == 200
        await field.becomes(second["id"], "assigned")
        await counts(field, {"withdrawn": 2})
        # No technician was asked, so this withdrawal ends no offer.
        await field.withdraw(second["id"])
        await counts(field, {"withdrawn": 2})


async def test_offer_accepted_during_a_withdrawal_counts_as_accepted(
    tmp_path: Path,
):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        read = await field.job(sent["id"])
        assert (await field.say(sent["id"], "accept", "ada")).status_code == 200
        await RequestMoves(context=field.system.context, author="Dora").withdraw(read)
        assert (await field.get(sent["id"]))["status"] == "cancelled"
        await counts(field, {"accepted": 1})


async def test_time_to_accept_starts_with_the_request_or_its_last_dispatch(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada", km=1)
        assert await scraped(field, WAITS) == {}
        sent = await field.ask()
        await field.asks(sent["id"], "ada")
        await field.say(sent["id"], "accept", "ada")
        job = await field.job(sent["id"])
        assert job.cascade is not None
        wait_ms = job.cascade.asked[-1].at - job.created_at
        expected = dict.fromkeys(("0.5", "0.95", "0.99"), wait_ms / 1000)
        assert await scraped(field, WAITS) == expected
        await field.withdraw(sent["id"])
        assert await scraped(field, WAITS) == {}
        assert (await field.move(sent["id"], "redispatch")).status_code == 200
        await field.asks(sent["id"], "ada")
        await field.say(sent["id"], "accept", "ada")
        job = await field.job(sent["id"])
        assert job.cascade is not None
        again_at = next(one.at for one in job.trail if one.reason == "dispatched again")
        (half,) = {*(await scraped(field, WAITS)).values()}
        assert half == (job.cascade.asked[-1].at - again_at) / 1000
        # A completed request counts, and one that was assigned does not.
        assert (await field.move(sent["id"], "complete")).status_code == 200
        assert {*(await scraped(field, WAITS)).values()} == {half}
        given = await field.ask()
        await field.asks(given["id"], "ada")
        await field.move(given["id"], "assign", technician="ada", by="Dora")
        await field.becomes(given["id"], "assigned")
        assert {*(await scraped(field, WAITS)).values()} == {half}


async def test_pending_counts_requests_without_a_technician(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        assert await scraped(field, PENDING) == {"": 0}
        sent = await field.ask()
        assert sent["status"] == "pending"
        assert await scraped(field, PENDING) == {"": 1}
        await field.technician("ada")
        assert (await field.move(sent["id"], "redispatch")).status_code == 200
        await field.asks(sent["id"], "ada")
        assert await scraped(field, PENDING) == {"": 0}
