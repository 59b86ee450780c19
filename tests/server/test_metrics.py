from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

import headway as hw
from headway.contract.claims import BeatRequest, ClaimRequest
from headway.contract.definitions import CloseGate, DefineRequest, Role
from headway.contract.outcomes import Died, SettleRequest
from headway.contract.views import StatsQuery, WorkersQuery
from headway.server.metrics import (
    DURATIONS,
    FAMILIES,
    MOST_LABELS,
    OTHER,
    TOTALS,
    Families,
    Labels,
    one,
)
from headway.server.overview import Overview
from headway.testing.faulty import Fault, FaultyStore
from tests.server.rig import Rig, serving

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]
PHONE = "+15550001"


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    app = hw.App("memory://")
    line = hw.Slots("line", 2)
    customer = hw.Slots("customer:{phone}", 1)
    app.lane("calls", target="5s")

    @app.job(lane="calls", gates=[line, customer])
    async def call(job: hw.Job, phone: str) -> None: ...

    async with app, serving(app=app) as running:
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
    return found[name, tuple(sorted(labels.items()))]


async def claim(rig: Rig, n: int, request: int = 1) -> list[Any]:
    asked = ClaimRequest(worker="w", request=request, lanes=(("calls", 1),), n=n, free=n)
    return (await rig.store.claim(asked)).jobs


async def test_jobs_gates_workers_and_totals_are_exported(rig: Rig):
    app = rig.service.app
    assert app is not None
    for number in range(4):
        await app.send_async("call", phone=f"{PHONE}{number}", tenant="acme")
    await app.send_async("call", phone=f"{PHONE}0", tenant="acme")
    first, second = await claim(rig, 2)
    await rig.store.beat(
        BeatRequest(
            worker="w",
            lanes=("calls",),
            request=1,
            running=((first.id, 1), (second.id, 1)),
            name="w",
        )
    )
    await rig.store.settle(
        SettleRequest(worker="w", outcomes=(Died(first.id, 1, reason="no such number"),))
    )
    found = await scraped(rig)
    assert value(found, "headway_store_up") == 1
    assert value(found, "headway_jobs", lane="calls", state="dead") == 1
    assert value(found, "headway_jobs", lane="calls", state="running") == 1
    assert value(found, "headway_jobs_enqueued_total") == 5
    assert value(found, "headway_runs_started_total") == 2
    assert value(found, "headway_jobs_dead_total") == 1
    assert value(found, "headway_gate_capacity", gate="line") == 2
    assert value(found, "headway_gate_used", gate="line") == 1
    assert value(found, "headway_gate_used", gate="customer:{phone}") == 1
    assert value(found, "headway_gates_closed", gate="line") == 0
    assert value(found, "headway_workers") == 1
    assert value(found, "headway_worker_runs") == 1
    assert value(found, "headway_lane_workers", lane="calls") == 1
    assert value(found, "headway_lane_latency_target_seconds", lane="calls") == 5
    assert 0 <= value(found, "headway_lane_latency_seconds", lane="calls", quantile="0.95") < 60
    assert value(found, "headway_lane_latency_breached", lane="calls") == 0
    assert value(found, "headway_sweep_lag_seconds") == 0
    assert value(found, "headway_gates_cut") == 0


async def test_no_label_contains_a_tenant_or_job_content(rig: Rig):
    app = rig.service.app
    assert app is not None
    await app.send_async("call", phone=PHONE, tenant="acme", subject="mrs-smith")
    (job,) = await claim(rig, 1)
    await rig.store.define(
        DefineRequest(items=(CloseGate(name="tenant:acme", until_at=None, reason="x"),), author="t")
    )
    reply = await rig.call(Role.VIEWER, "GET", "/metrics")
    for secret in ("acme", PHONE, "mrs-smith", job.id):
        assert secret not in reply.text
    assert 'headway_gates_closed{gate="tenant:{tenant}"} 1.0' in reply.text


async def test_time_is_in_seconds(rig: Rig):
    app = rig.service.app
    assert app is not None
    now = (await rig.store.read(StatsQuery())).now
    await app.send_async("call", phone=PHONE, due=datetime.fromtimestamp(now / 1000 - 120, UTC))
    age = value(await scraped(rig), "headway_lane_oldest_due_age_seconds", lane="calls")
    assert 120 <= age < 180


