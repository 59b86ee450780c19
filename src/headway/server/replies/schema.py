"""Replies described: a model made of a view, so that each view is told once, in the contract."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import cleandoc
from typing import Any, ForwardRef, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

_MADE_OF_OTHERS: frozenset[Any] = frozenset({dict, list, tuple, Union})
_ATTRIBUTES = re.compile(r"^Attributes:\n(?P<lines>(?:    .*\n?|\n)*)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"^    (?P<name>\w+): (?P<text>.*(?:\n     +.*)*)", re.MULTILINE)


@cache
def reply_model(view: type[Any]) -> type[BaseModel]:
    """The model that describes replies which say a view.

    Args:
        view: a dataclass of the contract.

    Returns:
        A model with its fields. Bytes are any JSON; descriptions are those of its docstring.
    """
    hints, notes = get_type_hints(view), notes_of(view)
    given: dict[str, Any] = {
        one.name: (_described(hints[one.name], view), Field(description=notes.get(one.name)))
        for one in fields(view)
    }
    return _model(view.__name__, _first_line(view), given, {view.__name__: view})


@cache
def page_model(view: type[Any]) -> type[BaseModel]:
    """The model of a page of these views."""
    return reply(
        f"PageOf{view.__name__}",
        "Some rows, and where to go on.",
        rows=(list[reply_model(view)], "In the listing's order."),
        cursor=(str | None, "Give it to the next call; null at the end."),
    )


def reply(name: str, doc: str, /, **given: tuple[Any, str]) -> type[BaseModel]:
    """A model of facts that no view tells.

    Args:
        name: of the model.
        doc: what it is.
        given: each field with its type and description; all are always there.

    Returns:
        The model.
    """
    described: dict[str, Any] = {
        field: (kind, Field(description=text)) for field, (kind, text) in given.items()
    }
    return _model(name, doc, described, {})


def and_more(view: type[Any], name: str, /, **given: tuple[Any, str]) -> type[BaseModel]:
    """The model of a view's fields and further ones.

    Args:
        view: a dataclass of the contract.
        name: of the model.
        given: each further field with its type and description.

    Returns:
        The model.
    """
    described: dict[str, Any] = {
        field: (kind, Field(description=text)) for field, (kind, text) in given.items()
    }
    base = reply_model(view)
    return create_model(name, __base__=base, __doc__=base.__doc__, **described)


def notes_of(view: type[Any]) -> Mapping[str, str]:
    """What a docstring says of each attribute, on one line, in JSON's words."""
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
    """An annotation, with models in the place of dataclasses."""
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
