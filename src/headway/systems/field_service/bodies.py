"""The request bodies of this system."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.server.bodies.base import Body, FailFastList, Name, Span, Text
from headway.systems.field_service.records import Word
from headway.systems.field_service.request import Customer, Position, Urgency
from headway.systems.telephony.phone import Phone

TechnicianId = Annotated[str, Field(min_length=1, max_length=64, examples=["ada"])]
"""The id of a technician."""

OfferSpan = Annotated[Span, Field(ge=1)]
"""An offer timeout, not 0."""

AnyUrgency = Annotated[Urgency, Field(strict=False)]


class CustomerBody(Body):
    """The customer of a request."""

    name: str = Field(
        min_length=1, max_length=200, description="Name of the customer.", examples=["Bo Li"]
    )
    phone: Phone = Field(description="Phone number, in E.164 format.")

    def read(self) -> Customer:
        """Return the customer of the request."""
        return Customer(name=self.name, phone=self.phone)


class PositionBody(Body):
    """A place on the earth."""

    lat: float = Field(ge=-90, le=90, description="Latitude in degrees north.", examples=[52.52])
    lon: float = Field(ge=-180, le=180, description="Longitude in degrees east.", examples=[13.405])

    def read(self) -> Position:
        """Return the position of the request."""
        return Position(lat=self.lat, lon=self.lon)


class RequestBody(Body):
    """A customer's request form."""

    customer: CustomerBody
    address: str = Field(
        default="",
        max_length=500,
        description="Address, for people. Without `position`, its position is looked up.",
        examples=["Alexanderplatz 1, Berlin"],
    )
    position: PositionBody | None = Field(
        default=None, description="Position; without it, `address` is required."
    )
    skills: FailFastList[Word] = Field(
        default=[],
        max_length=50,
        description="Skills that the technician must have, all of them.",
        examples=[["boiler"]],
    )
    urgency: AnyUrgency = Field(
        default=Urgency.NORMAL, description="How soon a technician is needed."
    )
    description: Text = Field(
        default="", description="Description of the work, for people.", examples=["no hot water"]
    )
    key: Name | None = Field(
        default=None, description="However often this is sent, one request is created."
    )


class AnswerBody(Body):
    """A technician's answer."""

    technician: TechnicianId = Field(description="Technician who answers.")
    event: Name | None = Field(
        default=None,
        description="Id of the answer, the same for a repeat. Defaults to one derived from the "
        "offer.",
    )


class AssignBody(Body):
    """A dispatcher's decision."""

    technician: TechnicianId = Field(description="Technician who gets the request.")
    by: Name | None = Field(
        default=None, description="Dispatcher who decides (default: name of the token)."
    )
    wait: bool = Field(default=False, description="Wait for a busy technician instead of refusing.")


class TimesBody(Body):
    """How long offers stay open, from the next one on."""

    offer_timeout: OfferSpan | None = Field(
        default=None,
        description="Time for urgencies without one of their own; null for the value in the file.",
    )
    urgency: dict[AnyUrgency, OfferSpan] = Field(
        default={}, description="Time by urgency; omitted ones have the value in the file."
    )
