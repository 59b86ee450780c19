from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import pytest
from fastapi import APIRouter
from prometheus_client.parser import text_string_to_metric_families as parse

import headway as hw
from headway.contract.definitions import CloseGate, DefineRequest, Role, SetGate
from headway.server.access import needs
from headway.server.caller import Caller, Permission
from headway.server.metrics import FAMILIES as ENGINE
from headway.server.routing import router
from headway.server.service import Service
from headway.systems.calls.alert_rules import Thresholds
from headway.systems.calls.metrics import FAMILIES, Intakes, start_observability
from headway.systems.calls.overview import CountedEvent
from headway.testing.faulty import Fault, FaultyStore
from tests.server.rig import Rig, serving
from tests.systems.calls.observability.world import MINUTE, World

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]
INTAKE = router("system: calls")


@INTAKE.post("/leads")
async def take_in(
    caller: Annotated[Caller, needs(Permission.SEND)], how: str = "well"
) -> dict[str, str]:
    if how == "ill":
        message = "the directory is away"
        raise hw.StoreUnavailable(message)
    if how == "wrong":
        message = "no phone"
        raise hw.InvalidValue(message)
    return {}


class Seeing:
    """A system that is only observed, with an intake controlled by the test."""

    name = "calls"

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def routers(self) -> Sequence[APIRouter]:
        return (INTAKE,)

    def declare(self, app: hw.App) -> None: ...

    async def start(self, service: Service) -> None:
        start_observability(service, self.world.tally, Thresholds())


@pytest.fixture
async def rig(world: World) -> AsyncIterator[Rig]:
    async with serving(app=world.app, systems=[Seeing(world)]) as running:
        yield running


async def scraped(rig: Rig) -> Found:
    reply = await rig.call(Role.VIEWER, "GET", "/metrics")
    assert reply.status_code == 200, reply.text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(reply.text)
        for sample in family.samples
    }


def value(found: Found, name: str, **labels: str) -> float:
    return found[f"headway_calls_{name}", tuple(sorted(labels.items()))]


async def test_lines_are_exported_by_number(rig: Rig, world: World):
    await world.leads(3)
    await world.check(3)
    await world.dial(3)
    found = await scraped(rig)
    used = {one: value(found, "lines_used", number=one) for one in ("+15550001", "+15550002")}
    assert sum(used.values()) == 3
    assert value(found, "lines", number="+15550001") == 2
    assert value(found, "lines", number="+15550002") == 3
    await rig.store.define(
        DefineRequest(
            items=(
                CloseGate(name="calls.numbers/+15550001", reason="refused"),
                SetGate(name="calls.numbers/+15550002", capacity=0),
            ),
            author="t",
        )
    )
    found = await scraped(rig)
    assert value(found, "number_usable", number="+15550001") == 0
    assert value(found, "number_usable", number="+15550002") == 0
    assert value(found, "lines", number="+15550002") == 0
    assert {n: value(found, "lines_used", number=n) for n in used} == used


async def test_due_to_dial_and_waiting_at_gates_are_exported_separately(rig: Rig, world: World):
    await world.live("w")
    await world.leads(6)
    await world.check(6)
    world.clock.advance(2_000)
    first = await world.dial(5)
    assert await world.claim() == []
    world.clock.advance(MINUTE)
    await world.hang_up(first)
    await world.dial()
    found = await scraped(rig)
    assert value(found, "due_to_dial_seconds", quantile="0.5") == 2
    assert value(found, "due_to_dial_seconds", quantile="0.99") == 2
    assert value(found, "gate_wait_seconds", quantile="0.99") == 60
    assert value(found, "gate_wait_seconds", quantile="0.5") == 0
    world.clock.advance(6 * MINUTE)
    assert not any("due_to_dial" in name for name, _ in await scraped(rig))


async def test_backlog_and_workers_are_exported(rig: Rig, world: World):
    await world.leads(7)
    await world.leads(3, "zenith")
    await world.close("tenant:zenith")
    await world.live("a", "b")
    await world.live("c", lease_ms=1)
    world.clock.advance(10)
    found = await scraped(rig)
    assert value(found, "overdue") == 10
    assert value(found, "ready") == 7
    assert value(found, "largest_reseller_ratio") == 0.7
    assert value(found, "pools_without_number") == 0
    assert value(found, "workers") == 2


