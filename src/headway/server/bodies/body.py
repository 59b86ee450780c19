"""The base of all bodies, and of all that a query may ask."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, model_validator

MOST_FIELDS = 64
"""Fields of one object; no body has as many."""

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
