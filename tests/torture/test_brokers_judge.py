"""The judge of the pipeline through the brokers detects every kind of violation it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.torture.brokers_judge import Arrival, Case, Fault, Planned, judge

DUE = 1_800_000_000_000
BROKER = Fault("kafka", "was killed", publishes=True, begin=DUE + 100, end=DUE + 10_000)
BRIDGE = Fault("in-one", "stood still", publishes=False, begin=DUE + 100, end=DUE + 10_000)


def planned(number: int, **more: Any) -> Planned:
    return Planned(**{"number": number, "topic": "sms", "part": "now", "due_at": DUE, **more})


def came(number: int, after_ms: int = 10, **more: Any) -> Arrival:
    at = DUE + after_ms
    given = {"topic": "sms", "job": f"job-{number}", "attempt": 1, "appended_at": at, "at": at + 5}
    return Arrival(**{"number": number, **given, **more})


FINE = Case(
    planned={
        1: planned(1),
        2: planned(2),
        3: planned(3, part="later"),
        4: planned(4, part="open"),
    },
    arrivals=[came(1), came(2), came(3), came(4)],
    through=2,
    late=1,
    states={"succeeded": 4, "waiting": 0},
)


def rules(case: Case) -> list[str]:
    return [one.rule for one in judge(case)[1]]


def with_arrivals(*more: Arrival, **change: Any) -> Case:
    return replace(FINE, arrivals=[*FINE.arrivals, *more], **change)


def test_single_occurrences_pass():
    assert rules(FINE) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"arrivals": FINE.arrivals[1:]}, "lost"),
        ({"arrivals": [*FINE.arrivals, came(9)]}, "never sent"),
        ({"arrivals": [*FINE.arrivals[1:], came(1, topic="push")]}, "other topic"),
        ({"arrivals": [*FINE.arrivals[1:], came(1, job=None)]}, "no key"),
        ({"arrivals": [*FINE.arrivals[1:], came(1, -1)]}, "early"),
        ({"dead_letters": 1}, "dead letters"),
        ({"refused": 1}, "refused rows"),
        ({"differences": 1}, "audit"),
        ({"states": {"succeeded": 3, "waiting": 1}}, "jobs"),
        ({"states": {"succeeded": 5}}, "jobs"),
        ({"states": {"succeeded": 4, "dead": 1}}, "jobs"),
        ({"wanted": [("kafka", "was killed")]}, "no fault"),
        ({"ended": ["in-one: a trace"]}, "ended by itself"),
        ({"late": 0}, "not provoked"),
        (
            {"planned": {**FINE.planned, 1: planned(1, part="later")}, "through": 0},
            "past the calendar",
        ),
    ],
)
def test_each_fault_is_found(change: dict[str, Any], rule: str):
    assert rules(replace(FINE, **change)) == [rule]


def test_repetition_needs_a_fault_of_the_broker_or_the_publisher_in_between():
    again = came(1, 5_000, attempt=2)
    assert rules(with_arrivals(again)) == ["twice without a reason"]
    assert rules(with_arrivals(again, faults=[BRIDGE])) == ["twice without a reason"]
    assert rules(with_arrivals(again, faults=[BROKER])) == []
    before = came(1, 50, attempt=2)
    assert rules(with_arrivals(before, faults=[BROKER])) == ["twice without a reason"]


def test_repetition_is_identified_by_its_key_and_another_attempt():
    faults = [BROKER]
    other = with_arrivals(came(1, 5_000, job="another", attempt=2), faults=faults)
    assert rules(other) == ["two jobs of one message"]
    same = with_arrivals(came(1, 5_000), faults=faults)
    assert rules(same) == ["twice in one attempt"]
    third = with_arrivals(came(1, 5_000, attempt=2), came(1, 6_000, attempt=2), faults=faults)
    assert rules(third) == ["twice in one attempt"]


def test_clock_of_a_store_may_be_ahead_of_the_machines():
    early = replace(FINE, arrivals=[*FINE.arrivals[1:], came(1, -2_000)])
    assert rules(early) == ["early"]
    assert rules(replace(early, ahead_ms=2_000)) == []
    assert rules(replace(early, ahead_ms=1_999)) == ["early"]


def test_early_is_judged_by_the_time_of_append_and_not_of_reading():
    read_late = came(1, -1, at=DUE + 60_000)
    assert rules(replace(FINE, arrivals=[*FINE.arrivals[1:], read_late])) == ["early"]


def test_repetitions_are_counted_with_their_messages():
    again = [came(1, 5_000, attempt=2), came(1, 6_000, attempt=3), came(2, 5_000, attempt=2)]
    lines, _ = judge(with_arrivals(*again, faults=[BROKER]))
    assert "3 repetitions, of 2 messages, each with the key of the first" in lines


def test_lateness_is_shown_separately_from_that_after_a_kill():
    due = {1: 0, 2: 200, 3: 11_000, 4: 20_000}
    case = replace(
        FINE,
        planned={n: one._replace(due_at=DUE + due[n]) for n, one in FINE.planned.items()},
        arrivals=[came(1, 20), came(2, 12_000), came(3, 11_900), came(4, 20_030)],
        faults=[BROKER],
        steady=(DUE, DUE + 30_000),
    )
    lines, _ = judge(case)
    shown = [one.rpartition(", p90")[0] for one in lines if "p50" in one and "all parts" not in one]
    assert shown == [
        "undisturbed, now: 1, due to arrival p50 25 ms",
        "undisturbed, open: 1, due to arrival p50 35 ms",
        "kafka was killed: 1, due to arrival p50 11805 ms",
        "catching up for 2.0 s after kafka was killed: 1, due to arrival p50 905 ms",
    ]
    assert any(one.startswith("while all parts came due, 30 s, 0 a second: p50") for one in lines)
