"""What requests to this system say."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from headway.server.bodies.base import Body, FailFastList, Name, Span, Text
from headway.systems.field_service.records import Word
from headway.systems.field_service.request import Customer, Position, Urgency
from headway.systems.field_service.settings import not_zero
from headway.systems.telephony.phone import Phone

TechnicianId = Annotated[str, Field(min_length=1, max_length=64, examples=["ada"])]
"""The id of a technician."""

OfferSpan = Annotated[Span, AfterValidator(not_zero)]
"""How long an offer stands: not 0."""

AnyUrgency = Literal["low", "normal", "high", "emergency"]


class CustomerBody(Body):
    """The customer of a request."""

    name: str = Field(min_length=1, max_length=200, description="For people.", examples=["Bo Li"])
    phone: Phone = Field(description="E.164.")

    def read(self) -> Customer:
        """Return the customer of the request."""
        return Customer(name=self.name, phone=self.phone)


class PositionBody(Body):
    """A place on the earth."""

    lat: float = Field(ge=-90, le=90, description="Degrees north.", examples=[52.52])
    lon: float = Field(ge=-180, le=180, description="Degrees east.", examples=[13.405])

    def read(self) -> Position:
        """Return the position of the request."""
        return Position(lat=self.lat, lon=self.lon)


class RequestBody(Body):
    """A customer's request form."""

    customer: CustomerBody
    address: str = Field(
        default="",
        max_length=500,
        description="For people; without `position` it is looked up.",
        examples=["Alexanderplatz 1, Berlin"],
    )
    position: PositionBody | None = Field(default=None, description="Where; else `address`.")
    skills: FailFastList[Word] = Field(
        default=[], max_length=50, description="All of which are needed.", examples=[["boiler"]]
    )
    urgency: AnyUrgency = Field(default="normal", description="How soon a technician is needed.")
    description: Text = Field(default="", description="For people.", examples=["no hot water"])
    key: Name | None = Field(
        default=None, description="However often this is sent, one request is made of it."
    )

    @property
    def urgent(self) -> Urgency:
        """How soon a technician is needed."""
        return Urgency(self.urgency)


class AnswerBody(Body):
    """A technician's answer."""

    technician: TechnicianId = Field(description="Who answers.")
    event: Name | None = Field(
        default=None, description="The same for a repeat; made of the offer if not given."
    )


class AssignBody(Body):
    """A dispatcher's decision."""

    technician: TechnicianId = Field(description="Who gets it.")
    by: Name | None = Field(default=None, description="Who decides; else the token's name.")
    wait: bool = Field(
        default=False, description="Wait for a technician who is busy, instead of refusing."
    )


class TimesBody(Body):
    """How long offers stand, from the next one on."""

    offer_timeout: OfferSpan | None = Field(
        default=None, description="Where the urgency has no time of its own; null: as in the file."
    )
    urgency: dict[AnyUrgency, OfferSpan] = Field(
        default={}, description="By urgency; those not named: as in the file."
    )
