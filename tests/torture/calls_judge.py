"""The judge of calls: compares the carrier's records with what each lead reports."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.torture.calls_site import CHANNELS, DEADLINE_MS, NUMBERS
from tests.torture.checker import Violation

OUTCOMES = {
    "completed": "COMPLETED",
    "busy": "BUSY",
    "no-answer": "NO_ANSWER",
    "failed": "FAILED",
    "canceled": "ABORT",
}
"""A lead's outcome, by its call's final status."""
REFUSED = {"FAILED", "NUMBER_UNAVAILABLE"}
"""A lead's outcome if the carrier refused to place its call."""

Reported = dict[str, Any]


@dataclass(kw_only=True, slots=True)
class Story:
    """Observations from outside.

    Attributes:
        sent: the acknowledged leads.
        leads: the server's final view of each lead.
        ledger: the carrier's final records.
        witnessed: lines written by the processes.
        wanted: number of kills requested.
        kills: kills so far.
        looks: checks of the lines during calls.
        seen_live: ongoing calls seen by these checks.
        found: violations found during the run.
    """

    sent: list[str] = field(default_factory=list[str])
    leads: list[Reported] = field(default_factory=list[Reported])
    ledger: Reported = field(default_factory=dict[str, Any])
    witnessed: list[Reported] = field(default_factory=list[Reported])
    wanted: int = 0
    kills: int = 0
    looks: int = 0
    seen_live: int = 0
    found: list[Violation] = field(default_factory=list[Violation])


def reported_in(path: Path) -> list[Reported]:
    """Return the lines of a witness's file that were not torn by a kill."""
    told: list[Reported] = []
    for line in path.read_text().splitlines():
        try:
            told.append(json.loads(line)) if line else None
        except json.JSONDecodeError:
            continue
    return told


def judge(story: Story) -> tuple[list[str], list[Violation]]:
    """Find all violations.

    Returns:
        Lines to print, and violations.
    """
    calls: dict[str, list[Reported]] = defaultdict(list)
    for call in story.ledger["calls"]:
        calls[call["ref"]].append(call)
    attempts = {
        f"{lead['id']}:{one['run']}": one for lead in story.leads for one in lead["attempts"]
    }
    found = [*story.found]
    found += [Violation("two calls for one attempt", f"{ref}") for ref in story.ledger["twice"]]
    found += [Violation("called by nobody", ref) for ref in calls.keys() - attempts.keys()]
    found += _crowded(story)
    for lead in story.leads:
        found += _of_lead(lead, calls)
    ways = _ways(story)
    for ref, attempt in attempts.items():
        found += _of_attempt(ref, attempt, calls.get(ref, []), ways)
    # A violation seen several times is reported once.
    return [*_lines(story, attempts, ways)], list(dict.fromkeys(found))


def _crowded(story: Story) -> Iterator[Violation]:
    for number, peak in story.ledger["peaks"].items():
        if number not in NUMBERS or peak > CHANNELS:
            yield Violation("crowded", f"{number} carried {peak} calls")


def _of_lead(lead: Reported, calls: dict[str, list[Reported]]) -> Iterator[Violation]:
    if lead["status"] != "FINISHED":
        yield Violation("not finished", f"{lead['id']}: {lead['status']}, {lead['why']}")
        return
    attempts = lead["attempts"]
    if lead["attempt_count"] != len(attempts):
        yield Violation("count", f"{lead['id']}: {lead['attempt_count']} and {len(attempts)}")
    if not attempts or lead["outcome"] != attempts[-1]["outcome"]:
        yield Violation("outcome", f"{lead['id']}: {lead['outcome']} of {attempts[-1:]}")
    own = [one for ref, some in calls.items() if ref.startswith(lead["id"]) for one in some]
    if len(own) > len(attempts):
        yield Violation("more calls than attempts", f"{lead['id']}: {len(own)}, {len(attempts)}")
    own.sort(key=lambda one: one["placed_at"])
    for first, second in pairwise(own):
        if first["ended_at"] is None or second["placed_at"] < first["ended_at"]:
            yield Violation("two live calls of one lead", f"{first['ref']} and {second['ref']}")