async def test_expired_lease_not_yet_swept_is_a_lag(rig: Rig):
    app = rig.service.app
    assert app is not None
    await app.send_async("call", phone=PHONE)
    await rig.store.claim(ClaimRequest(worker="w", request=1, lanes=(("calls", 1),), lease_ms=1))

    async def over() -> float:
        while True:
            found = await scraped(rig)
            if value(found, "headway_sweep_lag_seconds") > 0:
                return value(found, "headway_workers")

    async with asyncio.timeout(120):
        assert await over() == 0


async def test_requests_are_counted_by_the_template_of_their_route(rig: Rig):
    sent = await rig.send(Role.PRODUCER, kind="noop")
    for _ in range(3):
        assert (await rig.call(Role.VIEWER, "GET", f"/v1/jobs/{sent}")).status_code == 200
    await rig.call(None, "GET", f"/v1/jobs/{sent}")
    await rig.call(None, "GET", f"/nowhere/{sent}")
    await rig.http.request("PROPFIND", "/v1/me")
    found = await scraped(rig)
    name = "headway_http_requests_total"
    assert value(found, name, route="/v1/jobs/{id}", method="GET", status="200") == 3
    assert value(found, name, route="/v1/jobs/{id}", method="GET", status="401") == 1
    assert value(found, name, route="unknown", method="GET", status="404") == 1
    assert any(dict(labels).get("method") == "unknown" for one, labels in found if one == name)
    count = f"{DURATIONS.name}_count"
    assert value(found, count, route="/v1/jobs/{id}", method="GET") == 4
    assert not any(sent in text for _, labels in found for _, text in labels)


async def test_openmetrics_is_sent_on_request(rig: Rig):
    reply = await rig.call(
        Role.VIEWER,
        "GET",
        "/metrics",
        headers={"Accept": "application/openmetrics-text; version=1.0.0"},
    )
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in parse_open(reply.text)}
    assert {"headway_jobs_enqueued", "headway_gates", "headway_http_requests"} <= names


async def test_metrics_are_available_while_the_store_is_unreachable(rig: Rig):
    faulty = FaultyStore(rig.store)
    rig.service.scrapes._store = faulty
    faulty.plan(Fault.REFUSE, operation="read")
    found = await scraped(rig)
    assert value(found, "headway_store_up") == 0
    assert value(found, "headway_long_polls") == 0
    assert ("headway_workers", ()) not in found
    assert value(await scraped(rig), "headway_store_up") == 1


class Silent:
    """A store that does not respond in time."""

    async def read(self, query: object) -> object:
        raise TimeoutError


async def test_log_says_that_the_store_did_not_respond_in_time(
    rig: Rig, caplog: pytest.LogCaptureFixture
):
    vars(rig.service.scrapes)["_store"] = Silent()
    assert value(await scraped(rig), "headway_store_up") == 0
    assert "metrics: the store did not respond: timeout" in caplog.messages


class Own:
    """Metrics of a system."""

    families = (Families().gauge("own_things", "Things of its own."),)

    def __init__(self) -> None:
        self.fails: Exception | None = None
        self.overviews: list[Overview | None] = []

    async def metrics(self, overview: Overview | None) -> list[Metric]:
        self.overviews.append(overview)
        if self.fails is not None:
            raise self.fails
        return [one(self.families[0], 7)]


async def test_systems_metrics_are_available_while_the_store_is_unreachable(rig: Rig):
    own = Own()
    rig.service.scrapes.add(own)
    assert value(await scraped(rig), "headway_own_things") == 7
    faulty = FaultyStore(rig.store)
    rig.service.scrapes._store = faulty
    faulty.plan(Fault.REFUSE, operation="read")
    found = await scraped(rig)
    assert value(found, "headway_own_things") == 7
    assert [one is None for one in own.overviews] == [False, True]


async def test_system_with_failing_metrics_hides_no_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
):
    own, other = Own(), Own()
    other.families = (Families().gauge("other_things", "Things of another."),)
    rig.service.scrapes.add(own)
    rig.service.scrapes.add(other)
    for error in (hw.StoreUnavailable("the directory is away"), ZeroDivisionError()):
        own.fails = error
        found = await scraped(rig)
        assert value(found, "headway_other_things") == 7
        assert value(found, "headway_store_up") == 1
        assert ("headway_own_things", ()) not in found
        assert "a system failed" in caplog.text
        caplog.clear()


