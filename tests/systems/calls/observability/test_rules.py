from __future__ import annotations

from pathlib import Path

import pytest

import headway as hw
from headway.contract.definitions import DeclareGate, SetGate
from headway.runtime.settings_table import read_table
from headway.server.alerts.rules import Severity
from headway.server.alerts.watch import AGAIN_MS, CALM_MS
from headway.systems.calls.alert_rules import Thresholds, call_rules
from headway.systems.calls.overview import RECENT_MS, CountedEvent
from tests.systems.calls.observability.world import MINUTE, SECOND, World, only, world_in

ROOT = Path(__file__).parents[4]
NUMBERS = "calls.numbers"


def test_rules_have_their_names_and_severities():
    found = {rule.name: rule.severity for rule in call_rules(Thresholds())}
    assert found == {
        "dispatch_halted": Severity.P0,
        "orphan_webhook": Severity.P1,
        "no_number": Severity.P1,
        "intake_failing": Severity.P1,
        "latency_high": Severity.P1,
        "webhooks_lost": Severity.P2,
        "workers_dying": Severity.P2,
        "depth_high": Severity.P2,
        "no_leader": Severity.P2,
        "one_tenant": Severity.P3,
    }


def test_every_rule_has_a_runbook_where_its_link_points_to():
    headings = (ROOT / Thresholds().runbooks).read_text("utf-8").splitlines()
    for rule in call_rules(Thresholds()):
        assert f"### {rule.name}" in headings