@dataclass(kw_only=True, slots=True)
class _Ways:
    """How the end of each attempt became known, by the attempt's reference.

    Attributes:
        reported: attempts whose end was reported by a webhook.
        asked: queries to the provider, and when.
    """

    reported: set[str] = field(default_factory=set[str])
    asked: dict[str, list[Reported]] = field(default_factory=lambda: defaultdict(list))


def _ways(story: Story) -> _Ways:
    ways = _Ways()
    for one in story.witnessed:
        if one["event"] == "webhook" and one["status"] in OUTCOMES:
            ways.reported.add(one["ref"])
        elif one["event"] == "asked":
            ways.asked[one["ref"]].append(one)
    return ways


def _of_attempt(
    ref: str, attempt: Reported, calls: list[Reported], ways: _Ways
) -> Iterator[Violation]:
    outcome, said = attempt["outcome"], f"{ref} says {attempt}"
    if outcome is None or attempt["ended_at"] is None:
        yield Violation("an attempt without an end", said)
        return
    asked = ways.asked[ref]
    if outcome == "WEBHOOK_LOST":
        due = attempt["started_at"] + DEADLINE_MS
        if not any(one["told"] == "unknown" and one["at"] >= due for one in asked):
            yield Violation("lost before its deadline", said)
    if calls:
        yield from _of_call(attempt, calls[0], said)
    elif outcome not in {*REFUSED, "WEBHOOK_LOST"}:
        yield Violation("a call that never was", said)
    if calls and ref not in ways.reported and not asked:
        yield Violation("ended by nobody", said)


def _of_call(attempt: Reported, call: Reported, said: str) -> Iterator[Violation]:
    if call["ended_at"] is None or attempt["ended_at"] < call["ended_at"]:
        yield Violation("freed under a live call", f"{said}, which ends at {call['ended_at']}")
    if call["placed_at"] < attempt["started_at"]:
        yield Violation("called before the hand-over", said)
    if attempt["outcome"] != OUTCOMES.get(call["status"]):
        yield Violation("another outcome", f"{said}, and the call is {call['status']}")
    if attempt["call_id"] != call["sid"] or attempt["number"] != call["from"]:
        yield Violation("another call", f"{said}, and the call is {call['sid']}")


def _lines(story: Story, attempts: dict[str, Reported], ways: _Ways) -> Iterator[str]:
    calls = story.ledger["calls"]
    outcomes = Counter(str(one["outcome"]) for one in attempts.values())
    yield (
        f"{len(story.sent)} leads, {len(attempts)} attempts, {len(calls)} calls; "
        f"{len(story.ledger['twice'])} attempts with two"
    )
    yield "attempts: " + ", ".join(f"{count} {one}" for one, count in sorted(outcomes.items()))
    posts = story.ledger["webhooks"]
    yield "webhooks: " + ", ".join(f"{count} {one}" for one, count in sorted(posts.items()))
    webhooks = Counter(
        one["answer"] for one in story.witnessed if one["event"] == "webhook applied"
    )
    yield (
        f"of those {webhooks['late']} were of calls that were over for their lead, "
        f"{webhooks['already']} had come before, {webhooks['kept']} came before the hand-over"
    )
    told = Counter(one["told"] for asked in ways.asked.values() for one in asked)
    live = sum(told[one] for one in ("queued", "ringing", "in-progress"))
    yield (
        f"the provider was asked {told.total()} times about {len(ways.asked)} attempts: "
        f"{live} went on and were kept, {told['unknown']} it did not know, "
        f"{told['nothing']} it could not tell"
    )
    quiet = [ref for ref in attempts if ref not in ways.reported and ref in ways.asked]
    yield f"of {len(quiet)} no webhook told the end; lines looked at {story.looks} times, " + (
        f"under {story.seen_live} calls that went on"
    )
