"""Views of requests, derived from their jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Path, Response

from headway.contract.views import JobView
from headway.core.cascade import Asked
from headway.core.state import FINAL
from headway.server.caller import Caller
from headway.server.replies import answer, reply_model
from headway.server.service import Service
from headway.systems.field_service.passing_over import PASSED_OVER
from headway.systems.field_service.request import (
    NUMBER_REFUSED,
    Customer,
    Position,
    Status,
    acceptor,
    asked_now,
    dispatched_at,
    is_request,
    last_run,
    read_request,
    status_of,
)
from headway.systems.jobs import system_job


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedView:
    """A technician who has had a turn.

    Attributes:
        said: accepted, declined, timeout, unfit, passed_over, or failed: the provider refused the
            number that the offer was to come from.
        reason: reason for the answer; may be empty.
        asked_at: when the offer was made; None if there was none.
    """

    technician: str
    said: str
    reason: str
    asked_at: int | None
    at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenOffer:
    """The open offer.

    Attributes:
        until: when the next technician is asked.
        left_ms: time until then.
    """

    technician: str
    since: int
    until: int
    left_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceRequest:
    """A service request.

    Attributes:
        skills: required skills.
        key: key under which it was sent; None if there is none.
        technician: technician who has it, or had it; None if there was none.
        offer: open offer; None if there is none.
        asked: technicians who have had a turn since it was last dispatched, oldest first.
        left: technicians still to be asked, in order.
        reason: reason for its end, or for the end of its last turn.
        finished_at: when it ended; None until then.
        dispatched: 1, plus one for each time it was dispatched again or assigned.
    """

    id: str
    status: Status
    customer: Customer
    address: str
    position: Position
    skills: tuple[str, ...]
    urgency: str
    description: str
    key: str | None
    technician: str | None
    offer: OpenOffer | None
    asked: tuple[AskedView, ...]
    left: tuple[str, ...]
    reason: str
    created_at: int
    finished_at: int | None
    dispatched: int


def service_request(job: JobView, now: int) -> ServiceRequest:
    """Return a request as the API shows it.

    Args:
        job: with its runs, and with its trail for technicians who were passed over.
    """
    request = read_request(job.args)
    cascade = job.cascade
    turn = asked_now(job)
    left = () if cascade is None or job.state in FINAL else cascade.left
    return ServiceRequest(
        id=job.id,
        status=status_of(job),
        customer=request.customer,
        address=request.address,
        position=request.position,
        skills=request.skills,
        urgency=str(request.urgency),
        description=request.description,
        key=job.key,
        technician=acceptor(job) or None,
        offer=_open_offer(job, turn, now),
        asked=_asked(job),
        left=tuple(name for name in left if name != turn),
        reason=job.reason,
        created_at=job.created_at,
        finished_at=job.finished_at,
        dispatched=job.life,
    )


def _open_offer(job: JobView, turn: str, now: int) -> OpenOffer | None:
    run = last_run(job)
    if not turn or run is None or run.handed_at is None or job.deadline_at is None:
        return None
    return OpenOffer(
        technician=turn,
        since=run.handed_at,
        until=job.deadline_at,
        left_ms=max(0, job.deadline_at - now),
    )


def _asked(job: JobView) -> tuple[AskedView, ...]:
    asked = job.cascade.asked if job.cascade is not None else ()
    found = [_had_turn(job, one) for one in asked]
    began_at = dispatched_at(job)
    found += [
        AskedView(
            technician=name,
            said="passed_over",
            reason="has another request",
            asked_at=None,
            at=note.at,
        )
        for note in job.trail
        if note.reason.startswith(PASSED_OVER) and note.at >= began_at
        for name in note.reason.removeprefix(PASSED_OVER).split(", ")
    ]
    return tuple(sorted(found, key=lambda one: one.at))


def _had_turn(job: JobView, asked: Asked) -> AskedView:
    run = next(
        (
            one
            for one in reversed(job.runs)
            if one.candidate == asked.candidate and one.claimed_at <= asked.at
        ),
        None,
    )
    return AskedView(
        technician=asked.candidate,
        said="failed" if asked.reason.startswith(NUMBER_REFUSED) else str(asked.answer),
        reason=asked.reason,
        asked_at=run.handed_at if run is not None else None,
        at=asked.at,
    )


REQUEST = reply_model(ServiceRequest)

RequestId = Annotated[str, Path(alias="id")]
"""The id of a request in a path."""


async def find_request(service: Service, caller: Caller, request: str) -> JobView:
    """Return the job of a request that the caller may see.

    Raises:
        UnknownRecord: there is no such request.
    """
    noun, hint = "service request", "GET /service-requests lists them"
    return await system_job(service.store, caller, is_request, request, noun=noun, hint=hint)


async def respond_with(service: Service, job: JobView, status: int = 200) -> Response:
    """Return the HTTP reply that shows a request."""
    return answer(service_request(job, await service.now()), status)
