"""One provider's table of the settings, read into a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.naming import did_you_mean


def _span(value: object) -> int:
    return parse_duration(value)


def _base_url(text: str) -> str:
    scheme, mark, place = text.partition("://")
    if scheme not in {"http", "https"} or not mark or not place.partition("/")[0]:
        message = "is no URL that begins with https:// or http://"
        raise ValueError(message)
    if "?" in place or "#" in place:
        message = "must not have a query"
        raise ValueError(message)
    return text.rstrip("/")


Span = Annotated[int, BeforeValidator(_span)]
"""A span such as "10s", in ms."""

BaseUrl = Annotated[str, AfterValidator(_base_url)]
"""Where a provider's API is; without a slash at its end."""


class Table(BaseModel):
    """A table that refuses what it does not know, and never shows a value in an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


T = TypeVar("T", bound=Table)


def read_table(where: str, model: type[T], written: Mapping[str, object]) -> T:
    """Reads a table.

    Args:
        where: its place in the settings, such as "telephony.twilio".
        model: what it must hold.
        written: as the settings have it.

    Returns:
        The model.

    Raises:
        InvalidValue: it holds what is unknown or unusable; the message names the place, never the
            value.
    """
    try:
        return model.model_validate(dict(written))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join((where, *map(str, first["loc"])))
        names = [field.alias or name for name, field in _within(model, first["loc"]).items()]
        known = f"known: {', '.join(names)}"
        if first["type"] == "extra_forbidden":
            message = f"{place}: there is no such setting"
            hint = did_you_mean(str(first["loc"][-1]), names, known)
            raise InvalidValue(message, hint=hint) from None
        said = first["msg"].removeprefix("Value error, ")
        # Its first letter alone: a pattern that it quotes has capitals of its own.
        message = f"{place}: {said[:1].lower()}{said[1:]}"
        raise InvalidValue(message, hint=known) from None


def _within(model: type[Table], place: Sequence[int | str]) -> Mapping[str, FieldInfo]:
    """The settings of the innermost table on the way to a place."""
    fields = model.model_fields
    for part in place:
        field = next((one for name, one in fields.items() if (one.alias or name) == part), None)
        inner = () if field is None else (field.annotation, *get_args(field.annotation))
        table = next(
            (one for one in inner if isinstance(one, type) and issubclass(one, Table)), None
        )
        if table is None:
            break
        fields = table.model_fields
    return fields
