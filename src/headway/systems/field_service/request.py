"""Service requests: their jobs' arguments and their status; names of lanes, kinds and gates.

A request is stored only as a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import msgspec

from headway.contract.operate import Verb
from headway.contract.views import JobView, RunView
from headway.core.job import DEFAULT_PRIORITY
from headway.core.naming import whole_number
from headway.core.state import State
from headway.systems.jobs import can_read, find_run

NAME = "field_service"
"""Name of the system, of its settings table and of its context."""

OFFERS = "offers"
"""Lane of the requests; a run is one turn."""
AFTER = "offers.after"
"""Lane of follow-up jobs."""
RINGS = "rings"
"""Lane of calls and messages."""

OFFER = "offer"
OFFER_TAKEN = "offer_taken"
OFFER_ENDED = "offer_ended"
REVIEW = "offer_review"
FORMER_REVIEW = "offer_look_over"
"""The former name of this kind, which a store may still have jobs of."""
RING = "ring"
TEXT = "ring_text"
RING_ENDED = "ring_ended"
ALERT = "alert_dispatcher"

LINES = "field.lines"
"""Pool of phone lines."""

TECHNICIAN = "technician:{candidate}"
"""Lock on a technician, held by the request that is offered to them or that they have."""
CALL_TO = "technician.call:{candidate}"
"""Lock on calls to a technician, held from before the offer until the call has ended."""

NUMBER_REFUSED = "number refused"
"""Prefix of the reason if the provider refused the number that a call or message came from."""


def lock_of(technician: str) -> str:
    """Return the name of the lock on a technician."""
    return f"technician:{technician}"


def call_to(technician: str) -> str:
    """Return the name of the lock on calls to a technician."""
    return f"technician.call:{technician}"


class Urgency(StrEnum):
    """How soon a technician is needed."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    EMERGENCY = "emergency"


PRIORITIES: Mapping[Urgency, int] = MappingProxyType(
    {
        Urgency.LOW: 2 * DEFAULT_PRIORITY,
        Urgency.NORMAL: DEFAULT_PRIORITY,
        Urgency.HIGH: DEFAULT_PRIORITY // 2,
        Urgency.EMERGENCY: DEFAULT_PRIORITY // 4,
    }
)
"""Priority of a request, its calls and its alerts; smaller ones start first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Customer:
    """The customer of a request.

    Attributes:
        phone: phone number in E.164 format.
    """

    name: str
    phone: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """A geographic position.

    Attributes:
        lat: latitude in degrees north, -90 to 90.
        lon: longitude in degrees east, -180 to 180.
    """

    lat: float
    lon: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Assigned:
    """A dispatcher's assignment.

    Attributes:
        had: technician from whom the request is taken; empty if there is none.
    """

    to: str
    by: str
    had: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The arguments of a request's job.

    Attributes:
        skills: required skills, all of them.
        address: for people; may be empty.
        description: for people; may be empty.
        assigned: None until a dispatcher assigns the request.
    """

    customer: Customer
    position: Position
    skills: tuple[str, ...] = ()
    urgency: Urgency = Urgency.NORMAL
    address: str = ""
    description: str = ""
    assigned: Assigned | None = None


read_request = msgspec.json.Decoder(Request).decode
"""Decode a request from its job's arguments."""
args_of: Callable[[Request], bytes] = msgspec.json.Encoder().encode
"""Encode a request as its job's arguments."""


def is_request(job: JobView) -> bool:
    """Return whether a job is a service request.

    Callers of other lanes can create jobs of any kind there, with any content.
    """
    return job.kind == OFFER and job.lane == OFFERS and can_read(read_request, job)


class Status(StrEnum):
    """The status of a request."""

    DISPATCHING = "dispatching"
    """It is being offered, or soon will be."""
    ASSIGNED = "assigned"
    """A technician has accepted it, or was assigned by a dispatcher."""
    PENDING = "pending"
    """No technician accepts it; dispatchers were alerted."""
    COMPLETED = "completed"
    CANCELLED = "cancelled"


STATES: dict[Status, tuple[State, ...]] = {
    Status.DISPATCHING: (
        State.SCHEDULED,
        State.WAITING,
        State.PARKED,
        State.RUNNING,
        State.AWAITING,
    ),
    Status.ASSIGNED: (State.AWAITING,),
    Status.PENDING: (State.DEAD,),
    Status.COMPLETED: (State.SUCCEEDED,),
    Status.CANCELLED: (State.CANCELLED,),
}
"""Possible job states of each status."""


def status_of(job: JobView) -> Status:
    """Return the status of a request."""
    match job.state:
        case State.DEAD:
            return Status.PENDING
        case State.SUCCEEDED:
            return Status.COMPLETED
        case State.CANCELLED:
            return Status.CANCELLED
        case _ if job.cancel_requested:
            # It will end cancelled, whatever its run or a signal reports.
            return Status.CANCELLED
        case State.AWAITING if acceptor(job):
            return Status.ASSIGNED
        case _:
            return Status.DISPATCHING


def acceptor(job: JobView) -> str:
    """Return the technician who accepted the request, or an empty string."""
    return job.cascade.accepted if job.cascade is not None else ""


def dispatched_at(job: JobView) -> int:
    """Return when a request was created or last retried by a dispatcher; reads the job's trail."""
    again = (one.at for one in job.trail if one.what.startswith(Verb.RETRY))
    return max(again, default=job.created_at)


def is_open(job: JobView) -> bool:
    """Return whether an offer is open and unanswered."""
    return job.state is State.AWAITING and not acceptor(job) and not job.cancel_requested


def last_run(job: JobView) -> RunView | None:
    """Return the run of the last claim."""
    return find_run(job, job.run)


def asked_now(job: JobView) -> str:
    """Return the technician whose answer is awaited, or an empty string."""
    run = last_run(job)
    return run.candidate if run is not None and is_open(job) else ""


def run_of(ref: str) -> tuple[str, int]:
    """Return the job id and the run of a reference that this system made."""
    job, _, run = ref.rpartition(":")
    return job, int(run)


class _Args(msgspec.Struct):
    offer: str = ""
    user: str = ""


_decode_args = msgspec.json.Decoder(_Args).decode


def offer_of(ring: JobView) -> str:
    """Return the reference of the offer that a call or message makes, or an empty string.

    Callers of other lanes can create jobs of any kind there, with any offer in their arguments.
    """
    if ring.lane != RINGS or not can_read(_decode_args, ring):
        return ""
    offer = _decode_args(ring.args).offer
    request, _, run = offer.rpartition(":")
    return offer if request and whole_number(run) is not None else ""


def user_of(alert: JobView) -> str:
    """Return the id of the user whom an alert is for."""
    return _decode_args(alert.args).user