async def test_pools_without_a_number_are_counted_while_leads_wait_for_them(rig: Rig, world: World):
    for number in ("+15550001", "+15550002"):
        await world.close(f"calls.numbers/{number}")
    assert value(await scraped(rig), "pools_without_number") == 0
    await world.leads(1)
    await world.check(1)
    assert value(await scraped(rig), "pools_without_number") == 1


async def test_counters_are_exported_by_label(rig: Rig, world: World):
    world.tally.happened(CountedEvent.OUTCOME, "BUSY", 3)
    world.tally.happened(CountedEvent.WEBHOOK_LOST, "+15550001")
    world.tally.happened(CountedEvent.WEBHOOK_LATE, "+15550001", 2)
    world.tally.happened(CountedEvent.WEBHOOK_TWICE, "+15550002", 4)
    world.tally.happened(CountedEvent.WEBHOOK_ORPHAN, "twilio", 5)
    world.tally.happened(CountedEvent.REPORT_FAILED)
    found = await scraped(rig)
    assert value(found, "attempts_total", outcome="BUSY") == 3
    assert value(found, "webhooks_lost_total", number="+15550001") == 1
    assert value(found, "webhooks_late_total", number="+15550001") == 2
    assert value(found, "webhooks_twice_total", number="+15550002") == 4
    assert value(found, "webhooks_orphan_total", provider="twilio") == 5
    assert value(found, "reports_failed_total") == 1
    assert value(found, "intakes_total") == 0


async def test_intakes_count_as_failed_unless_it_was_the_callers_fault(rig: Rig, world: World):
    for how, status in (("well", 200), ("well", 200), ("ill", 503), ("wrong", 422)):
        reply = await rig.call(Role.PRODUCER, "POST", f"/leads?how={how}")
        assert reply.status_code == status
    await rig.call(Role.PRODUCER, "GET", "/leads")
    intakes = Intakes(rig.service.scrapes.requests, world.tally, world.timing)
    intakes.note()
    intakes.note()
    found = await scraped(rig)
    assert value(found, "intakes_total") == 4
    assert value(found, "intakes_failed_total") == 1


async def test_counters_are_exported_while_the_store_is_unreachable(rig: Rig, world: World):
    world.tally.happened(CountedEvent.INTAKE_FAILED, times=9)
    faulty = FaultyStore(rig.store)
    rig.service.scrapes._store = faulty
    faulty.plan(Fault.REFUSE, operation="read")
    found = await scraped(rig)
    assert found["headway_store_up", ()] == 0
    assert value(found, "intakes_failed_total") == 9
    assert ("headway_calls_overdue", ()) not in found


async def test_no_label_names_a_reseller_or_a_customer(rig: Rig, world: World):
    await world.leads(3, "acme")
    await world.check(2)
    await world.dial(1)
    reply = await rig.call(Role.VIEWER, "GET", "/metrics")
    assert "headway_calls_overdue 2" in reply.text
    assert "acme" not in reply.text
    assert "+15550000000" not in reply.text


async def test_every_exported_family_is_in_the_table_with_its_labels(rig: Rig, world: World):
    await world.leads(1)
    await world.check(1)
    await world.dial()
    for event in CountedEvent:
        world.tally.happened(event, "" if "intake" in event or "report" in event else "x")
    reply = await rig.call(Role.VIEWER, "GET", "/metrics")
    by_name = {family.name: family for family in FAMILIES}
    told: set[str] = set()
    for family in parse(reply.text):
        if not family.name.startswith("headway_calls_"):
            continue
        declared = by_name.get(family.name) or by_name[f"{family.name}_total"]
        told.add(declared.name)
        assert (family.type, family.documentation) == (declared.kind, declared.help)
        for sample in family.samples:
            assert set(sample.labels) == set(declared.labels), sample
    assert told == set(by_name)


def test_names_follow_the_conventions():
    for family in FAMILIES:
        assert re.fullmatch(r"headway_calls_[a-z]+(_[a-z]+)*", family.name), family
        assert family.name.endswith("_total") is (family.kind == "counter"), family
        assert family.help.endswith("."), family
    names = [family.name for family in (*FAMILIES, *ENGINE)]
    assert len(set(names)) == len(names)
