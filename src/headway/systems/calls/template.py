"""A template, a named configuration of calls; and the table [calls] of headway.toml."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import AfterValidator, Field, model_validator

from headway.core.errors import InvalidValue
from headway.core.gates.opening import Hours
from headway.runtime.settings_table import OpenTable
from headway.server.bodies.base import Body, FailFastList, Span

DEFAULT = "default"
"""The template of leads that name none."""

RETRYABLE = Literal["BUSY", "NO_ANSWER", "FAILED", "WEBHOOK_LOST"]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", examples=["reminder"])]
"""A name that can stand in the names of gates."""


class HoursBody(Body):
    """When may be called, in the zone of each lead."""

    spans: str = Field(description="Local times.", examples=["09:00-12:00,13:00-18:00"])
    days: str = Field(default="daily", examples=["mon-fri"])
    exceptions: dict[str, str | None] = Field(
        default={}, max_length=400, description="Dates with spans of their own; null for closed."
    )

    @model_validator(mode="after")
    def _usable(self) -> HoursBody:
        Hours("hours", self.spans, days=self.days, exceptions=self.exceptions)
        return self


class BlacklistBody(Body):
    """Refuses these phones."""

    check: Literal["blacklist"]
    phones: FailFastList[Annotated[str, Field(pattern=r"^\+[0-9]{1,15}\*?$")]] = Field(
        min_length=1, max_length=10_000, description='Whole, or beginnings such as "+1900*".'
    )


class ValidityBody(Body):
    """Refuses what cannot be a telephone number."""

    check: Literal["validity"]
    countries: FailFastList[Annotated[str, Field(pattern=r"^\+[1-9][0-9]{0,6}$")]] = Field(
        default=[], max_length=300, description='Only these, as "+44"; empty for any.'
    )


class HttpCheckBody(Body):
    """Asks a service of yours: POST with the lead as JSON."""

    check: Literal["http"]
    url: str = Field(pattern=r"^https?://\S{1,2000}$")
    field: str = Field(default="allowed", max_length=200, description="Of the answer's JSON.")
    expected: str | int | bool | None = Field(default=True, description="Lets a lead pass.")
    timeout: Annotated[Span, Field(ge=1, le=60_000)] = 2_000
    tries: int = Field(default=2, ge=1, le=10)
    on_failure: Literal["proceed", "skip"] = Field(
        default="skip", description="What happens to the lead if the service does not answer."
    )


AnyCheck = Annotated[BlacklistBody | ValidityBody | HttpCheckBody, Field(discriminator="check")]


def _schema(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is not None:
        try:
            Draft202012Validator.check_schema(value)
        except SchemaError as error:
            message = f"it is no JSON schema: {error.message}"[:300]
            raise InvalidValue(message) from None
        if _refers_elsewhere(value):
            message = "it refers to another document"
            raise InvalidValue(message, hint='refer within it, as "#/$defs/…"')
    return value


def _refers_elsewhere(value: object) -> bool:
    if isinstance(value, dict):
        known = cast("dict[str, object]", value)
        refers = (known.get(name) for name in ("$ref", "$dynamicRef"))
        elsewhere = any(isinstance(one, str) and one[:1] != "#" for one in refers)
        return elsewhere or any(map(_refers_elsewhere, known.values()))
    return isinstance(value, list) and any(map(_refers_elsewhere, cast("list[object]", value)))


class TemplateBody(Body):
    """What holds for all leads that name the template, those that wait too."""

    payload_schema: Annotated[dict[str, Any] | None, AfterValidator(_schema)] = Field(
        default=None, description="A JSON schema of what a lead carries; null for anything."
    )
    initial_offset: Span = Field(
        default=0, description="From intake to the due time of a lead that names no moment."
    )
    hours: HoursBody | None = Field(
        default=None, description="When may be called; null for always."
    )
    numbers: Label | None = Field(
        default=None, description="A pool of numbers; null: the reseller's own, else the default."
    )
    providers: FailFastList[Label] = Field(
        default=[], max_length=10, description="Tried after the number's own, if that refused."
    )
    checks: FailFastList[AnyCheck] = Field(
        default=[], max_length=20, description="Before any line is asked for, in this order."
    )
    check_valid: Span = Field(
        default=300_000, description="A check that is older at the dial is made again."
    )
    recheck_within: Annotated[Span, Field(ge=1, le=10_000)] = Field(
        default=2_000, description="For how long a line is held for that, at most."
    )
    retry_on: FailFastList[RETRYABLE] = Field(
        default=["BUSY", "NO_ANSWER", "FAILED"],
        max_length=4,
        description="Outcomes after which a lead is called again.",
    )
    max_retry: int = Field(default=3, ge=0, le=1_000, description="Further calls, at most.")
    retry_offset: Span = Field(default=300_000, description="From the end of a call to the next.")
    retry_offsets: dict[RETRYABLE, Span] = Field(default={}, description="The same by outcome.")
    customer_limit: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Calls to one phone by this template, beside the limit of [calls]; "
        "null for none.",
    )
    customer_per: Annotated[Span, Field(ge=1)] = Field(
        default=3_600_000, description="The window of that limit."
    )
    say: str = Field(
        default="Hello.", max_length=4_000, description="With {placeholders} over the payload."
    )
    fetch: str | None = Field(
        default=None,
        pattern=r"^https?://\S{1,2000}$",
        description="Instead: where the provider fetches what happens in the call.",
    )
    ring_s: int = Field(default=30, ge=5, le=600, description="How long it may ring.")
    limit_s: int | None = Field(
        default=None, ge=1, le=86_400, description="The longest call; null for the provider's own."
    )


class Template(TemplateBody):
    """A template as it holds now; spans are milliseconds.

    Attributes:
        checks_at: since when there are just these checks, ms UTC; 0 if they were always these.
    """

    name: str
    checks_at: int = 0
    # Also 0, which was allowed once and may be stored.
    customer_limit: int | None = None


Shortest = Annotated[Span, Field(ge=1)]
Inner = dict[str, Any]


class CallsSettings(OpenTable):
    """What holds for all calls; spans are milliseconds once they are read.

    Attributes:
        customer_limit: calls to one phone in any window, whatever its template says.
        customer_per: the window.
        checks_at_once: leads whose pre-checks run at once.
        call_deadline: how long a call may go on without an event before its provider is asked.
        ask_again: how long a provider that says "still running", or nothing, is left alone.
        listing_lag: how long after it was asked for a call a provider may list it at the latest;
            one that is not listed by then was never placed.
        jitter: leads due at one moment are spread over so long, never before it.
        number_rest: how long a number is left alone that its provider refused to call from.
        provider_rest: the same where the provider refused all, and did not say how long.
        most_refused: so often refused a number, a lead ends with NUMBER_UNAVAILABLE.
        keep: how long a finished lead is kept.
        template: the template `default`, until one of this name is stored.
        table: your own table as the truth.
        migration: from an older system.
        alerts: thresholds.
        reports_at_once: the most concurrent reports to the webhooks of one reseller.
        reporting_keys: sign what is reported; each does, so that receivers may change.
        reporting_private: whether results may be reported to private addresses.
    """

    customer_limit: int = Field(default=7, ge=1)
    customer_per: Shortest = 3_600_000
    checks_at_once: int = Field(default=100, ge=1)
    call_deadline: Shortest = 1_800_000
    ask_again: Shortest = 300_000
    listing_lag: Shortest = 300_000
    jitter: Span = 200
    number_rest: Shortest = 300_000
    provider_rest: Shortest = 30_000
    most_refused: int = Field(default=20, ge=1)
    keep: Shortest = 2_592_000_000
    template: TemplateBody = TemplateBody()
    table: Inner = Field(default={})
    migration: Inner = Field(default={})
    alerts: Inner = Field(default={})
    reports_at_once: int = Field(default=4, ge=1)
    reporting_keys: list[str] = Field(default=[], repr=False)
    reporting_private: bool = False

    @property
    def default(self) -> Template:
        """What holds for leads that name no template, until one named `default` is stored."""
        return Template(name=DEFAULT, **dict(self.template))
