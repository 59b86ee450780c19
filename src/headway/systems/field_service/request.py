"""A service request, as its job carries it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class Urgency(StrEnum):
    """How soon somebody is needed."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    EMERGENCY = "emergency"


@dataclass(frozen=True, kw_only=True, slots=True)
class Customer:
    """Who asked.

    Attributes:
        name: for people.
        phone: E.164.
    """

    name: str
    phone: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """A place on the earth.

    Attributes:
        lat: degrees north, -90 to 90.
        lon: degrees east, -180 to 180.
    """

    lat: float
    lon: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Assigned:
    """A dispatcher's decision.

    Attributes:
        to: the technician's id.
        by: who decided.
        had: the technician whom it is taken from; empty for nobody.
    """

    to: str
    by: str
    had: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a request's job carries.

    Attributes:
        customer: who asked.
        position: where.
        skills: all of which are needed.
        urgency: how soon.
        address: for people; may be empty.
        description: for people; may be empty.
        assigned: to whom a dispatcher gave it; None while it is offered.
    """

    customer: Customer
    position: Position
    skills: tuple[str, ...] = ()
    urgency: Urgency = Urgency.NORMAL
    address: str = ""
    description: str = ""
    assigned: Assigned | None = None


_decode = msgspec.json.Decoder(Request).decode
_encode = msgspec.json.Encoder().encode


def read_request(args: bytes) -> Request:
    """The request of a job's arguments."""
    return _decode(args)


def args_of(request: Request) -> bytes:
    """The arguments of a request's job."""
    return _encode(request)
