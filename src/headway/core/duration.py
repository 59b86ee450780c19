"""Durations: text such as `"1h30m"` or `timedelta` in the API, whole milliseconds internally."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import pairwise

from headway.core.errors import InvalidValue
from headway.core.naming import whole_number

UNITS_MS = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
"""Milliseconds of each unit, the largest first."""

MAX_DURATION_MS = 36_525 * UNITS_MS["d"]
"""Maximum duration: 100 years."""

# The digits are bounded so that no text can ask for arithmetic on huge numbers.
_PART = r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(ms|[wdhms])"
_PARTS = re.compile(_PART)
_WHOLE = re.compile(rf"(?:{_PART}\s*)+")
_ORDER = tuple(UNITS_MS)
_MAX_CACHED = 64
"""Maximum length of a text whose value is cached, in characters."""
Duration = str | timedelta
"""A duration in the public API: text such as "1h30m", or a timedelta that is not negative."""

_HINT = 'write it as "250ms", "90s", "20m", "1h30m", "2d" or "1w"'


def parse_duration(value: object) -> int:
    """Parse a duration.

    A fraction of a millisecond is rounded up, so that no duration becomes shorter than requested.

    Args:
        value: a timedelta, or text of numbers with units (w, d, h, m, s, ms) from the largest
            to the smallest, each unit at most once, such as "1h30m" or "1.5h".

    Returns:
        Milliseconds, from 0 to 100 years.

    Raises:
        InvalidValue: the value is neither, is negative, or is longer than 100 years.
    """
    if isinstance(value, timedelta):
        ms, finer = divmod(value, timedelta(milliseconds=1))
        ms += bool(finer)
    elif isinstance(value, str):
        # Whitespace is allowed between parts, so a valid text can be megabytes long: do not cache
        # long texts.
        ms = _read(value) if len(value) <= _MAX_CACHED else _read.__wrapped__(value)
    else:
        message = f"a duration cannot be parsed from {value!r:.60}"
        raise InvalidValue(message, hint=f"{_HINT}, or pass a timedelta")
    if ms < 0:
        message = f"the duration {value!r:.60} is negative"
        raise InvalidValue(message, hint="give 0 or more")
    if ms > MAX_DURATION_MS:
        message = f"the duration {value!r:.60} is longer than 100 years"
        raise InvalidValue(message, hint="at most 36525d")
    return ms


def check_duration(what: str, value: object, *, least: int = 0) -> int:
    """Parse a duration that is an option; an error begins with the option.

    Args:
        what: the option, and whose it is.
        least: minimum, in milliseconds.

    Raises:
        InvalidValue: as `parse_duration`, or the duration is below the minimum.
    """
    try:
        ms = parse_duration(value)
    except InvalidValue as error:
        message = f"{what}: {error.message}"
        raise InvalidValue(message, hint=error.hint) from None
    if ms < least:
        message = f"{what} is {format_duration(ms)}"
        raise InvalidValue(message, hint=f"at least {format_duration(least)}")
    return ms


def format_duration(ms: int, *, parts: int = 2) -> str:
    """Format a duration, as "1h 30m".

    Args:
        ms: milliseconds; a negative duration gets a minus sign.
        parts: number of consecutive units to show, from the largest that is not zero; the rest is
            cut off. With 6, nothing is cut off, and `parse_duration` returns the same duration.

    Returns:
        The units separated by spaces; "0s" for 0.
    """
    counts: list[tuple[int, str]] = []
    rest = abs(ms)
    for unit, size in UNITS_MS.items():
        count, rest = divmod(rest, size)
        if count or counts:
            counts.append((count, unit))
    text = " ".join(f"{count}{unit}" for count, unit in counts[:parts] if count)
    return f"-{text}" if ms < 0 else text or "0s"


MAX_RETRY_AFTER_MS = 3_600_000
"""Maximum delay that a `Retry-After` header can request; limits the harm of a wrong one."""


def read_retry_after(header: str, now: int) -> int | None:
    """Parse a `Retry-After` header.

    Args:
        header: seconds, or an HTTP date.

    Returns:
        Milliseconds from now, from 0 to an hour; None if the header is neither.

    Source:
        RFC 9110, 10.2.3.
    """
    header = header.strip()
    seconds = whole_number(header)
    if seconds is not None:
        return min(seconds * 1000, MAX_RETRY_AFTER_MS)
    try:
        at = parsedate_to_datetime(header)
        return min(max(int(at.timestamp() * 1000) - now, 0), MAX_RETRY_AFTER_MS)
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(maxsize=1_024)
def _read(text: str) -> int:
    cleaned = text.strip()
    if not cleaned:
        message = "a duration is empty"
        raise InvalidValue(message, hint=_HINT)
    if not _WHOLE.fullmatch(cleaned):
        message = f"the duration {text!r:.60} is not understood"
        raise InvalidValue(message, hint=_HINT)
    found = _PARTS.findall(cleaned)
    ranks = [_ORDER.index(unit) for _, unit in found]
    if any(later <= earlier for earlier, later in pairwise(ranks)):
        message = f"the duration {text!r:.60} repeats a unit or names a larger one after a smaller"
        raise InvalidValue(message, hint=_HINT)
    total = sum((Decimal(number) * UNITS_MS[unit] for number, unit in found), Decimal(0))
    return int(total.to_integral_value(rounding=ROUND_CEILING))
