"""The [field_service] settings; offer timeouts, which can be changed while the system runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from sqlalchemy import JSON, bindparam, text

from headway.core.errors import InvalidValue
from headway.core.job import MAX_CANDIDATES
from headway.runtime.settings_table import OpenTable, Span, read_table
from headway.systems.directory.database import Directory
from headway.systems.field_service.records import Setting
from headway.systems.field_service.request import Urgency
from headway.systems.telephony.phone import Phone
from headway.systems.telephony.providers import Telephony

SETTING = "offer_times"
"""Row of the directory that takes precedence over the file."""
OFFER_MS = 300_000


Times = Annotated[Span, Field(ge=1)]
"""An offer timeout, not 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferTimes:
    """How long an offer stays open.

    Attributes:
        offer_timeout_ms: time for urgencies without one of their own.
        urgency_ms: time by urgency.
    """

    offer_timeout_ms: int = OFFER_MS
    urgency_ms: Mapping[str, int] = field(default_factory=dict[str, int])

    def of(self, urgency: Urgency) -> int:
        """Return how long an offer of this urgency stays open, in ms."""
        return self.urgency_ms.get(urgency, self.offer_timeout_ms)


async def current_times(directory: Directory, declared: OfferTimes) -> OfferTimes:
    """Return the times that apply to the next offer."""
    async with directory.read() as session:
        row = await session.get(Setting, SETTING)
    if row is None:
        return declared
    stored = cast("Mapping[str, object]", row.value)
    urgency = cast("Mapping[str, int]", stored.get("urgency_ms") or {})
    timeout = cast("int | None", stored.get("offer_timeout_ms"))
    return OfferTimes(
        offer_timeout_ms=declared.offer_timeout_ms if timeout is None else timeout,
        urgency_ms={**declared.urgency_ms, **urgency},
    )


# In one statement: two callers may store the first times at once.
_SET = text(
    "INSERT INTO field_settings (name, value, version) VALUES (:name, :value, 1) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value, version = field_settings.version + 1"
).bindparams(bindparam("value", type_=JSON))


async def set_times(
    directory: Directory, timeout_ms: int | None, urgency: Mapping[str, int]
) -> None:
    """Store new times, which apply from the next offer on.

    Args:
        timeout_ms: None for the value in the file.
        urgency: ms by urgency; omitted ones have the value in the file.

    Raises:
        StoreUnavailable: the directory is unavailable; nothing was written.
    """
    value = {"offer_timeout_ms": timeout_ms, "urgency_ms": dict(urgency)}
    async with directory.change() as session:
        await session.execute(_SET, {"name": SETTING, "value": value})


_FARTHEST_KM = 20_038.0
"""Half of the earth's circumference, rounded up."""
LONGEST_RING_MS = 600_000
LONGEST_CALL_MS = 14_400_000
"""Twilio's maximum; it refuses calls with a higher limit."""


def _url(given: str) -> str:
    try:
        fits = urlsplit(given).scheme in {"http", "https"} and urlsplit(given).hostname
    except ValueError:
        fits = False
    if not fits:
        message = "it is not an http or https URL"
        raise InvalidValue(message, hint="use for example https://nominatim.example.org/search")
    return given


_Text = Annotated[str, Field(min_length=1)]


class FieldSettings(OpenTable):
    """The [field_service] settings; durations are in milliseconds.

    Attributes:
        offer_timeout: how long an offer stays open, until a dispatcher changes it.
        urgency: the same by urgency.
        line_wait: maximum wait for a free line; after that, the next technician is asked.
        ring: how long a phone rings.
        call_limit: maximum length of a call.
        radius_km: technicians farther away are not asked.
        most: maximum number of technicians to ask.
        lines: numbers to call from, each with its number of channels; without any, no calls are
            placed.
        provider: provider that places calls; None for no calls.
        text_from: number that messages are sent from; None if there is none.
        text_provider: provider that sends messages; None for no messages.
        geocoder_url: URL of the service that finds the position of an address; None for none.
        keep: how long to keep a request after its end.
    """

    offer_timeout: Times = 300_000
    urgency: dict[Urgency, Times] = Field(default={})
    line_wait: Annotated[Span, Field(ge=1)] = 120_000
    ring: Annotated[Span, Field(ge=1_000, le=LONGEST_RING_MS)] = 30_000
    call_limit: Annotated[Span, Field(ge=1_000, le=LONGEST_CALL_MS)] = 300_000
    radius_km: Annotated[float, Field(strict=True, gt=0, le=_FARTHEST_KM)] = 50.0
    most: Annotated[int, Field(strict=True, gt=0, le=MAX_CANDIDATES)] = 50
    lines: dict[Phone, Annotated[int, Field(strict=True, ge=1)]] = Field(default={})
    provider: _Text | None = None
    text_from: Phone | None = None
    text_provider: _Text | None = None
    geocoder_url: Annotated[_Text, AfterValidator(_url)] | None = None
    keep: Span = 7_776_000_000

    @property
    def times(self) -> OfferTimes:
        """How long offers stay open according to the file."""
        return OfferTimes(offer_timeout_ms=self.offer_timeout, urgency_ms={**self.urgency})

    @property
    def texts(self) -> bool:
        """Whether messages can be sent."""
        return self.text_from is not None and self.text_provider is not None


def read_settings(written: Mapping[str, object], telephony: Telephony) -> FieldSettings:
    """Read the [field_service] settings.

    Returns:
        The settings with their defaults, such as the first provider of calls and of messages.

    Raises:
        InvalidValue: a setting is unknown or invalid, or names a provider that does not exist.
    """
    read = read_table("field_service", FieldSettings, written)
    provider = read.provider or next(iter(telephony.voices), None)
    text_provider = read.text_provider or next(iter(telephony.texts), None)
    if read.lines and provider is None:
        message = "[field_service] has lines, but there is no provider of calls"
        raise InvalidValue(message, hint="add a table such as [telephony.twilio]")
    if read.lines and provider is not None:
        telephony.voice(provider)
    if text_provider is not None:
        telephony.text(text_provider)
    known = {
        "provider": provider,
        "text_provider": text_provider,
        "text_from": read.text_from or next(iter(read.lines), None),
    }
    return read.model_copy(update=known)
