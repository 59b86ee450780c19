"""Reading of tables in the settings file into models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.naming import did_you_mean
from headway.runtime.faults import faults


def _base_url(text: str) -> str:
    scheme, mark, place = text.partition("://")
    if scheme not in {"http", "https"} or not mark or not place.partition("/")[0]:
        message = "is not a URL that starts with https:// or http://"
        raise ValueError(message)
    if "?" in place or "#" in place:
        message = "must not have a query"
        raise ValueError(message)
    return text.rstrip("/")


Span = Annotated[int, BeforeValidator(parse_duration)]
"""A duration such as "10s", in ms."""

BaseUrl = Annotated[str, AfterValidator(_base_url)]
"""Base URL of a provider's API; a slash at its end is removed."""


class Table(BaseModel):
    """A table that refuses unknown keys, and never shows a value in an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class OpenTable(Table):
    """A table without secrets, which shows values in errors."""

    model_config = ConfigDict(hide_input_in_errors=False)


T = TypeVar("T", bound=BaseModel)


def read_table(where: str, model: type[T], written: Mapping[str, object]) -> T:
    """Read a table of the settings.

    Args:
        where: path of the table in the settings, such as "telephony.twilio".

    Raises:
        InvalidValue: a key is unknown or missing, or a value is not valid; the message contains its
            path, and the value unless the model or its field (`repr=False`) hides it.
    """
    try:
        return model.model_validate(dict(written))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    first = faults(errors, dict(written), shows=lambda _: False, toml=True)[0]
    places = [str(one) for one in first.path]
    place = ".".join((where, *places))
    names = [field.alias or name for name, field in _within(model, places[:-1]).items()]
    hint = first.hint
    if first.kind == "extra_forbidden":
        hint = did_you_mean(places[-1], names, f"known: {', '.join(names)}")
        message = f"{place}: there is no such setting"
        raise InvalidValue(message, hint=hint)
    if first.kind == "missing":
        hint = f"known: {', '.join(names)}"
    elif _is_shown(model, places):
        place = f"{place} is {first.value!r:.40}"
    message = f"{place}: {first.what}"
    raise InvalidValue(message, hint=hint)


def _is_shown(model: type[BaseModel], places: Sequence[str]) -> bool:
    """Return whether an error may show the value at a path."""
    named = {one.alias or name: one for name, one in model.model_fields.items()}
    field = named.get(places[0]) if places else None
    return field is not None and field.repr and not model.model_config.get("hide_input_in_errors")


def _within(model: type[BaseModel], tables: Sequence[str]) -> Mapping[str, FieldInfo]:
    """Return the fields of a nested table, or of the innermost one that is a model."""
    fields = model.model_fields
    for part in tables:
        field = next((one for name, one in fields.items() if (one.alias or name) == part), None)
        inner = () if field is None else (field.annotation, *get_args(field.annotation))
        table = next(
            (one for one in inner if isinstance(one, type) and issubclass(one, BaseModel)), None
        )
        if table is None:
            break
        fields = table.model_fields
    return fields
