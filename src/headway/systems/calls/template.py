"""Templates, which are named configurations of calls; and the settings [calls]."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from headway.core.errors import InvalidValue
from headway.core.gates.opening import Hours
from headway.runtime.settings_table import OpenTable
from headway.server.bodies.base import Body, FailFastList, Span
from headway.systems.calls.payload_schema import read_schema
from headway.systems.telephony.providers import Telephony
from headway.systems.telephony.texts import check_words

DEFAULT = "default"
"""The template of leads that do not name one."""

RETRYABLE = Literal["BUSY", "NO_ANSWER", "FAILED", "WEBHOOK_LOST"]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", examples=["reminder"])]
"""A name that can be part of a gate's name."""


class HoursBody(Body):
    """Calling hours, in the time zone of each lead."""

    spans: str = Field(
        description="Time ranges, in local time.", examples=["09:00-12:00,13:00-18:00"]
    )
    days: str = Field(default="daily", examples=["mon-fri"])
    exceptions: dict[str, str | None] = Field(
        default={},
        max_length=400,
        description="Dates with their own time ranges; null means closed.",
    )

    @model_validator(mode="after")
    def _usable(self) -> HoursBody:
        Hours("hours", self.spans, days=self.days, exceptions=self.exceptions)
        return self


class BlacklistBody(Body):
    """Rejects the listed phone numbers."""

    check: Literal["blacklist"]
    phones: FailFastList[Annotated[str, Field(pattern=r"^\+[0-9]{1,15}\*?$")]] = Field(
        min_length=1, max_length=10_000, description='Whole numbers, or prefixes such as "+1900*".'
    )


class ValidityBody(Body):
    """Rejects anything that cannot be a phone number."""

    check: Literal["validity"]
    countries: FailFastList[Annotated[str, Field(pattern=r"^\+[1-9][0-9]{0,6}$")]] = Field(
        default=[],
        max_length=300,
        description='Allowed country codes, such as "+44"; empty for any.',
    )


class HttpCheckBody(Body):
    """Asks one of your services, by a POST with the lead as JSON."""

    check: Literal["http"]
    url: str = Field(pattern=r"^https?://\S{1,2000}$")
    field: str = Field(
        default="allowed", max_length=200, description="Field to read in the JSON reply."
    )
    expected: str | int | bool | None = Field(
        default=True, description="Value of the field with which a lead passes."
    )
    timeout: Annotated[Span, Field(ge=1, le=60_000)] = 2_000
    tries: int = Field(default=2, ge=1, le=10)
    on_failure: Literal["proceed", "skip"] = Field(
        default="skip", description="What happens to the lead if the service does not reply."
    )


AnyCheck = Annotated[BlacklistBody | ValidityBody | HttpCheckBody, Field(discriminator="check")]


