"""A template: a named configuration of calls, as it holds now for all leads that name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import AfterValidator, Field, model_validator

from headway.core.errors import InvalidValue
from headway.core.gates.opening import Hours
from headway.server.bodies.body import Body, Several
from headway.server.bodies.words import Span
from headway.systems.calls.outcome import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class BlacklistOptions:
    """Refuses these phones.

    Attributes:
        phones: E.164, or the beginning of one with a star: "+1900*".
    """

    phones: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidityOptions:
    """Refuses what can be nobody's phone.

    Attributes:
        countries: only phones that begin with one of these, such as "+1"; empty for any.
    """

    countries: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpOptions:
    """Asks a service of the caller's: POST with the lead as JSON; its answer is JSON.

    Attributes:
        url: of it.
        field: of the answer, with dots into objects.
        expected: what stands there if the lead may be called.
        timeout_ms: for each try.
        tries: at most so many; each after a failure of the one before.
        on_failure: what becomes of the lead if no try was answered.
    """

    url: str
    field: str = "allowed"
    expected: str | int | bool | None = True
    timeout_ms: int = 2_000
    tries: int = 2
    on_failure: Literal["proceed", "skip"] = "skip"


CheckOptions = BlacklistOptions | ValidityOptions | HttpOptions


DEFAULT = "default"
"""The template of leads that name none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallingHours:
    """When may be called, in the zone of each lead; as `hw.Hours` takes it."""

    spans: str
    days: str = "daily"
    exceptions: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    """A named configuration of calls.

    Attributes:
        name: of it.
        payload_schema: a JSON schema of what a lead carries; None for anything.
        initial_offset_ms: from intake to the due time of a lead that names no moment.
        hours: when may be called; None for always.
        numbers: the pool of numbers; None for the reseller's own, else the default pool.
        providers: tried in this order after the number's own, and only if that refused.
        checks: before any line is asked for, in this order.
        check_valid_ms: a check older than this at the dial is made again.
        checks_at: since when there are just these checks, ms UTC; 0 if they were always these.
        recheck_within_ms: for which a line is held, at most.
        retry_on: outcomes after which the lead is called again.
        max_retry: how often, at most.
        retry_offset_ms: when, counted from the end of the call.
        retry_offsets_ms: the same by outcome.
        customer_limit: of calls to one phone by this template, beside the house's; None for none.
        customer_per_ms: the window of that limit.
        say: what is said, with `{placeholders}` over the payload.
        fetch: instead: where the provider fetches what happens in the call.
        ring_s: how long it may ring.
        limit_s: the longest call; None for the provider's own limit.
    """

    name: str
    payload_schema: Mapping[str, Any] | None = None
    initial_offset_ms: int = 0
    hours: CallingHours | None = None
    numbers: str | None = None
    providers: tuple[str, ...] = ()
    checks: tuple[CheckOptions, ...] = ()
    check_valid_ms: int = 300_000
    checks_at: int = 0
    recheck_within_ms: int = 2_000
    retry_on: frozenset[Outcome] = frozenset({Outcome.BUSY, Outcome.NO_ANSWER, Outcome.FAILED})
    max_retry: int = 3
    retry_offset_ms: int = 300_000
    retry_offsets_ms: Mapping[Outcome, int] = field(default_factory=dict[Outcome, int])
    customer_limit: int | None = None
    customer_per_ms: int = 3_600_000
    say: str = "Hello."
    fetch: str | None = None
    ring_s: int = 30
    limit_s: int | None = None


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
    phones: Several[Annotated[str, Field(pattern=r"^\+[0-9]{1,15}\*?$")]] = Field(
        min_length=1, max_length=10_000, description='Whole, or beginnings such as "+1900*".'
    )

    def read(self) -> CheckOptions:
        """As the checks take it."""
        return BlacklistOptions(phones=tuple(self.phones))