async def test_scrapes_that_wait_for_the_store_share_one_read_and_a_later_one_reads_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    read, reads, answers = rig.store.read, 0, asyncio.Event()

    async def slow(query: Any) -> Any:
        nonlocal reads
        if isinstance(query, WorkersQuery):
            reads += 1
            await answers.wait()
        return await read(query)

    async def text() -> bytes:
        found, _ = await scrapes.scrape("", long_polls=0, event_streams=0, leads=False)
        return found

    monkeypatch.setattr(rig.store, "read", slow)
    scrapes = rig.service.scrapes
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(text()) for _ in range(3)]
        while not reads:
            await rig.service.timing.pause(0)
        answers.set()
    assert reads == 1
    assert all(b"headway_store_up 1.0" in one.result() for one in asked)
    await rig.send(lane="new")
    assert b'headway_jobs{lane="new",state="waiting"} 1.0' in await text()
    assert reads == 2


async def test_metrics_show_whether_this_server_alerts():
    async with serving(chores=True) as running:
        async with asyncio.timeout(120):
            while value(await scraped(running), "headway_alerts_leads") != 1:
                pass


async def test_token_for_some_tenants_or_without_the_role_sees_no_metrics(rig: Rig):
    scoped = await rig.token(Role.VIEWER, tenants=["acme"])
    assert (await rig.call(scoped, "GET", "/metrics")).status_code == 403
    assert (await rig.call(Role.WORKER, "GET", "/metrics")).status_code == 403
    assert (await rig.call(None, "GET", "/metrics")).status_code == 401


async def test_every_exported_family_is_in_the_table_with_its_labels(rig: Rig):
    reply = await rig.call(Role.VIEWER, "GET", "/metrics")
    by_name = {family.name: family for family in FAMILIES}
    for family in parse(reply.text):
        if not family.name.startswith("headway_"):
            continue
        declared = by_name.get(family.name) or by_name.get(f"{family.name}_total")
        if declared is None:
            assert family.name.endswith("_created"), family.name
            continue
        assert (family.type, family.documentation) == (declared.kind, declared.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(declared.labels), sample


async def test_every_total_of_the_store_has_a_family(rig: Rig):
    totals = (await rig.store.read(StatsQuery())).totals
    assert set(totals) <= set(TOTALS)


def test_names_follow_the_conventions():
    for family in FAMILIES:
        assert re.fullmatch(r"headway_[a-z]+(_[a-z]+)*", family.name), family
        assert family.name.endswith("_total") is (family.kind == "counter"), family
        assert not re.search(r"_(ms|millis|minutes|hours)\b", family.name), family
        assert family.help.endswith("."), family
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_first_label_values_by_name_have_their_own_series():
    names = [f"lane{number:04}" for number in range(1_000)]
    labels = Labels(names)
    given = {labels.of(name) for name in names}
    assert len(given) == MOST_LABELS + 1
    assert labels.of("lane0000") == "lane0000"
    assert labels.of("lane0999") == OTHER


async def test_lanes_beyond_the_limit_are_summed_under_other(rig: Rig):
    app = rig.service.app
    assert app is not None
    noop = app.kind("noop")
    await app.send_many_async(noop.make(lane=f"l{number:04}") for number in range(300))
    found = await scraped(rig)
    lanes = {dict(labels)["lane"] for name, labels in found if name == "headway_lane_paused"}
    assert (len(lanes), OTHER in lanes) == (MOST_LABELS + 1, True)
    waiting = sum(
        count
        for (name, labels), count in found.items()
        if name == "headway_jobs" and dict(labels)["state"] == "waiting"
    )
    assert waiting == 300


async def test_no_control_character_of_a_name_reaches_the_metrics(rig: Rig):
    names = ("a\x1b[31mred", "b\x07\x9b", "c\u202e", "d\nline", 'e"quoted"')
    for name in names:
        await rig.send(lane=name)
        gate = {"kind": "slots", "capacity": 1}
        path = "".join(f"%{byte:02X}" for byte in f"gate {name}".encode())
        assert (await rig.call(Role.ADMIN, "PUT", f"/v1/gates/{path}", gate)).status_code == 200
    reply = await rig.call(Role.ADMIN, "GET", "/metrics")
    assert [one for one in reply.text if not one.isprintable() and one != "\n"] == []
    labels = {
        sample.labels["lane"]
        for family in parse(reply.text)
        for sample in family.samples
        if sample.name == "headway_lane_workers"
    }
    assert labels >= {r"a\x1b[31mred", r"b\x07\x9b", r"c\u202e", "d\nline", 'e"quoted"'}
