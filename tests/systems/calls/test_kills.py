"""Processes killed at each step of a call; `python -m tests.torture calls` repeats this often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.calls import call_and_kill
from tests.torture.calls_judge import Reported, Story, judge
from tests.torture.calls_points import POINTS

LIMIT_S = 900
LEAD = "01a1fed3-d2ff-72a1-9673-80cd7e36a544"


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_no_kill_at_any_step_of_a_call_causes_another_call_or_keeps_a_line(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/headway.db"
    lines, violations = call_and_kill(tmp_path, url, 1, len(POINTS), lambda _: None)
    assert violations == [], lines
    assert lines[0] == f"{len(POINTS)} kills at {len(POINTS)} points of {len(POINTS)}"


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("plant", ["hand over late", "dial again"])
def test_fault_planted_in_the_dial_is_found(tmp_path: Path, plant: str) -> None:
    url = f"sqlite:///{tmp_path}/headway.db"
    _, violations = call_and_kill(tmp_path, url, 1, len(POINTS), lambda _: None, plant)
    rules = {one.rule for one in violations}
    assert rules & {"two calls for one attempt", "called by nobody", "called before the hand-over"}


def a_story() -> tuple[Story, Reported, Reported]:
    """Return a lead that was called once, its attempt, and its call."""
    attempt = {
        "n": 1,
        "run": 2,
        "call_id": "CA1",
        "number": "+15550001001",
        "outcome": "COMPLETED",
        "started_at": 1_000,
        "ended_at": 9_000,
    }
    call = {
        "sid": "CA1",
        "ref": f"{LEAD}:2",
        "from": "+15550001001",
        "status": "completed",
        "placed_at": 1_001,
        "ended_at": 8_999,
    }
    lead = {
        "id": LEAD,
        "status": "FINISHED",
        "outcome": "COMPLETED",
        "why": None,
        "attempt_count": 1,
        "attempts": [attempt],
    }
    webhook = {"event": "webhook", "ref": f"{LEAD}:2", "status": "completed"}
    ledger = {"calls": [call], "twice": {}, "peaks": {"+15550001001": 1}, "webhooks": {}}
    story = Story(sent=[LEAD], leads=[lead], ledger=ledger, witnessed=[webhook])
    return story, attempt, call


def test_correct_call_is_no_violation() -> None:
    assert judge(a_story()[0])[1] == []


def _twice(story: Story, attempt: Reported, call: Reported) -> None:
    story.ledger["twice"] = {call["ref"]: 2}
    story.ledger["calls"].append({**call, "sid": "CA2", "placed_at": 9_500, "ended_at": 9_600})


def _at_once(story: Story, attempt: Reported, call: Reported) -> None:
    story.ledger["calls"].append({**call, "ref": f"{LEAD}:3", "placed_at": 5_000})


def _unknown(story: Story, attempt: Reported, call: Reported) -> None:
    story.leads[0]["attempts"] = []


def _early(story: Story, attempt: Reported, call: Reported) -> None:
    call["placed_at"] = 999


def _freed(story: Story, attempt: Reported, call: Reported) -> None:
    attempt["ended_at"] = 8_998


def _crowded(story: Story, attempt: Reported, call: Reported) -> None:
    story.ledger["peaks"]["+15550001001"] = 5


def _another(story: Story, attempt: Reported, call: Reported) -> None:
    attempt["outcome"] = story.leads[0]["outcome"] = "BUSY"


def _nameless(story: Story, attempt: Reported, call: Reported) -> None:
    attempt["call_id"] = None


def _lost_early(story: Story, attempt: Reported, call: Reported) -> None:
    story.ledger["calls"].clear()
    attempt["outcome"] = story.leads[0]["outcome"] = "WEBHOOK_LOST"
    asked = {"event": "asked", "ref": f"{LEAD}:2", "told": "unknown", "at": 1_500}
    story.witnessed.append(asked)


def _unreported(story: Story, attempt: Reported, call: Reported) -> None:
    story.witnessed.clear()


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (_twice, "two calls for one attempt"),
        (_twice, "more calls than attempts"),
        (_at_once, "two live calls of one lead"),
        (_unknown, "called by nobody"),
        (_early, "called before the hand-over"),
        (_freed, "freed under a live call"),
        (_crowded, "crowded"),
        (_another, "another outcome"),
        (_nameless, "another call"),
        (_lost_early, "lost before its deadline"),
        (_unreported, "ended by nobody"),
    ],
)
def test_each_fault_in_a_story_of_calls_is_found(plant: object, rule: str) -> None:
    story, attempt, call = a_story()
    assert callable(plant)
    plant(story, attempt, call)
    assert rule in {one.rule for one in judge(story)[1]}
