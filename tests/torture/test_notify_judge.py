"""The judge of notifications detects every kind of violation it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.torture.notify_judge import Case, Planned, Reported, judge
from tests.torture.notify_providers import Arrival

DUE = 1_800_000_000_000
SENT = Reported("SENT", "")
LOST = Reported("SENT", "sent, answer lost")


def planned(number: int, **more: Any) -> Planned:
    given = {"recipient": f"r{number}", "channel": "email", "due_at": DUE, "part": "steady"}
    return Planned(number=number, **given | more)


def came(number: int, after_ms: int = 10, begun_ms: int | None = None) -> Arrival:
    begun = DUE + (after_ms if begun_ms is None else begun_ms)
    return Arrival(number, "email", DUE + after_ms, lost=False, begun=begun)


FINE = Case(
    planned={1: planned(1), 2: planned(2)},
    states={1: SENT, 2: SENT},
    arrivals=[came(1), came(2)],
    rates={"email": 5},
    ahead=0,
)


def rules(case: Case) -> list[str]:
    return [one.rule for one in judge(case)[1]]


def test_single_sends_pass():
    assert rules(FINE) == []


def test_message_reported_as_lost_may_have_arrived_or_not():
    states = {1: LOST, 2: LOST}
    assert rules(replace(FINE, states=states)) == []
    assert rules(replace(FINE, states=states, arrivals=[came(1)])) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"arrivals": [came(1), came(2), came(2)]}, "sent twice"),
        ({"arrivals": [came(1)]}, "reported and not sent"),
        ({"arrivals": [came(1)], "states": {1: SENT, 2: Reported("FAILED", "")}}, "not sent"),
        ({"states": {1: SENT, 2: Reported("FAILED", "")}}, "sent and not reported"),
        ({"states": {1: SENT, 2: Reported("QUEUED", "")}}, "not reported"),
        ({"states": {1: SENT}}, "not reported"),
        ({"opted_out": {("r2", "email"): DUE - 1_000}}, "sent after opt-out"),
        ({"rates": {"email": 1}}, "rate"),
        ({"reported": {2}}, "delivered and not reported"),
    ],
)
def test_each_fault_is_found(change: dict[str, Any], rule: str):
    assert rules(replace(FINE, **change)) == [rule]


def test_message_started_before_the_opt_out_may_be_in_flight():
    late = replace(FINE, arrivals=[came(1), came(2, 30_000, 900)])
    assert rules(replace(late, opted_out={("r2", "email"): DUE})) == []
    begun = replace(FINE, arrivals=[came(1), came(2, 1_101, 1_100)])
    assert rules(replace(begun, opted_out={("r2", "email"): DUE})) == ["sent after opt-out"]


def test_request_seen_after_a_provider_freeze_may_have_started_before():
    late = replace(FINE, arrivals=[came(1), came(2, 5_000)], opted_out={("r2", "email"): DUE})
    assert rules(late) == ["sent after opt-out"]
    assert rules(replace(late, stood=[(DUE + 900, DUE + 5_020)])) == []
    assert rules(replace(late, stood=[(DUE + 1_100, DUE + 5_020)])) == ["sent after opt-out"]
    assert rules(replace(late, stood=[(DUE + 900, DUE + 4_000)])) == ["sent after opt-out"]


def test_message_may_be_in_flight_within_a_second_of_an_opt_out():
    assert rules(replace(FINE, opted_out={("r2", "email"): DUE - 900})) == []


def test_message_skipped_after_an_opt_out_is_not_missing():
    case = replace(FINE, arrivals=[came(1)], states={1: SENT, 2: Reported("SKIPPED", "opted out")})
    assert rules(case) == ["not sent"]
    assert rules(replace(case, opted_out={("r2", "email"): DUE})) == []


def test_urgent_ones_of_a_burst_come_first():
    burst = {n: planned(n, part="burst", urgent=n == 3) for n in (1, 2, 3)}
    case = Case(
        planned=burst,
        states=dict.fromkeys(burst, SENT),
        arrivals=[came(1), came(2), came(3)],
        ahead=1,
    )
    assert rules(case) == ["urgent late"]
    assert rules(replace(case, ahead=2)) == []
    assert rules(replace(case, arrivals=[came(3), came(1), came(2)])) == []


def test_lateness_is_reported_separately_from_that_during_an_engine_outage():
    late = [came(1, 20), came(2, 5_000)]
    moved = {1: planned(1), 2: planned(2, due_at=DUE + 1)}
    lines, _ = judge(
        replace(FINE, planned=moved, arrivals=late, shaken=[("it was away", DUE + 1, DUE + 9)])
    )
    assert any("while all was well: 1, due to arrival p50 20 ms" in one for one in lines)
    assert any("while it was away: 1, due to arrival p50 4999 ms" in one for one in lines)


def test_backlog_of_an_engine_is_reported_separately_until_it_was_sent():
    due = {1: 0, 2: 1_500, 3: 6_500, 4: 7_500}
    lines, _ = judge(
        replace(
            FINE,
            planned={number: planned(number, due_at=DUE + at) for number, at in due.items()},
            arrivals=[came(1, 7_000), came(2, 7_100), came(3, 7_300), came(4, 7_530)],
            states=dict.fromkeys(due, SENT),
            shaken=[("it was away", DUE - 1_000, DUE + 1_000)],
        )
    )
    told = [one for one in lines if one.startswith("steady")]
    assert [one.rpartition(", p90")[0] for one in told] == [
        "steady, while all was well: 1, due to arrival p50 30 ms",
        "steady, while a channel was closed: 0, due to arrival p50 0 ms",
        "steady, while it was away: 1, due to arrival p50 7000 ms",
        "steady, while catching up for 6.0 s after it was away: 2, due to arrival p50 5600 ms",
        "steady, in all: 4, due to arrival p50 5600 ms",
    ]
