"""The rules by which the demo checks its calls and repairs detect faults."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from examples.demo.call_centre.rules import RULES as CALL_RULES
from examples.demo.call_centre.rules import STARTS, Pause, Started
from examples.demo.call_centre.rules import Evidence as CallEvidence
from examples.demo.repairs.rules import Evidence as RepairEvidence
from examples.demo.repairs.rules import repair_violations
from headway.carrier.ledger import Call, CallPlan, Text, TextPlan
from headway.carrier.script import DrawnOutcome
from headway.systems.telephony.voice import CallStatus

NUMBER, PHONE, BARRED = "+15550100001", "+14155550017", "+14155550003"
NOON = int(datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp() * 1000)
OUTCOME = cast("DrawnOutcome", None)


def call(sid: str = "CA1", *, to: str = PHONE, ref: str = "a:1", status: str = "busy") -> Call:
    plan = CallPlan(ref=ref, to=to, from_=NUMBER)
    return Call(sid=sid, plan=plan, outcome=OUTCOME, nth=0, placed_at=0, status=CallStatus(status))


def lead(**changes: Any) -> dict[str, Any]:
    attempt = {"run": 1, "call_id": "CA1", "number": NUMBER, "outcome": "BUSY"}
    return {
        "id": "a",
        "phone": PHONE,
        "tz": "UTC",
        "reseller": "acme",
        "status": "BACKLOG",
        "outcome": None,
        "attempts": [attempt],
        **changes,
    }


CALLS = CallEvidence(
    accepted={"a": PHONE},
    leads={"a": lead()},
    calls={"CA1": call()},
    twice={},
    peaks={NUMBER: 5},
    pauses=[],
)


def call_faults(evidence: CallEvidence) -> set[str]:
    return {line.partition(":")[0] for rule in CALL_RULES for line in rule(evidence)}


def test_correct_calls_pass() -> None:
    assert call_faults(CALLS) == set()


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("lost", {"leads": {}}),
        ("mixed up", {"leads": {"a": lead(phone="+14155550018")}}),
        ("twice", {"twice": {"a:1": 2}}),
        ("lines", {"peaks": {NUMBER: 6}}),
        ("unknown", {"calls": {"CA1": call(), "CA2": call("CA2", ref="a:2")}}),
        ("unknown", {"calls": {}}),
        ("outcome", {"calls": {"CA1": call(status="completed")}}),
        ("outcome", {"calls": {"CA1": call(status="ringing")}}),
        ("barred", {"calls": {"CA9": call("CA9", to=BARRED)}}),
        ("barred", {"leads": {"a": lead(status="FINISHED", outcome="PRECHECK_FAILED")}}),
    ],
)
def test_faults_in_calls_are_found(fault: str, changes: dict[str, Any]) -> None:
    assert fault in call_faults(replace(CALLS, **changes))


def started(**changes: Any) -> Started:
    fields = {"lead": "a", "phone": PHONE, "tz": "UTC", "reseller": "acme", "at": NOON}
    return Started(**{**fields, **changes})


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        ("", [started(), started(at=NOON + 19_999), started(at=NOON + 20_000)]),
        ("rate", [started(), started(at=NOON + 1), started(at=NOON + 19_999)]),
        ("hours", [started(tz="Asia/Tokyo")]),
        ("paused", [started(reseller="cedar", at=NOON + 1)]),
        ("", [started(reseller="cedar"), started(reseller="cedar", at=NOON + 20)]),
    ],
)
def test_calls_that_must_not_start_are_found(fault: str, calls: list[Started]) -> None:
    pause = Pause(reseller="cedar", from_at=NOON, to_at=NOON + 10)
    evidence = replace(CALLS, pauses=[pause])
    found = {line.partition(":")[0] for rule in STARTS for line in rule(evidence, calls)}
    assert found == ({fault} if fault else set())


def asked(technician: str, said: str, from_at: int, to_at: int) -> dict[str, Any]:
    return {"technician": technician, "said": said, "asked_at": from_at, "at": to_at}


def request(name: str, *turns: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "status": "assigned",
        "skills": ["gas"],
        "technician": "bob",
        "offer": None,
        "asked": list(turns),
        "finished_at": None,
        **changes,
    }


def alert(name: str) -> Text:
    plan = TextPlan(
        ref="", to="+12125550199", from_=NUMBER, text=f"no technician accepts it: {name}"
    )
    return Text(sid="SM1", plan=plan, outcome=None, nth=0, sent_at=0)


TAKEN = request("r", asked("ada", "declined", 1, 2), asked("bob", "accepted", 2, 3))
PENDING = request("p", asked("ada", "timeout", 3, 4), status="pending", technician=None)
REPAIRS = RepairEvidence(
    accepted=["r", "p"],
    requests={"r": TAKEN, "p": PENDING},
    skills={"ada": frozenset({"gas"}), "bob": frozenset({"gas", "lock"})},
    alerts=[alert("p")],
    twice={},
)


def repair_faults(**changes: Any) -> set[str]:
    evidence = replace(REPAIRS, **changes)
    return {line.partition(":")[0] for line in repair_violations(evidence)}


def test_correct_repairs_pass() -> None:
    assert repair_faults() == set()


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("lost", {"requests": {"r": TAKEN}}),
        ("unfit", {"skills": {"ada": frozenset({"gas"})}}),
        ("unfit", {"skills": {"ada": frozenset(), "bob": frozenset({"gas"})}}),
        (
            "offers",
            {"requests": {"r": TAKEN | {"offer": {"technician": "bob", "since": 2}}}},
        ),
        (
            "two",
            {
                "requests": {
                    "r": TAKEN,
                    "p": request("p", asked("bob", "declined", 9, 10), technician=None),
                }
            },
        ),
        ("winners", {"requests": {"r": TAKEN | {"technician": "ada"}}}),
        ("winners", {"requests": {"r": request("r", technician=None)}}),
        ("alerts", {"alerts": []}),
        ("alerts", {"alerts": [alert("p"), alert("p")]}),
        ("alerts", {"alerts": [alert("p"), alert("r")]}),
    ],
)
def test_faults_in_repairs_are_found(fault: str, changes: dict[str, Any]) -> None:
    assert fault in repair_faults(**changes)
