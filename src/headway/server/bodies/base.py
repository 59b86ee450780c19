"""The base of all bodies and query models, and the types of their fields."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler

from headway.core.check import LATEST
from headway.core.duration import MAX_DURATION_MS, parse_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import MAX_CAPACITY
from headway.core.instant import Moment, parse_moment
from headway.core.job import MAX_PRIORITY
from headway.core.naming import MAX_NAME, check_name
from headway.server.strict_json import yield_to_loop

MOST_FIELDS = 64
"""Fields of one object; no body has as many."""

SLICE = 100
"""Bodies of a list that are validated at once."""

One = TypeVar("One")


class FirstFault(FailFast):
    """Ends with the first fault; can stand in a union, unlike its base."""

    def __hash__(self) -> int:
        """Return one hash for all, as instances are equal."""
        return hash(self.fail_fast)


FailFastList = Annotated[list[One], FirstFault()]
"""A list that reports its first fault only: millions of faults would fill the memory."""


def max_fields(most: int) -> BeforeValidator:
    """Refuse an object with more than so many fields, before any of them can be a fault."""

    def check(value: object) -> object:
        if isinstance(value, dict) and (count := len(cast("dict[Any, Any]", value))) > most:
            message = f"it has {count} fields; at most {most} are allowed"
            raise ValueError(message)
        return cast("object", value)

    return BeforeValidator(check)


def one_or_many(one: type[One], many: Any, most: int) -> WrapValidator:  # noqa: ANN401  (an annotation)
    """Validate one body, or a list of them in slices.

    A call of the validator holds the interpreter until it ends; between slices others are served.
    And a union would report the faults of both shapes at once.
    """
    single: TypeAdapter[One] = TypeAdapter(one)
    several: TypeAdapter[list[One]] = TypeAdapter(many)

    def validate(value: object, _: ModelWrapValidatorHandler[Any]) -> One | list[One]:
        if not isinstance(value, list):
            return single.validate_python(value)
        given, found = cast("list[object]", value), list[One]()
        while len(found) < len(given) <= most:
            try:
                found += several.validate_python(given[len(found) : len(found) + SLICE])
            except ValidationError:
                # Once more behind those that are validated, so that the fault has its place.
                return several.validate_python([*found, *given[len(found) :]])
            yield_to_loop()
        return found or several.validate_python(given)

    return WrapValidator(validate)


class Body(BaseModel):
    """A body: nothing unknown in it, and no value of another type than was asked for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: object) -> object:
        # Each unknown field would be reported as a fault of its own.
        if isinstance(value, dict) and len(cast("dict[Any, Any]", value)) > MOST_FIELDS:
            message = f"it has more than {MOST_FIELDS} fields"
            raise ValueError(message)
        return cast("object", value)


class QueryModel(BaseModel):
    """What a query string asks: nothing unknown in it; its values are text by nature."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_SPAN = r"^\s*(?:[0-9]{1,18}(?:\.[0-9]{1,18})?\s*(?:ms|[wdhms])\s*)+$"
_NAME = Field(min_length=1, max_length=MAX_NAME)


def _name(value: str) -> str:
    return check_name("it", value)


def _tenant(value: str) -> str:
    return check_name("it", value, empty=True)


def without_nul(value: str) -> str:
    """Return a text that PostgreSQL keeps: a reason or an error is not worth a refusal."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _span(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= MAX_DURATION_MS:
            message = f"{value} ms is not a valid duration"
            raise InvalidValue(message, hint="from 0 to 100 years")
        return value
    if isinstance(value, str):
        return parse_duration(value)
    message = "a duration is text or whole milliseconds"
    raise InvalidValue(message, hint='use for example "90s", "20m", "1h30m" or 90000')


def _moment(value: object) -> Moment:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= LATEST:
            message = f"{value} ms is not a valid time"
            raise InvalidValue(message, hint="milliseconds since 1970 UTC, to the year 9999")
        return Moment(at=value)
    if isinstance(value, str):
        return parse_moment("", value)
    message = "a time is text or milliseconds since 1970 UTC"
    raise InvalidValue(message, hint='use for example "2026-12-01T10:00-08:00", or "20m" from now')


Name = Annotated[str, _NAME, AfterValidator(_name)]
"""A name: 1 to 512 characters without NUL."""

TenantName = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_tenant)]
"""The name of a tenant; empty for none."""

JobId = Annotated[str, Field(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
"""The id of a job: a UUID in lower case."""

RunNumber = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""The number of a run."""

Text = Annotated[str, Field(max_length=4_000), AfterValidator(without_nul)]
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
            "description": "Duration: text with units (w, d, h, m, s, ms), or whole milliseconds.",
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
            "description": "Time: ISO 8601 with an offset, a duration from now, or milliseconds "
            "since 1970.",
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

EARLIEST = 100_000_000_000
"""Of 1973, in ms: an earlier moment was meant in seconds, and would be taken for now."""


def _not_seconds(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < EARLIEST:
        message = f"{value} ms is a time around 1970"
        raise InvalidValue(message, hint="pass milliseconds, not seconds")
    return value


WhenNotSeconds = Annotated[When, BeforeValidator(_not_seconds)]
"""A moment, but no number that can only be seconds."""
