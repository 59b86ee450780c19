"""The table [field_service] of headway.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast
from urllib.parse import urlsplit

from headway.core.duration import MAX_DURATION_MS, format_duration, parse_duration
from headway.core.errors import InvalidValue
from headway.core.job import MAX_CANDIDATES
from headway.core.naming import did_you_mean
from headway.systems.field_service.offer_times import OfferTimes, read_offer_times
from headway.systems.telephony.exchange import Exchange
from headway.systems.telephony.phone import check_phone

_WHERE = "[field_service]"
_FARTHEST_KM = 20_038.0
"""Half of the earth's circumference: nobody is farther away."""
LONGEST_RING_MS = 600_000
LONGEST_CALL_MS = 14_400_000
"""What Twilio takes; beyond it no call would be placed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A number that technicians are called from.

    Attributes:
        number: E.164.
        channels: calls at once.
        provider: who places them.
    """

    number: str
    channels: int
    provider: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldSettings:
    """What the settings say of this system.

    Attributes:
        times: how long an offer stands, until a dispatcher says otherwise.
        line_wait_ms: the longest wait for a free line; then the next is asked.
        ring_s: how long a phone rings.
        call_limit_s: the longest call.
        radius_km: farther away nobody is asked.
        most: at most so many are asked.
        lines: numbers to call from, by number; without any, nobody is called.
        text_from: the number that messages are sent from; None for none.
        text_provider: who sends them; None if nobody does.
        geocoder_url: finds the position of an address; None for none.
        keep: how long a request is kept after its end.
    """

    times: OfferTimes = field(default_factory=OfferTimes)
    line_wait_ms: int = 120_000
    ring_s: int = 30
    call_limit_s: int = 300
    radius_km: float = 50.0
    most: int = 50
    lines: Mapping[str, Line] = field(default_factory=lambda: MappingProxyType(dict[str, Line]()))
    text_from: str | None = None
    text_provider: str | None = None
    geocoder_url: str | None = None
    keep: str = "90d"

    @property
    def texts(self) -> bool:
        """Whether messages can be sent."""
        return self.text_from is not None and self.text_provider is not None


_KEYS = (
    "offer_timeout",
    "urgency",
    "line_wait",
    "ring",
    "call_limit",
    "radius_km",
    "most",
    "lines",
    "provider",
    "text_from",
    "text_provider",
    "geocoder_url",
    "keep",
)


def read_settings(written: Mapping[str, object], exchange: Exchange) -> FieldSettings:
    """Reads the table [field_service].

    Args:
        written: as it stands in the file.
        exchange: the providers of the table [telephony].

    Returns:
        The settings with their defaults.

    Raises:
        InvalidValue: one is unknown or unusable, or names a provider that there is not.
    """
    unknown = sorted(set(written) - set(_KEYS))
    if unknown:
        message = f"{_WHERE} has no setting {unknown[0]!r}"
        hint = did_you_mean(unknown[0], _KEYS, f"it has {', '.join(_KEYS)}")
        raise InvalidValue(message, hint=hint)
    lines = _lines(written, exchange)
    text_from, text_provider = _texts(written, exchange, lines)
    return FieldSettings(
        times=read_offer_times(_WHERE, written),
        line_wait_ms=_span(written, "line_wait", "2m", least=1),
        ring_s=_span(written, "ring", "30s", least=1_000, most=LONGEST_RING_MS) // 1000,
        call_limit_s=_span(written, "call_limit", "5m", least=1_000, most=LONGEST_CALL_MS) // 1000,
        radius_km=_number(written, "radius_km", 50.0, most=_FARTHEST_KM),
        most=int(_number(written, "most", 50.0, most=MAX_CANDIDATES)),
        lines=MappingProxyType(lines),
        text_from=text_from,
        text_provider=text_provider,
        geocoder_url=_url(written, "geocoder_url"),
        keep=f"{_span(written, 'keep', '90d')}ms",
    )


def _span(
    written: Mapping[str, object],
    name: str,
    default: str,
    *,
    least: int = 0,
    most: int = MAX_DURATION_MS,
) -> int:
    try:
        span_ms = parse_duration(written.get(name, default))
    except InvalidValue as error:
        message = f"{_WHERE} {name}: {error.message}"
        raise InvalidValue(message, hint=error.hint) from None
    if not least <= span_ms <= most:
        message = f"{_WHERE} {name} is {format_duration(span_ms)}"
        hint = f"from {format_duration(least)} to {format_duration(most)}"
        raise InvalidValue(message, hint=hint)
    return span_ms


def _url(written: Mapping[str, object], name: str) -> str | None:
    text = _text(written, name)
    try:
        fits = text is None or (
            urlsplit(text).scheme in {"http", "https"} and urlsplit(text).hostname
        )
    except ValueError:
        fits = False
    if not fits:
        message = f"{_WHERE} {name} is no URL"
        raise InvalidValue(message, hint="as https://nominatim.example.org/search")
    return text


def _number(written: Mapping[str, object], name: str, default: float, *, most: float) -> float:
    value = written.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        message = f"{_WHERE} {name} is {value!r:.40}"
        raise InvalidValue(message, hint=f"a number above 0, at most {most:g}")
    return float(value)


def _text(written: Mapping[str, object], name: str) -> str | None:
    value = written.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        message = f"{_WHERE} {name} is {value!r:.40}"
        raise InvalidValue(message, hint="write text, or leave it out")
    return value


def _lines(written: Mapping[str, object], exchange: Exchange) -> dict[str, Line]:
    table = written.get("lines", {})
    if not isinstance(table, Mapping):
        message = f"{_WHERE} lines is {table!r:.40}"
        raise InvalidValue(message, hint='write [field_service.lines] and "+12125550001" = 2')
    provider = _text(written, "provider") or next(iter(exchange.voices), None)
    lines: dict[str, Line] = {}
    for number, channels in cast("Mapping[str, object]", table).items():
        if isinstance(channels, bool) or not isinstance(channels, int) or channels < 1:
            message = f"[field_service.lines] {number} is {channels!r:.40}"
            raise InvalidValue(message, hint="the number of calls at once, at least 1")
        if provider is None:
            message = f"{_WHERE} has lines, and nobody places calls"
            raise InvalidValue(message, hint="add a table such as [telephony.twilio]")
        exchange.voice(provider)
        check_phone("[field_service.lines]: a number", number)
        lines[number] = Line(number=number, channels=channels, provider=provider)
    return lines


def _texts(
    written: Mapping[str, object], exchange: Exchange, lines: Mapping[str, Line]
) -> tuple[str | None, str | None]:
    provider = _text(written, "text_provider") or next(iter(exchange.texts), None)
    if provider is not None:
        exchange.text(provider)
    number = _text(written, "text_from") or next(iter(lines), None)
    if number is not None:
        check_phone(f"{_WHERE} text_from", number)
    return number, provider
