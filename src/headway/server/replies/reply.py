"""JSON replies, and the models that describe them, made from the contract's views."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import cleandoc
from typing import Any, ForwardRef, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, create_model

from headway.contract.views import JobView
from headway.runtime.records import View, job_record, record

_GONE = 499

_encode = msgspec.json.Encoder().encode


def answer(
    value: object, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a reply that says a value.

    Returns:
        `application/json`.
    """
    return json_reply(plain_value(value), status, headers=headers)


def json_reply(
    value: object, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """As `answer`, of what is known to hold no view; quick for long lists."""
    return Response(
        _encode(value),
        status_code=status,
        media_type="application/json",
        headers=None if headers is None else dict(headers),
    )


def disconnected() -> Response:
    """Return a placeholder reply for a client that is gone.

    Its status stands in the log alone.
    """
    return Response(status_code=_GONE)


def plain_value(value: object) -> object:
    """Return a value as `answer` says it: views as their records."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, JobView):
        return job_record(value)
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: plain_value(one) for name, one in fields.items()}
    if isinstance(value, list | tuple):
        return [plain_value(one) for one in cast("list[object]", value)]
    if is_dataclass(value):
        return record(cast("View", value))
    return value


_MADE_OF_OTHERS: frozenset[Any] = frozenset({dict, list, tuple, Union})
_ATTRIBUTES = re.compile(r"^Attributes:\n(?P<lines>(?:    .*\n?|\n)*)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"^    (?P<name>\w+): (?P<text>.*(?:\n     +.*)*)", re.MULTILINE)


@cache
def reply_model(view: type[Any]) -> type[BaseModel]:
    """Return the model that describes replies which say a view.

    Returns:
        A model with its fields. Bytes are any JSON; descriptions are those of its docstring.
    """
    hints, notes = get_type_hints(view), attribute_docs(view)
    given: dict[str, Any] = {
        one.name: (_described(hints[one.name], view), Field(description=notes.get(one.name)))
        for one in fields(view)
    }
    return _model(view.__name__, _first_line(view), given, {view.__name__: view})


@cache
def page_model(view: type[Any]) -> type[BaseModel]:
    """Return the model of a page of these views."""
    return reply(
        f"PageOf{view.__name__}",
        "Some rows, and where to go on.",
        rows=(list[reply_model(view)], "In the listing's order."),
        cursor=(str | None, "Give it to the next call; null at the end."),
    )


def reply(name: str, doc: str, /, **given: tuple[Any, str]) -> type[BaseModel]:
    """Return a model of facts that are in no view.

    Returns:
        The model.
    """
    described: dict[str, Any] = {
        field: (kind, Field(description=text)) for field, (kind, text) in given.items()
    }
    return _model(name, doc, described, {})


def extended_model(view: type[Any], name: str, /, **given: tuple[Any, str]) -> type[BaseModel]:
    """Return the model of a view's fields and further ones.

    Returns:
        The model.
    """
    described: dict[str, Any] = {
        field: (kind, Field(description=text)) for field, (kind, text) in given.items()
    }
    base = reply_model(view)
    return create_model(name, __base__=base, __doc__=base.__doc__, **described)


def attribute_docs(view: type[Any]) -> Mapping[str, str]:
    """Return what a docstring says of each attribute, on one line, in JSON's words."""
    found = _ATTRIBUTES.search(cleandoc(view.__doc__ or ""))
    if found is None:
        return {}
    lines = _ATTRIBUTE.finditer(found["lines"])
    return {one["name"]: _for_json(" ".join(one["text"].split())) for one in lines}


def _for_json(text: str) -> str:
    return (text[:1].upper() + text[1:]).replace("None", "null")


def _model(
    name: str, doc: str, given: dict[str, Any], known: dict[str, type[Any]]
) -> type[BaseModel]:
    model = create_model(name, __config__=ConfigDict(title=name), __doc__=doc, **given)
    model.model_rebuild(_types_namespace=dict.fromkeys(known, model))
    return model


def _first_line(view: type[Any]) -> str:
    return cleandoc(view.__doc__ or "").partition("\n")[0]


def _described(hint: Any, view: type[Any]) -> Any:  # noqa: ANN401  (an annotation)
    """Return an annotation, with models in the place of dataclasses."""
    if hint is bytes:
        return Any
    if hint is view:
        return ForwardRef(view.__name__)
    if isinstance(hint, type) and is_dataclass(hint):
        return reply_model(hint)
    origin = cast("Any", get_origin(hint))
    if origin is types.UnionType:
        origin = Union
    if origin not in _MADE_OF_OTHERS:
        return cast("Any", hint)
    made: Any = origin[tuple(_described(one, view) for one in get_args(hint))]
    return made
