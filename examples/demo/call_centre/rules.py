"""Rules for the calls, checked on the carrier's ledger and the server's record.

The leads come from the server over HTTP, and the calls from the carrier's ledger. The engine's
record is used only for the times of the claims.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from examples.demo.call_centre.terms import (
    BARRED,
    CLOSES,
    CUSTOMER_LIMIT,
    CUSTOMER_WINDOW_MS,
    NUMBERS,
    OPENS,
)
from headway.carrier.ledger import PlacedCall
from headway.contract.views import JobView

LEAD = "lead"
OUTCOMES = {
    "completed": "COMPLETED",
    "busy": "BUSY",
    "no-answer": "NO_ANSWER",
    "failed": "FAILED",
    "canceled": "ABORT",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """A time in which a reseller was certainly paused.

    Attributes:
        reseller: The paused reseller.
        from_at: After the server's reply to the pause, ms UTC.
        to_at: Before the request to resume, ms UTC.
    """

    reseller: str
    from_at: int
    to_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The evidence at the end.

    Attributes:
        accepted: The phone of each lead that the server accepted, by id.
        leads: The server's record of the leads, by id.
        calls: Calls in the carrier's ledger, by the carrier's id.
        twice: References for which more than one call was placed.
        peaks: Maximum number of calls at once, by number.
        pauses: Pauses of resellers.
    """

    accepted: Mapping[str, str]
    leads: Mapping[str, Mapping[str, Any]]
    calls: Mapping[str, PlacedCall]
    twice: Mapping[str, int]
    peaks: Mapping[str, int]
    pauses: Sequence[Pause]


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A call that the engine started.

    Attributes:
        lead: Id of the lead.
        phone: The customer's phone.
        tz: The customer's time zone.
        reseller: The lead's reseller.
        at: When its permits were taken, ms UTC.
    """

    lead: str
    phone: str
    tz: str
    reseller: str
    at: int


def call_violations(evidence: Evidence, jobs: Mapping[str, JobView]) -> Iterator[str]:
    """Yield a line for each violation.

    Args:
        evidence: The evidence.
        jobs: All jobs of the store, by id.
    """
    for rule in RULES:
        yield from rule(evidence)
    started = list(_started(evidence, jobs))
    for check in STARTS:
        yield from check(evidence, started)


def each_lead_is_there(evidence: Evidence) -> Iterator[str]:
    """Each accepted lead exists, with its own phone."""
    for lead, phone in evidence.accepted.items():
        known = evidence.leads.get(lead)
        if known is None:
            yield f"lost: lead {lead} was accepted and is not there"
        elif known["phone"] != phone:
            yield f"mixed up: lead {lead} to {phone} has become one to {known['phone']}"


def nobody_is_called_twice(evidence: Evidence) -> Iterator[str]:
    """There is at most one call for each attempt."""
    for ref, count in evidence.twice.items():
        yield f"twice: {count} calls for the attempt {ref}"


def lines_carry_what_they_can(evidence: Evidence) -> Iterator[str]:
    """No number carries more calls than it has channels."""
    for number, channels in NUMBERS.items():
        if evidence.peaks.get(number, 0) > channels:
            yield f"lines: {number} carried {evidence.peaks[number]} calls on {channels} channels"


def each_call_is_an_attempt(evidence: Evidence) -> Iterator[str]:
    """Each call at the carrier is an attempt in the record, with the carrier's outcome."""
    known = {
        attempt["call_id"]: (lead, attempt)
        for lead in evidence.leads.values()
        for attempt in lead["attempts"]
        if attempt["call_id"]
    }
    refs = {
        f"{lead['id']}:{attempt['run']}"
        for lead in evidence.leads.values()
        for attempt in lead["attempts"]
    }
    for sid, call in evidence.calls.items():
        if call.plan.ref not in refs:
            yield f"unknown: the carrier has call {sid}, and no attempt {call.plan.ref}"
        if sid not in known:
            continue
        lead, attempt = known.pop(sid)
        if (lead["phone"], attempt["number"]) != (call.plan.to, call.plan.from_):
            yield f"mixed up: call {sid} is to {call.plan.to}, the record says {lead['phone']}"
        said = attempt["outcome"]
        if said is not None and said != OUTCOMES.get(call.status):
            yield f"outcome: call {sid} is {call.status}, the record says {said}"
    for sid in known:
        yield f"unknown: the record has call {sid}, and the carrier has not"


def barred_phones_stay_silent(evidence: Evidence) -> Iterator[str]:
    """No barred phone is called, and its leads have failed their pre-check."""
    for call in evidence.calls.values():
        if call.plan.to.startswith(BARRED):
            yield f"barred: {call.plan.to} was called"
    for lead in evidence.leads.values():
        barred = lead["phone"].startswith(BARRED)
        failed = lead["outcome"] == "PRECHECK_FAILED"
        if lead["status"] == "FINISHED" and barred != failed:
            yield f"barred: lead {lead['id']} to {lead['phone']} is {lead['outcome']}"


def nobody_is_called_too_often(_: Evidence, started: Sequence[Started]) -> Iterator[str]:
    """No phone is called more often than allowed in any window of time."""
    by_phone: defaultdict[str, list[int]] = defaultdict(list)
    for one in started:
        by_phone[one.phone].append(one.at)
    for phone, moments in by_phone.items():
        moments.sort()
        for first, last in zip(moments, moments[CUSTOMER_LIMIT:], strict=False):
            if last - first < CUSTOMER_WINDOW_MS:
                yield f"rate: {phone} was called {CUSTOMER_LIMIT + 1} times in {last - first} ms"


def nobody_is_called_at_night(_: Evidence, started: Sequence[Started]) -> Iterator[str]:
    """Calls start only during office hours in the customer's zone."""
    for one in started:
        wall = datetime.fromtimestamp(one.at / 1000, UTC).astimezone(ZoneInfo(one.tz))
        if not OPENS <= wall.hour < CLOSES:
            yield f"hours: lead {one.lead} was called at {wall:%H:%M} in {one.tz}"


def who_is_paused_starts_nothing(evidence: Evidence, started: Sequence[Started]) -> Iterator[str]:
    """No call of a reseller's leads starts while it is paused."""
    for pause in evidence.pauses:
        for one in started:
            if one.reseller == pause.reseller and pause.from_at < one.at < pause.to_at:
                yield f"paused: lead {one.lead} of {one.reseller} was called at {one.at}"


RULES: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    each_lead_is_there,
    nobody_is_called_twice,
    lines_carry_what_they_can,
    each_call_is_an_attempt,
    barred_phones_stay_silent,
)
STARTS: tuple[Callable[[Evidence, Sequence[Started]], Iterator[str]], ...] = (
    nobody_is_called_too_often,
    nobody_is_called_at_night,
    who_is_paused_starts_nothing,
)


def _started(evidence: Evidence, jobs: Mapping[str, JobView]) -> Iterator[Started]:
    for lead in evidence.leads.values():
        job = jobs.get(lead["id"])
        for run in () if job is None else job.runs:
            if run.handed_at is not None:
                yield Started(
                    lead=lead["id"],
                    phone=lead["phone"],
                    tz=lead["tz"],
                    reseller=lead["reseller"],
                    at=run.claimed_at,
                )
