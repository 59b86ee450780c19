"""The base of all bodies and query models, and the types of their fields."""

from __future__ import annotations

from functools import partial
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
from headway.core.naming import MAX_NAME, check_name, whole_number
from headway.server.strict_json import yield_to_loop

MOST_FIELDS = 64
"""Maximum number of fields of an object; every model has fewer."""

SLICE = 100
"""Number of bodies of a list that are validated in one call."""

One = TypeVar("One")


class FirstFault(FailFast):
    """Stops at the first fault; unlike its base class, it can be used in a union."""

    def __hash__(self) -> int:
        """Return the same hash for equal instances."""
        return hash(self.fail_fast)


FailFastList = Annotated[list[One], FirstFault()]
"""A list that reports only its first fault: millions of faults would fill the memory."""


def max_fields(most: int) -> BeforeValidator:
    """Refuse an object with more than `most` fields, before any field is validated."""

    def check(value: object) -> object:
        if isinstance(value, dict) and (count := len(cast("dict[Any, Any]", value))) > most:
            message = f"it has {count} fields; at most {most} are allowed"
            raise ValueError(message)
        return cast("object", value)

    return BeforeValidator(check)


def one_or_many(one: type[One], many: Any, most: int) -> WrapValidator:  # noqa: ANN401  (an annotation)
    """Validate one body, or a list of them in slices.

    Each call of the validator holds the interpreter until it returns; other requests are served
    between slices. Besides, a union would report the faults of both shapes.
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
                # Validate again, after the valid items, so that the fault has the right index.
                return several.validate_python([*found, *given[len(found) :]])
            yield_to_loop()
        return found or several.validate_python(given)

    return WrapValidator(validate)


def examples(*bodies: dict[str, Any]) -> ConfigDict:
    """Return the configuration of a model with these examples in the OpenAPI description."""
    return ConfigDict(json_schema_extra={"examples": [*bodies]})


class Body(BaseModel):
    """A body without unknown fields or values of other types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: object) -> object:
        # Otherwise each unknown field would be a fault.
        if isinstance(value, dict) and len(cast("dict[Any, Any]", value)) > MOST_FIELDS:
            message = f"it has more than {MOST_FIELDS} fields"
            raise ValueError(message)
        return cast("object", value)


class QueryModel(BaseModel):
    """The parameters of a query string, without unknown ones; values are converted from text."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_SPAN = r"^\s*(?:[0-9]{1,18}(?:\.[0-9]{1,18})?\s*(?:ms|[wdhms])\s*)+$"
_NAME = Field(min_length=1, max_length=MAX_NAME)


def without_nul(value: str) -> str:
    """Replace NUL characters, which PostgreSQL cannot store, instead of refusing the text."""
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
    if isinstance(value, str) and len(value) > len(str(EARLIEST)):
        # In a query string each value is text.
        value = whole_number(value, digits=15) or value
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= LATEST:
            message = f"{value} ms is not a valid time"
            raise InvalidValue(message, hint="milliseconds since 1970 UTC, to the year 9999")
        return Moment(at=value)
    if isinstance(value, str):
        return parse_moment("", value)
    message = "a time is text or milliseconds since 1970 UTC"
    raise InvalidValue(message, hint='use for example "2026-12-01T10:00-08:00", or "20m" from now')


Name = Annotated[str, _NAME, AfterValidator(partial(check_name, "it"))]
"""A name: 1 to 512 characters without NUL."""

TenantName = Annotated[
    str, Field(max_length=MAX_NAME), AfterValidator(partial(check_name, "it", empty=True))
]
"""The name of a tenant; empty for none."""

JobId = Annotated[str, Field(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
"""The id of a job: a UUID in lower case."""

RunNumber = Annotated[int, Field(ge=1, le=2**31 - 1)]

Text = Annotated[str, Field(max_length=4_000), AfterValidator(without_nul)]
"""A reason or a note: up to 4,000 characters."""

Count = Annotated[int, Field(ge=0, le=MAX_CAPACITY)]
"""A number of permits, starts or jobs."""

Positive = Annotated[int, Field(ge=1, le=MAX_CAPACITY)]
"""A number of permits, starts or jobs; at least 1."""

PriorityField = Annotated[int, Field(ge=0, le=MAX_PRIORITY, examples=[512])]
"""A priority; smaller numbers start first."""

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
"""A duration; milliseconds after validation."""

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
"""A time; a duration counts from the store's current time."""

EARLIEST = 100_000_000_000
"""A time in 1973, in ms: a smaller number was meant in seconds, and would be due now."""


def _not_seconds(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < EARLIEST:
        message = f"{value} ms is a time around 1970"
        raise InvalidValue(message, hint="pass milliseconds, not seconds")
    return value


WhenNotSeconds = Annotated[When, BeforeValidator(_not_seconds)]
"""A time, but not a number that is too small to be milliseconds."""