class ValidityBody(Body):
    """Refuses what can be nobody's phone."""

    check: Literal["validity"]
    countries: Several[Annotated[str, Field(pattern=r"^\+[1-9][0-9]{0,6}$")]] = Field(
        default=[], max_length=300, description='Only these, as "+44"; empty for any.'
    )

    def read(self) -> CheckOptions:
        """As the checks take it."""
        return ValidityOptions(countries=tuple(self.countries))


class HttpCheckBody(Body):
    """Asks a service of yours: POST with the lead as JSON."""

    check: Literal["http"]
    url: str = Field(pattern=r"^https?://\S{1,2000}$")
    field: str = Field(default="allowed", max_length=200, description="Of the answer's JSON.")
    expected: str | int | bool | None = Field(default=True, description="Lets a lead pass.")
    timeout: Annotated[Span, Field(ge=1, le=60_000)] = 2_000
    tries: int = Field(default=2, ge=1, le=10)
    on_failure: Literal["proceed", "skip"] = Field(
        default="skip", description="What becomes of the lead if nobody answers."
    )

    def read(self) -> CheckOptions:
        """As the checks take it."""
        return HttpOptions(
            url=self.url,
            field=self.field,
            expected=self.expected,
            timeout_ms=self.timeout,
            tries=self.tries,
            on_failure=self.on_failure,
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
    initial_offset: Span = Field(default=0, description="To the due time of leads without one.")
    hours: HoursBody | None = Field(default=None, description="When may be called.")
    numbers: Label | None = Field(
        default=None, description="A pool of numbers; null: the reseller's own, else the default."
    )
    providers: Several[Label] = Field(
        default=[], max_length=10, description="Tried after the number's own, if that refused."
    )
    checks: Several[AnyCheck] = Field(default=[], max_length=20)
    check_valid: Span = Field(default=300_000, description="An older check is made again.")
    recheck_within: Annotated[Span, Field(ge=1, le=10_000)] = 2_000
    retry_on: Several[RETRYABLE] = Field(default=["BUSY", "NO_ANSWER", "FAILED"], max_length=4)
    max_retry: int = Field(default=3, ge=0, le=1_000, description="Further calls, at most.")
    retry_offset: Span = Field(default=300_000, description="From the end of a call.")
    retry_offsets: dict[RETRYABLE, Span] = Field(default={}, description="The same by outcome.")
    customer_limit: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Calls to one phone by this template."
    )
    customer_per: Annotated[Span, Field(ge=1)] = Field(default=3_600_000)
    say: str = Field(
        default="Hello.", max_length=4_000, description="With {placeholders} over the payload."
    )
    fetch: str | None = Field(
        default=None,
        pattern=r"^https?://\S{1,2000}$",
        description="Instead: where the provider fetches what happens in the call.",
    )
    ring_s: int = Field(default=30, ge=5, le=600)
    limit_s: int | None = Field(default=None, ge=1, le=86_400)

    def read(self, name: str) -> Template:
        """As the rest of the system takes it."""
        hours = self.hours
        return Template(
            name=name,
            payload_schema=self.payload_schema,
            initial_offset_ms=self.initial_offset,
            hours=None
            if hours is None
            else CallingHours(spans=hours.spans, days=hours.days, exceptions=hours.exceptions),
            numbers=self.numbers,
            providers=tuple(self.providers),
            checks=tuple(one.read() for one in self.checks),
            check_valid_ms=self.check_valid,
            recheck_within_ms=self.recheck_within,
            retry_on=frozenset(Outcome(one) for one in self.retry_on),
            max_retry=self.max_retry,
            retry_offset_ms=self.retry_offset,
            retry_offsets_ms={Outcome(one): ms for one, ms in self.retry_offsets.items()},
            customer_limit=self.customer_limit,
            customer_per_ms=self.customer_per,
            say=self.say,
            fetch=self.fetch,
            ring_s=self.ring_s,
            limit_s=self.limit_s,
        )
