"""Rules for the repairs, checked on the server's replies and the carrier's ledger."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headway.carrier.ledger import TextMessage
from headway.contract.views import JobView
from headway.core.state import FINAL

FAR_AT = 2**62


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The evidence at the end.

    Attributes:
        accepted: Ids of all requests that the server accepted.
        requests: The server's record of the requests, by id.
        skills: Skills of the technicians on duty, by id.
        alerts: Messages to the dispatcher.
        awaited: Ids of the requests that were pending when their messages were last awaited.
        twice: References for which more than one call was placed.
    """

    accepted: Sequence[str]
    requests: Mapping[str, Mapping[str, Any]]
    skills: Mapping[str, frozenset[str]]
    alerts: Sequence[TextMessage]
    awaited: Set[str]
    twice: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """A time in which a technician had an offer or a request.

    Attributes:
        request: Id of the request.
        technician: Id of the technician.
        from_at: Start, ms UTC.
        to_at: End, ms UTC; `FAR_AT` if it has not ended.
    """

    request: str
    technician: str
    from_at: int
    to_at: int


def repair_violations(evidence: Evidence, jobs: Mapping[str, JobView]) -> Iterator[str]:
    """Yield a line for each violation.

    Args:
        evidence: The evidence.
        jobs: All jobs of the store, by id.
    """
    for rule in RULES:
        yield from rule(evidence)
    yield from the_dispatcher_is_alerted_once(evidence, jobs)


def each_request_is_there(evidence: Evidence) -> Iterator[str]:
    """Each accepted request exists."""
    for request in evidence.accepted:
        if request not in evidence.requests:
            yield f"lost: request {request} was accepted and is not there"


def only_who_can_is_asked(evidence: Evidence) -> Iterator[str]:
    """Requests are offered only to technicians on duty who have the skills."""
    for request in evidence.requests.values():
        for asked in request["asked"]:
            has = evidence.skills.get(asked["technician"])
            if has is None or not has.issuperset(request["skills"]):
                yield f"unfit: {asked['technician']} was asked about request {request['id']}"


def one_is_asked_at_a_time(evidence: Evidence) -> Iterator[str]:
    """An offer of a request starts after the previous offer has ended."""
    for request in evidence.requests.values():
        offers = sorted(_offers(request), key=_begin)
        for before, after in pairwise(offers):
            if after.from_at < before.to_at:
                yield f"offers: request {before.request} is offered twice at {after.from_at}"


def nobody_has_two(evidence: Evidence) -> Iterator[str]:
    """A technician with an offer or a request gets no other offer."""
    holds: defaultdict[str, list[Hold]] = defaultdict(list)
    for request in evidence.requests.values():
        for hold in (*_offers(request), *_assignments(request)):
            holds[hold.technician].append(hold)
    for technician, held in holds.items():
        for before, after in pairwise(sorted(held, key=_begin)):
            if after.request != before.request and after.from_at < before.to_at:
                yield f"two: {technician} has {before.request} and {after.request}"


def one_wins(evidence: Evidence) -> Iterator[str]:
    """A request is accepted once, by the technician it is assigned to."""
    for request in evidence.requests.values():
        winners = [one["technician"] for one in request["asked"] if one["said"] == "accepted"]
        had = [] if request["technician"] is None else [request["technician"]]
        if winners != had:
            yield f"winners: request {request['id']} was accepted by {winners}, and is of {had}"
        if request["status"] in {"assigned", "completed"} and not had:
            yield f"winners: request {request['id']} is {request['status']}, and has no technician"


def the_dispatcher_is_alerted_once(
    evidence: Evidence, jobs: Mapping[str, JobView]
) -> Iterator[str]:
    """The dispatcher has one message for each pending request, and for no other.

    A cancelled request may have been pending before, and have a message. The message may be missing
    if the request became pending while the demo was ending, and its job is in the store.
    """
    unfinished = {_alerted_by(job) for job in jobs.values() if job.state not in FINAL}
    for request in evidence.requests.values():
        name, status = request["id"], request["status"]
        alerts = sum(name in one.plan.text for one in evidence.alerts)
        wanted = {"pending": {1}, "cancelled": {0, 1}}.get(status, {0})
        if status == "pending" and name in unfinished - evidence.awaited:
            wanted = {0, 1}
        if alerts not in wanted:
            yield f"alerts: {alerts} for request {name}, which is {status}"


def _alerted_by(job: JobView) -> str | None:
    """Return the request about which a job alerts the dispatcher, or None."""
    if job.kind == "offer_ended":
        return str(json.loads(job.args)["job"])
    return job.subject if job.kind == "alert_dispatcher" else None


RULES: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    each_request_is_there,
    only_who_can_is_asked,
    one_is_asked_at_a_time,
    nobody_has_two,
    one_wins,
)


def _begin(hold: Hold) -> int:
    return hold.from_at


def _offers(request: Mapping[str, Any]) -> Iterator[Hold]:
    for asked in request["asked"]:
        if asked["asked_at"] is not None:
            yield Hold(
                request=request["id"],
                technician=asked["technician"],
                from_at=asked["asked_at"],
                to_at=asked["at"],
            )
    if request["offer"] is not None:
        yield Hold(
            request=request["id"],
            technician=request["offer"]["technician"],
            from_at=request["offer"]["since"],
            to_at=FAR_AT,
        )


def _assignments(request: Mapping[str, Any]) -> Iterator[Hold]:
    for asked in request["asked"]:
        if asked["said"] == "accepted":
            yield Hold(
                request=request["id"],
                technician=asked["technician"],
                from_at=asked["at"],
                to_at=request["finished_at"] or FAR_AT,
            )