def _schema(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is not None:
        read_schema(value)
    return value


class TemplateBody(Body):
    """Settings for all leads that name the template, including those that already wait."""

    payload_schema: Annotated[dict[str, Any] | None, AfterValidator(_schema)] = Field(
        default=None,
        description="JSON schema for a lead's payload; its patterns have the syntax of Rust's "
        "regex, without look-around and backreferences. Null for anything.",
    )
    initial_offset: Span = Field(
        default=0, description="Delay from intake until a lead without a time of its own is due."
    )
    hours: HoursBody | None = Field(default=None, description="Calling hours; null for always.")
    numbers: Label | None = Field(
        default=None,
        description="Pool of numbers to call from. With null, the reseller's own numbers, or the "
        "default pool if there are none.",
    )
    providers: FailFastList[Label] = Field(
        default=[], max_length=10, description="Providers to try if the number's own refuses."
    )
    checks: FailFastList[AnyCheck] = Field(
        default=[],
        max_length=20,
        description="Checks to make before the lead waits for a line, in this order.",
    )
    check_valid: Span = Field(
        default=300_000, description="Maximum age of a check at the dial; older ones are repeated."
    )
    recheck_within: Annotated[Span, Field(ge=1, le=10_000)] = Field(
        default=2_000, description="How long a line may be held for repeated checks."
    )
    retry_on: FailFastList[RETRYABLE] = Field(
        default=["BUSY", "NO_ANSWER", "FAILED"],
        max_length=4,
        description="Outcomes after which a lead is called again.",
    )
    max_retry: int = Field(
        default=3, ge=0, le=1_000, description="Maximum number of further calls."
    )
    retry_offset: Span = Field(
        default=300_000, description="Delay from the end of a call to the next."
    )
    retry_offsets: dict[RETRYABLE, Span] = Field(
        default={}, description="Delay by outcome, overriding `retry_offset`."
    )
    customer_limit: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Maximum number of calls to one phone under this template, in addition to the "
        "limit in [calls]; null for none.",
    )
    customer_per: Annotated[Span, Field(ge=1)] = Field(
        default=3_600_000, description="Window of that limit."
    )
    say: str = Field(
        default="Hello.",
        max_length=4_000,
        description="Text to speak, with {placeholders} from the payload.",
    )
    fetch: str | None = Field(
        default=None,
        pattern=r"^https?://\S{1,2000}$",
        description="URL from which the provider fetches the script of the call, instead of `say`.",
    )
    ring_s: int = Field(
        default=30, ge=5, le=600, description="How long to let it ring, in seconds."
    )
    limit_s: int | None = Field(
        default=None,
        ge=1,
        le=86_400,
        description="Maximum length of a call, in seconds; null for the provider's own.",
    )


def check_template(body: TemplateBody, telephony: Telephony, where: str = "") -> None:
    """Validate what the model does not, which also reads templates of earlier versions.

    Args:
        where: path of the table in the settings, with a dot at its end; empty for a request.

    Raises:
        InvalidValue: its text cannot be spoken, a URL has no host, or it names an unknown provider.
    """
    check_words(f"{where}say", body.say)
    if body.fetch is not None:
        _check_url(f"{where}fetch", body.fetch)
    for n, check in enumerate(body.checks):
        if isinstance(check, HttpCheckBody):
            _check_url(f"{where}checks[{n}].url", check.url)
    for provider in body.providers:
        telephony.voice(provider)


def _check_url(what: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        message = f"{what} is {url[:80]!r}, which is not a URL with a host"
        raise InvalidValue(message, hint="write it as https://host/path")


class Template(TemplateBody):
    """A template in its current form; durations are milliseconds.

    Attributes:
        checks_at: when its checks last changed, ms UTC; 0 if they never did.
    """

    name: str
    checks_at: int = 0
    # Not validated: others were allowed once and may be stored; leads are refused by those.
    payload_schema: dict[str, Any] | None = None
    # Without a minimum: 0 was allowed once and may be stored.
    customer_limit: int | None = None


Shortest = Annotated[Span, Field(ge=1)]
Inner = dict[str, Any]


class CallsSettings(OpenTable):
    """Settings for all calls; durations are milliseconds once they are read.

    Attributes:
        customer_limit: maximum number of calls to one phone in any window, whatever its template
            says.
        customer_per: length of that window.
        checks_at_once: maximum number of leads whose pre-checks run at once.
        call_deadline: how long a call may last without an event before its provider is asked.
        ask_again: how long to wait before asking a provider again that replies "still running", or
            not at all.
        listing_lag: how long it may take until a provider lists a requested call; one that is not
            listed by then was never placed.
        jitter: leads due at the same time are spread over this duration, never before that time;
            those of a source table are due exactly when their row says.
        number_rest: how long not to use a number that its provider has refused to call from.
        provider_rest: the same for a provider that has refused all calls without saying for how
            long.
        most_refused: number of refusals after which a lead ends with NUMBER_UNAVAILABLE.
        keep: how long to keep a finished lead.
        template: the template `default`, until one of this name is stored.
        table: settings of the source table.
        migration: settings of a migration from an older system.
        alerts: thresholds of the alert rules.
        reports_at_once: maximum number of concurrent reports to the webhooks of one reseller.
        reporting_keys: keys that sign reports. Every key signs each report, so that receivers can
            switch keys.
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
        """The template `default`, until one of this name is stored."""
        return Template(name=DEFAULT, **dict(self.template))
