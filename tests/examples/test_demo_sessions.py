"""The rules by which the demo checks its sessions detect faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from examples.demo.automations.rules import Line, Written, session_violations

AT = 1_700_000_000


def session(automation: str, job: int) -> str:
    return f"cron:{automation}:{job}"


def line(word: str, automation: str, job: int, garden: str, after_s: int) -> Line:
    return Line.read(f"{word} {session(automation, job)} {garden} {AT + after_s}")


def job_row(
    due_s: int, *, state: str = "succeeded", reason: str = "", took_s: int = 1
) -> dict[str, Any]:
    due_at = (AT + due_s) * 1000
    return {
        "state": state,
        "reason": reason,
        "due_at": due_at,
        "finished_at": due_at + took_s * 1000,
    }


LINES = (
    line("began", "water", 1, "beans", 0),
    line("began", "prune", 2, "roses", 0),
    line("alive", "prune", 2, "roses", 0),
    line("ended", "water", 1, "beans", 1),
    line("alive", "prune", 2, "roses", 1),
    line("began", "water", 3, "beans", 2),
    line("ended", "water", 3, "beans", 5),
    line("began", "water", 5, "beans", 6),
    line("ended", "water", 5, "beans", 6),
)
JOBS = {
    session("water", 1): job_row(0),
    session("prune", 2): job_row(0, state="dead", reason="timeout"),
    session("water", 3): job_row(2, took_s=3),
    session("water", 4): job_row(4, state="cancelled", reason="folded", took_s=0),
    session("water", 5): job_row(6),
}
RIGHT = Written(
    limit=2,
    stubborn="prune",
    lines=LINES,
    commits={
        "beans": [*(f"water {session('water', job)}" for job in (5, 3, 1)), "Begin"],
        "roses": ["Begin"],
    },
    sessions=JOBS,
    by_hand=(session("water", 1),),
    periods_ms={"water": 2_000},
)


def faults(written: Written) -> set[str]:
    return {found.partition(":")[0] for found in session_violations(written)}


def test_correct_sessions_pass() -> None:
    assert faults(RIGHT) == set()


def without(job: int) -> dict[str, Any]:
    return {name: one for name, one in JOBS.items() if not name.endswith(f":{job}")}


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("unknown", {"sessions": without(5)}),
        ("twice", {"lines": (LINES[0], *LINES)}),
        ("not done", {"lines": LINES[:-1]}),
        ("not done", {"sessions": JOBS | {session("water", 5): job_row(6, state="dead")}}),
        ("not killed", {"sessions": JOBS | {session("prune", 2): job_row(0)}}),
        ("not killed", {"lines": (*LINES, line("ended", "prune", 2, "roses", 9))}),
        ("lost", {"by_hand": (session("water", 9),)}),
        ("two", {"lines": (*LINES, line("alive", "water", 1, "beans", 9))}),
        ("limit", {"limit": 1}),
        ("commits", {"commits": {**RIGHT.commits, "roses": []}}),
        ("commits", {"commits": {**RIGHT.commits, "beans": RIGHT.commits["beans"][1:]}}),
        ("early", {"sessions": JOBS | {session("water", 5): job_row(8)}}),
        ("schedule", {"sessions": JOBS | {session("water", 5): job_row(5)}}),
        ("schedule", {"sessions": without(4)}),
        (
            "folded",
            {"sessions": JOBS | {session("water", 3): job_row(2), session("water", 1): job_row(0)}},
        ),
    ],
)
def test_faults_in_sessions_are_found(fault: str, changes: dict[str, Any]) -> None:
    assert fault in faults(replace(RIGHT, **changes))
