"""The rules by which the demo checks its notifications detect faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from examples.demo.newsroom.rules import Evidence, Issue, issue_violations


def issue(number: int, reader: str, category: str = "news", *, unwanted: bool = False) -> Issue:
    id_ = f"id-{number}"
    return Issue(number=number, id=id_, reader=reader, category=category, unwanted=unwanted)


def known(status: str = "SENT", reason: str = "") -> dict[str, Any]:
    return {"status": status, "reason": reason}


RIGHT = Evidence(
    asked=5,
    issues={
        1: issue(1, "a"),
        2: issue(2, "b", unwanted=True),
        3: issue(3, "b", "otp"),
        4: issue(4, "a"),
    },
    notifications={
        "id-1": known(),
        "id-2": known("SKIPPED", "opted out"),
        "id-3": known(),
        "id-4": known("SENT", "sent, answer lost"),
    },
    taken={1: 1, 3: 1, 5: 1},
    opted_out={"b"},
    faults=(),
)


def faults(evidence: Evidence) -> set[str]:
    return {line.partition(":")[0] for line in issue_violations(evidence)}


def test_correct_notifications_pass() -> None:
    assert faults(RIGHT) == set()


def with_one(name: str, status: str) -> dict[str, Any]:
    return {"notifications": {**RIGHT.notifications, name: known(status)}}


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("duplicate", {"faults": ("issue 1 was sent again",)}),
        ("lost", {"notifications": {}}),
        ("not done", with_one("id-1", "QUEUED")),
        ("not done", with_one("id-1", "FAILED")),
        ("arrived", {"taken": {1: 2, 3: 1}}),
        ("arrived", {"taken": {3: 1}}),
        ("arrived", with_one("id-4", "SENT")),
        ("unwanted", {"taken": {1: 1, 2: 1, 3: 1}}),
        ("left out", with_one("id-3", "SKIPPED")),
        ("left out", with_one("id-1", "SKIPPED")),
        ("from nowhere", {"taken": {**RIGHT.taken, 9: 1}}),
    ],
)
def test_faults_in_notifications_are_found(fault: str, changes: dict[str, Any]) -> None:
    assert fault in faults(replace(RIGHT, **changes))
