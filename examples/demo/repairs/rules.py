"""What must hold of the repairs: checked on the server's replies and the carrier's ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headway.carrier.ledger import Text

FAR_AT = 2**62


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What is known when all is over.

    Attributes:
        accepted: the ids of all requests that the server said it has.
        requests: what the server says of them, by id.
        skills: of each technician on duty, by id.
        alerts: the messages that the dispatcher got.
        twice: the references for which more than one call was placed.
    """

    accepted: Sequence[str]
    requests: Mapping[str, Mapping[str, Any]]
    skills: Mapping[str, frozenset[str]]
    alerts: Sequence[Text]
    twice: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """A time in which a technician was asked, or had a request.

    Attributes:
        request: by id.
        technician: by id.
        from_at: when it began, ms UTC.
        to_at: when it ended; far away if it has not.
    """

    request: str
    technician: str
    from_at: int
    to_at: int


def repair_violations(evidence: Evidence) -> Iterator[str]:
    """What is wrong with the repairs.

    Yields:
        A line for each violation; none, unless there is a bug.
    """
    for rule in RULES:
        yield from rule(evidence)


def each_request_is_there(evidence: Evidence) -> Iterator[str]:
    """What was accepted is there."""
    for request in evidence.accepted:
        if request not in evidence.requests:
            yield f"lost: request {request} was accepted and is not there"


def only_who_can_is_asked(evidence: Evidence) -> Iterator[str]:
    """A technician who is asked is on duty and has the skills."""
    for request in evidence.requests.values():
        for asked in request["asked"]:
            has = evidence.skills.get(asked["technician"])
            if has is None or not has.issuperset(request["skills"]):
                yield f"unfit: {asked['technician']} was asked about request {request['id']}"


def one_is_asked_at_a_time(evidence: Evidence) -> Iterator[str]:
    """Of one request, an offer begins after the one before has ended."""
    for request in evidence.requests.values():
        offers = sorted(_offers(request), key=_begin)
        for before, after in pairwise(offers):
            if after.from_at < before.to_at:
                yield f"offers: request {before.request} is offered twice at {after.from_at}"


def nobody_has_two(evidence: Evidence) -> Iterator[str]:
    """A technician who is asked, or has a request, is not asked about another one."""
    holds: defaultdict[str, list[Hold]] = defaultdict(list)
    for request in evidence.requests.values():
        for hold in (*_offers(request), *_assignments(request)):
            holds[hold.technician].append(hold)
    for technician, held in holds.items():
        for before, after in pairwise(sorted(held, key=_begin)):
            if after.request != before.request and after.from_at < before.to_at:
                yield f"two: {technician} has {before.request} and {after.request}"


def one_wins(evidence: Evidence) -> Iterator[str]:
    """A request is accepted once, and by the one who has it."""
    for request in evidence.requests.values():
        winners = [one["technician"] for one in request["asked"] if one["said"] == "accepted"]
        had = [] if request["technician"] is None else [request["technician"]]
        if winners != had:
            yield f"winners: request {request['id']} was accepted by {winners}, and is of {had}"
        if request["status"] in {"assigned", "completed"} and not had:
            yield f"winners: request {request['id']} is {request['status']}, and has no technician"


def the_dispatcher_is_alerted_once(evidence: Evidence) -> Iterator[str]:
    """The dispatcher has one message for each pending request, and for no other.

    One that the customer has cancelled may have been pending before.
    """
    for request in evidence.requests.values():
        alerts = sum(request["id"] in one.plan.text for one in evidence.alerts)
        wanted = int(request["status"] == "pending")
        if alerts != wanted and not (request["status"] == "cancelled" and alerts == 1):
            yield f"alerts: {alerts} for request {request['id']}, which is {request['status']}"


RULES: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    each_request_is_there,
    only_who_can_is_asked,
    one_is_asked_at_a_time,
    nobody_has_two,
    one_wins,
    the_dispatcher_is_alerted_once,
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
