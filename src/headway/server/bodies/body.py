"""The base of all bodies, and of all that a query may ask."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    TypeAdapter,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler

from headway.server.turns import give_turn

MOST_FIELDS = 64
"""Fields of one object; no body has as many."""

SLICE = 100
"""Bodies of a list that are validated at once."""

One = TypeVar("One")


class FirstFault(FailFast):
    """Ends with the first fault; can stand in a union, unlike its base."""

    def __hash__(self) -> int:
        """All are equal."""
        return hash(self.fail_fast)


Several = Annotated[list[One], FirstFault()]
"""A list, of which the first fault is told: millions of faults would fill the memory."""


def few(most: int) -> BeforeValidator:
    """Refuses an object with more than so many fields, before any of them can be a fault."""

    def check(value: object) -> object:
        if isinstance(value, dict) and (count := len(cast("dict[Any, Any]", value))) > most:
            message = f"it has {count} fields, and {most} are the most"
            raise ValueError(message)
        return cast("object", value)

    return BeforeValidator(check)


def one_or_many(one: type[One], many: Any, most: int) -> WrapValidator:  # noqa: ANN401  (an annotation)
    """Validate one body, or a list of them in slices.

    A call of the validator holds the interpreter until it ends; between slices others are served.
    And a union would report the faults of both shapes at once.

    Args:
        one: the model of a body.
        many: the annotation of the list.
        most: items of a list.
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
            give_turn()
        return found or several.validate_python(given)

    return WrapValidator(validate)


class Body(BaseModel):
    """A body: nothing unknown in it, and no value of another type than was asked for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: object) -> object:
        # Each unknown field would be told as a fault of its own.
        if isinstance(value, dict) and len(cast("dict[Any, Any]", value)) > MOST_FIELDS:
            message = f"it has more than {MOST_FIELDS} fields"
            raise ValueError(message)
        return cast("object", value)


class Asked(BaseModel):
    """What a query string asks: nothing unknown in it; its values are text by nature."""

    model_config = ConfigDict(extra="forbid", frozen=True)
