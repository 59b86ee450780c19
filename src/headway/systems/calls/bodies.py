"""What requests about leads and numbers say."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
)

from headway.core.errors import InvalidValue
from headway.core.zone import find_zone
from headway.server.bodies.body import Body, Several, one_or_many
from headway.server.bodies.words import Name, TenantName, When
from headway.systems.calls.number import NumberStatus
from headway.systems.calls.template_body import Label
from headway.systems.telephony.phone import check_phone

EARLIEST = 100_000_000_000
"""A moment in ms of 1973: who gives an earlier one gave seconds, and the call would be at once."""
MOST_LEADS = 10_000
"""Leads of one request."""


def _phone(value: str) -> str:
    return check_phone("it", value)


Phone = Annotated[
    str,
    AfterValidator(_phone),
    Field(
        examples=["+14155550100"],
        description="E.164.",
        # Said to those who read the schema; who sends another text is told in words.
        json_schema_extra={"pattern": r"^\+[1-9][0-9]{6,14}$"},
    ),
]


def _zone(value: str) -> str:
    return find_zone(value).key


Zone = Annotated[str, AfterValidator(_zone), Field(max_length=64, examples=["America/Denver"])]
"""An IANA zone."""

Own = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^{}\x00]+$")]
"""The name of a reseller that can stand in the name of a gate."""


def _not_seconds(value: object) -> object:
    if isinstance(value, int) and 0 < value < EARLIEST:
        message = f"{value} ms is a moment of the years around 1970"
        raise InvalidValue(
            message, hint="milliseconds are meant, not seconds; a past moment is now"
        )
    return value


class LeadBody(Body):
    """A lead to be called."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_by_name=True)

    phone: Phone = Field(description="Who is called, in E.164.")
    tz: Zone = Field(description="The zone of who is called; calling hours are told in it.")
    reseller: TenantName | None = Field(
        default=None,
        validation_alias=AliasChoices("reseller", "reseller_id"),
        description="Whose lead it is (also `reseller_id`); the token's, if it has one.",
    )
    template: Label = Field(default="default", description="By which it is called.")
    next_attempt_at: Annotated[When | None, BeforeValidator(_not_seconds)] = Field(
        default=None, description="When; else now and the template's initial offset."
    )
    key: Name | None = Field(
        default=None,
        validation_alias=AliasChoices("key", "request_id"),
        description="However often this is sent, it is one lead (also `request_id`).",
        examples=["order-17"],
    )
    payload: Any = Field(default=None, description="As the template's schema wants it.")
    reporting_webhook_url: str | None = Field(
        default=None, pattern=r"^https?://\S{1,2000}$", description="Is told the result, signed."
    )


LeadList = Annotated[Several[LeadBody], Field(min_length=1, max_length=MOST_LEADS)]
OneOrManyLeads = Annotated[LeadBody | LeadList, one_or_many(LeadBody, LeadList, MOST_LEADS)]
"""One lead, or a list of up to 10,000."""

Channels = Annotated[int, Field(ge=1, le=1_000_000, description="Calls at once.")]


class NumberBody(Body):
    """A number to call from."""

    number: Phone = Field(description="E.164, one of the provider's.")
    provider: Label = Field(description="As [telephony] names it.", examples=["twilio"])
    maximum_channels: Channels
    status: NumberStatus = Field(default=NumberStatus.AVAILABLE, strict=False)
    reseller: Own | None = Field(default=None, description="Whose leads alone it serves.")
    pool: Label | None = Field(default=None, description="Of templates that name it.")


class NumberChange(Body):
    """What to change of a number; what is left out stays."""

    provider: Label | None = None
    maximum_channels: Channels | None = None
    status: NumberStatus | None = Field(default=None, strict=False)
    reseller: Own | None = Field(default=None, description="Null for everybody's.")
    pool: Label | None = Field(default=None, description="Null for none.")