def test_standing_alert_is_repeated_after_5_30_and_15_minutes():
    again = {one: ms // MINUTE for one, ms in AGAIN_MS.items()}
    assert again == {Severity.P0: 5, Severity.P1: 30, Severity.P2: 15, Severity.P3: 15}


# ------------------------------------------------------------------------- dispatch_halted


async def test_callable_leads_that_do_not_start_for_two_minutes_alert_and_heal(world: World):
    rule = "dispatch_halted"
    await world.leads(101)
    await world.check(101)
    assert only(await world.alerts(), rule) == []
    assert only(await world.alerts_within(2 * MINUTE - 10 * SECOND), rule) == []
    assert only(await world.alerts(10 * SECOND), rule) == [(rule, "dispatch", False)]
    assert only(await world.alerts_within(5 * MINUTE - 10 * SECOND), rule) == []
    assert only(await world.alerts(10 * SECOND), rule) == [(rule, "dispatch", False)]
    await world.dial()
    await world.alerts()
    assert only(await world.alerts(CALM_MS), rule) == [(rule, "dispatch", True)]
    # Armed again: a recurrence is reported once it has lasted long enough.
    await world.leads(1)
    await world.check(1)
    assert only(await world.alerts_within(2 * MINUTE + 10 * SECOND), rule) == [
        (rule, "dispatch", False)
    ]


async def test_hundred_leads_are_not_yet_a_halt(world: World):
    await world.leads(100)
    assert only(await world.alerts_within(10 * MINUTE), "dispatch_halted") == []


async def test_leads_before_their_checks_are_a_halt_too_and_the_text_mentions_workers(
    world: World,
):
    await world.leads(101)
    await world.alerts()
    world.pass_by(2 * MINUTE)
    await world.watch.check()
    (alert,) = [one for one in world.sink.alerts if one.rule == "dispatch_halted"]
    assert alert.text == (
        "101 leads could be called and 5 channels are free, but none has been called for 2m; "
        "no worker serves the lane"
    )
    assert alert.runbook == "docs/how-to/calls-runbooks.md#dispatch_halted"


@pytest.mark.parametrize("gate", ["all", "lane:calls", "tenant:acme", "kind:lead", NUMBERS])
async def test_manually_closed_gate_is_no_halt_until_opened(world: World, gate: str):
    await world.leads(101)
    await world.check(101)
    await world.close(gate)
    assert only(await world.alerts_within(10 * MINUTE), "dispatch_halted") == []
    await world.open(gate)
    told = only(await world.alerts_within(2 * MINUTE + 10 * SECOND), "dispatch_halted")
    assert told == [("dispatch_halted", "dispatch", False)]


async def test_full_lines_are_no_halt(world: World):
    await world.leads(200)
    await world.check(200)
    await world.dial(5)
    assert only(await world.alerts_within(10 * MINUTE), "dispatch_halted") == []


async def test_halt_of_one_reseller_among_many_is_found_in_a_sampled_backlog(
    world: World,
):
    await world.leads(600, "paused")
    await world.leads(600, "acme")
    await world.close("tenant:paused")
    told = only(await world.alerts_within(2 * MINUTE + 10 * SECOND), "dispatch_halted")
    assert told == [("dispatch_halted", "dispatch", False)]


# ------------------------------------------------------------------------ rules on the tally


@pytest.mark.parametrize(
    ("rule", "event", "label", "within_ms"),
    [
        ("orphan_webhook", CountedEvent.WEBHOOK_ORPHAN, "twilio", 5 * MINUTE),
        ("webhooks_lost", CountedEvent.WEBHOOK_LOST, "+15550001", 15 * MINUTE),
    ],
)
async def test_new_one_alerts_by_its_label_and_heals_when_it_is_old(
    world: World, rule: str, event: CountedEvent, label: str, within_ms: int
):
    world.tally.happened(event, label, 7)
    assert await world.alerts_within(MINUTE) == []
    world.tally.happened(event, label)
    assert await world.alerts(SECOND) == [(rule, label, False)]
    told = await world.alerts_within(within_ms + CALM_MS + 20 * SECOND)
    again = [(rule, label, False)] if rule == "webhooks_lost" else []
    assert told == [*again, (rule, label, True)]
    world.tally.happened(event, label)
    assert await world.alerts(SECOND) == [(rule, label, False)]


async def test_tolerated_number_of_webhooks_does_not_alert(tmp_path: Path):
    given = {"orphan_webhook_more_than": 2, "webhooks_lost_more_than": 2}
    async with world_in(tmp_path, **given) as world:
        await world.alerts()
        world.tally.happened(CountedEvent.WEBHOOK_ORPHAN, "twilio", 2)
        world.tally.happened(CountedEvent.WEBHOOK_LOST, "+15550001", 2)
        world.tally.happened(CountedEvent.WEBHOOK_LOST, "+15550002", 2)
        assert await world.alerts(SECOND) == []
        world.tally.happened(CountedEvent.WEBHOOK_ORPHAN, "twilio")
        world.tally.happened(CountedEvent.WEBHOOK_LOST, "+15550002")
        assert await world.alerts(SECOND) == [
            ("orphan_webhook", "twilio", False),
            ("webhooks_lost", "+15550002", False),
        ]


async def test_intake_with_more_than_one_percent_failures_alerts_and_heals(world: World):
    rule = "intake_failing"

    async def taken(of: int, failed: int) -> None:
        world.tally.happened(CountedEvent.INTAKE, times=of)
        if failed:
            world.tally.happened(CountedEvent.INTAKE_FAILED, times=failed)

    await taken(10_000, 5_000)
    assert await world.alerts() == []
    await taken(600, 6)
    assert await world.alerts(SECOND) == []
    await taken(1, 1)
    assert await world.alerts(SECOND) == [(rule, "intake", False)]
    await taken(1_000, 0)
    await world.alerts(SECOND)
    assert await world.alerts_within(CALM_MS) == [(rule, "intake", True)]
    await taken(20, 20)
    assert await world.alerts(SECOND) == [(rule, "intake", False)]


async def test_too_few_failures_do_not_alert(world: World):
    await world.alerts()
    world.tally.happened(CountedEvent.INTAKE, times=4)
    world.tally.happened(CountedEvent.INTAKE_FAILED, times=4)
    assert await world.alerts(SECOND) == []
    world.tally.happened(CountedEvent.INTAKE)
    world.tally.happened(CountedEvent.INTAKE_FAILED)
    assert await world.alerts(SECOND) == [("intake_failing", "intake", False)]


# ------------------------------------------------------------------------------- no_number


async def test_leads_that_wait_for_a_pool_without_a_usable_number_alert_and_heal(world: World):
    rule = "no_number"
    await world.leads(1)
    await world.check(1)
    for number in ("+15550001", "+15550002"):
        await world.close(f"{NUMBERS}/{number}")
    assert only(await world.alerts(), rule) == []
    assert only(await world.alerts_within(20 * SECOND), rule) == []
    world.pass_by(10 * SECOND)
    await world.watch.check()
    (alert,) = world.sink.alerts
    assert (alert.rule, alert.subject) == (rule, NUMBERS)
    assert "+15550001 is closed by ada: by hand" in alert.text
    world.sink.alerts.clear()
    await world.open(f"{NUMBERS}/+15550002")
    await world.alerts()
    assert only(await world.alerts(CALM_MS), rule) == [(rule, NUMBERS, True)]


async def test_numbers_without_channels_and_pools_without_numbers_alert(world: World):
    await world.leads(1)
    await world.check(1)
    await world.define(
        SetGate(name=f"{NUMBERS}/+15550001", capacity=0),
        SetGate(name=f"{NUMBERS}/+15550002", capacity=0),
    )
    told = only(await world.alerts_within(MINUTE), "no_number")
    assert told == [("no_number", NUMBERS, False)]
    await world.define(DeclareGate(spec=hw.Pool(NUMBERS, {}, shared=True)))
    world.sink.alerts.clear()
    await world.alerts_within(30 * MINUTE - 60 * SECOND, MINUTE)
    world.pass_by(2 * MINUTE)
    await world.watch.check()
    (alert,) = [one for one in world.sink.alerts if one.rule == "no_number"]
    assert alert.text.endswith("; it has none")


async def test_one_usable_number_is_enough_even_if_full(world: World):
    await world.leads(10)
    await world.check(10)
    await world.dial(5)
    await world.close(f"{NUMBERS}/+15550001")
    assert await world.alerts_within(10 * MINUTE) == []


async def test_closed_pool_and_pool_without_waiting_leads_do_not_alert(
    world: World,
):
    await world.leads(1)
    await world.check(1)
    for number in ("+15550001", "+15550002"):
        await world.close(f"{NUMBERS}/{number}")
    await world.close(NUMBERS)
    assert only(await world.alerts_within(10 * MINUTE), "no_number") == []
    await world.open(NUMBERS)
    await world.close("tenant:acme")
    await world.open(f"{NUMBERS}/+15550001")
    await world.open("tenant:acme")
    await world.dial()
    await world.close(f"{NUMBERS}/+15550001")
    assert only(await world.alerts_within(10 * MINUTE), "no_number") == []


# ---------------------------------------------------------------------------- latency_high


async def dialled_late(world: World, n: int, late_ms: int) -> None:
    """Let leads become due, be checked at once, and be called `late_ms` later, one by one."""
    await world.leads(n)
    world.pass_by(late_ms)
    await world.check(n)
    for _ in range(n):
        await world.hang_up(await world.dial())


async def test_calls_dialled_late_for_five_minutes_alert_and_heal(world: World):
    rule = "latency_high"
    told: list[tuple[str, str, bool]] = []
    for _ in range(4):
        await dialled_late(world, 10, 5_001)
        told += await world.alerts_within(MINUTE)
    assert only(told, rule) == []
    await dialled_late(world, 10, 5_001)
    assert only(await world.alerts_within(MINUTE), rule) == [(rule, "dial", False)]
    told = await world.alerts_within(RECENT_MS + CALM_MS)
    assert only(told, rule) == [(rule, "dial", True)]


async def test_calls_within_the_limit_and_too_few_of_them_do_not_alert(world: World):
    for _ in range(8):
        await dialled_late(world, 10, 5_000)
        assert only(await world.alerts_within(MINUTE), "latency_high") == []
    await world.alerts_within(RECENT_MS)
    for _ in range(8):
        await dialled_late(world, 1, 60_000)
        assert only(await world.alerts_within(MINUTE), "latency_high") == []


async def test_wait_for_a_line_is_not_lateness(world: World):
    await world.live("w")
    await world.leads(200)
    await world.check(200)
    calls = list(await world.dial(5))
    for _ in range(30):
        # A worker claims continuously, and no line is free.
        for _ in range(2):
            assert await world.claim() == []
            assert only(await world.alerts(10 * SECOND), "latency_high") == []
        await world.hang_up(calls[:5])
        calls = calls[5:] + list(await world.dial(5))


# --------------------------------------------------------------------------- workers_dying


async def test_more_than_half_of_the_workers_lost_alert_and_heal(world: World):
    rule = "workers_dying"
    await world.live("a", "b", lease_ms=30 * SECOND)
    await world.live("c", "d")
    assert await world.alerts() == []
    assert only(await world.alerts(31 * SECOND), rule) == []
    await world.live("c", lease_ms=SECOND)
    assert only(await world.alerts(2 * SECOND), rule) == [(rule, "workers", False)]
    await world.live("e", "f")
    await world.alerts(SECOND)
    assert only(await world.alerts(CALM_MS), rule) == [(rule, "workers", True)]


async def test_workers_that_left_or_died_long_ago_do_not_alert(world: World):
    await world.live("a", "b", "c")
    await world.live("a", "b", leaving=True)
    assert await world.alerts_within(10 * MINUTE) == []
    await world.live("c", lease_ms=SECOND)
    assert await world.alerts(6 * MINUTE) == []


# ------------------------------------------------------------------------------ depth_high


async def test_backlog_deeper_than_the_threshold_alerts_and_heals(tmp_path: Path):
    rule = "depth_high"
    async with world_in(tmp_path, depth_high_above=50) as world:
        await world.close("all")
        await world.leads(50)
        assert only(await world.alerts(), rule) == []
        await world.leads(1)
        assert only(await world.alerts(), rule) == [(rule, "backlog", False)]
        await world.open("all")
        await world.check(51)
        await world.dial()
        await world.alerts()
        assert only(await world.alerts(CALM_MS), rule) == [(rule, "backlog", True)]
        await world.leads(1)
        assert only(await world.alerts(), rule) == [(rule, "backlog", False)]


def test_fifty_thousand_leads_are_tolerated():
    assert Thresholds().depth_high_above == 50_000


# ------------------------------------------------------------------------------- no_leader


async def test_expired_leases_unnoticed_for_30_seconds_alert_and_heal(world: World):
    rule = "no_leader"
    await world.leads(1)
    (job,) = await world.claim()
    await world.live("w", lease_ms=SECOND)
    assert await world.alerts() == []
    assert only(await world.alerts(30 * SECOND), rule) == []
    assert only(await world.alerts(SECOND), rule) == [(rule, "chores", False)]
    # The sweep ends the run, and the job may be claimed again.
    await world.store.sweep(100)
    await world.alerts()
    assert only(await world.alerts(CALM_MS), rule) == [(rule, "chores", True)]
    (again,) = await world.claim()
    assert (again.id, again.run) == (job.id, 2)


# ------------------------------------------------------------------------------ one_tenant


async def test_reseller_with_nearly_the_whole_backlog_alerts_while_others_wait_and_heals(
    world: World,
):
    rule = "one_tenant"
    await world.close("all")
    await world.leads(160, "acme")
    assert only(await world.alerts(), rule) == []
    await world.leads(40, "zenith")
    assert only(await world.alerts(), rule) == []
    await world.leads(1, "acme")
    assert only(await world.alerts(), rule) == [(rule, "acme", False)]
    await world.leads(1, "zenith")
    await world.alerts()
    assert only(await world.alerts(CALM_MS), rule) == [(rule, "acme", True)]
    await world.leads(10, "acme")
    assert only(await world.alerts(), rule) == [(rule, "acme", False)]


async def test_few_leads_dominate_nothing(world: World):
    await world.leads(98, "acme")
    await world.leads(1, "zenith")
    assert only(await world.alerts(), "one_tenant") == []
    await world.leads(1, "acme")
    assert only(await world.alerts(), "one_tenant") == [("one_tenant", "acme", False)]


# -------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth_hig_above": 1}, "depth_hig_above: there is no such setting"),
        ({"depth_high_above": -1}, "calls.alerts.depth_high_above is -1"),
        ({"depth_high_above": True}, "calls.alerts.depth_high_above is True"),
        ({"intake_failing_above": 1.5}, "calls.alerts.intake_failing_above is 1.5"),
        ({"latency_high_above": "soon"}, "calls.alerts.latency_high_above"),
        ({"runbooks": 5}, "calls.alerts.runbooks is 5"),
    ],
)
def test_invalid_thresholds_are_refused_by_their_key(given: dict[str, object], message: str):
    with pytest.raises(hw.InvalidValue, match=message):
        read_table("calls.alerts", Thresholds, given)


def test_thresholds_are_read_by_their_names():
    read = read_table(
        "calls.alerts",
        Thresholds,
        {"latency_high_above": "2s", "one_tenant_above": 1, "depth_high_above": 10},
    )
    assert (read.latency_high_above_ms, read.one_tenant_above, read.depth_high_above) == (
        2_000,
        1.0,
        10,
    )
