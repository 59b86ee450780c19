"""The types that bodies are made of: names, moments, spans, counts."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from headway.core.check import LATEST
from headway.core.duration import MAX_DURATION_MS, parse_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import MAX_CAPACITY
from headway.core.job import MAX_PRIORITY
from headway.core.moment import Moment, parse_moment
from headway.core.naming import MAX_NAME, check_name

_SPAN = r"^\s*(?:[0-9]{1,18}(?:\.[0-9]{1,18})?\s*(?:ms|[wdhms])\s*)+$"
_NAME = Field(min_length=1, max_length=MAX_NAME)


def _name(value: str) -> str:
    return check_name("it", value)


def _tenant(value: str) -> str:
    return check_name("it", value, empty=True)


def _line(value: str) -> str:
    # PostgreSQL keeps no NUL, and a reason is not worth a refusal.
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _span(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= MAX_DURATION_MS:
            message = f"{value} ms is no span"
            raise InvalidValue(message, hint="from 0 to 100 years")
        return value
    if isinstance(value, str):
        return parse_duration(value)
    message = "a span is text or whole milliseconds"
    raise InvalidValue(message, hint='as "90s", "20m", "1h30m" or 90000')


def _moment(value: object) -> Moment:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= LATEST:
            message = f"{value} ms is no moment"
            raise InvalidValue(message, hint="milliseconds since 1970 UTC, to the year 9999")
        return Moment(at=value)
    if isinstance(value, str):
        return parse_moment("", value)
    message = "a moment is text or milliseconds since 1970 UTC"
    raise InvalidValue(message, hint='as "2026-12-01T10:00-08:00", or "20m" from now')


Name = Annotated[str, _NAME, AfterValidator(_name)]
"""A name: 1 to 512 characters without NUL."""

TenantName = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_tenant)]
"""The name of a tenant; empty for nobody in particular."""

JobId = Annotated[str, Field(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
"""The id of a job: a UUID in lower case."""

RunNumber = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""The number of a run."""

Text = Annotated[str, Field(max_length=4_000), AfterValidator(_line)]
"""A reason or a note: up to 4,000 characters."""

Count = Annotated[int, Field(ge=0, le=MAX_CAPACITY)]
"""Permits, starts or jobs."""

Positive = Annotated[int, Field(ge=1, le=MAX_CAPACITY)]
"""At least one of them."""

Priority = Annotated[int, Field(ge=0, le=MAX_PRIORITY, examples=[512])]
"""Smaller first."""

Span = Annotated[
    int,
    BeforeValidator(_span),
    WithJsonSchema(
        {
            "description": "A span: text with units (w, d, h, m, s, ms), or whole milliseconds.",
            "anyOf": [
                {"type": "string", "pattern": _SPAN},
                {"type": "integer", "minimum": 0, "maximum": MAX_DURATION_MS},
            ],
            "examples": ["20m"],
        }
    ),
]
"""A span of time; milliseconds once it is read."""

When = Annotated[
    Moment,
    BeforeValidator(_moment),
    WithJsonSchema(
        {
            "description": "ISO 8601 with an offset, a span from now, or milliseconds since 1970.",
            "anyOf": [
                {"type": "string", "format": "date-time"},
                {"type": "string", "pattern": _SPAN},
                {"type": "integer", "minimum": 0, "maximum": LATEST},
            ],
            "examples": ["2026-12-01T10:00-08:00", "20m"],
        }
    ),
]
"""A moment; a span counts from the store's now."""
