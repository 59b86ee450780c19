"""JSON replies, and the models that describe them, made from the contract's views."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from functools import cache
from inspect import cleandoc
from typing import Any, ForwardRef, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, create_model

from headway.contract.operate import Acted
from headway.contract.views import (
    EntryView,
    GateState,
    JobView,
    LaneView,
    TrailView,
    WaitingFlow,
    WhyView,
    WorkerView,
)
from headway.core.records import field_names
from headway.runtime.latency import LaneLatency
from headway.runtime.records import View, job_record, record

_GONE = 499

_CURSOR = (str | None, "Give it to the next call; null at the end.")

_encode = msgspec.json.Encoder().encode


def answer(
    value: object, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a reply that says a value as JSON."""
    return json_reply(plain_value(value), status, headers=headers)


def json_reply(
    value: object, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Reply as `answer` does, with what is known to hold no view; quick for long lists."""
    return Response(
        _encode(value),
        status_code=status,
        media_type="application/json",
        headers=None if headers is None else dict(headers),
    )


def disconnected() -> Response:
    """Return a placeholder reply for a client that is gone; its status stands in the log alone."""
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
    if field_names(type(value)):
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
        name: (_described(hints[name], view), Field(description=notes.get(name)))
        for name in field_names(view)
    }
    return _model(view.__name__, _first_line(view), given, {view.__name__: view})


@cache
def page_model(view: type[Any]) -> type[BaseModel]:
    """Return the model of a page of these views."""
    return reply(
        f"PageOf{view.__name__}",
        "Some rows, and where to go on.",
        rows=(list[reply_model(view)], "In the listing's order."),
        cursor=_CURSOR,
    )


def reply(name: str, doc: str, /, **given: tuple[Any, str]) -> type[BaseModel]:
    """Return a model of facts that are in no view."""
    return _model(name, doc, _fields(given), {})


def extended_model(view: type[Any], name: str, /, **given: tuple[Any, str]) -> type[BaseModel]:
    """Return the model of a view's fields and further ones."""
    base = reply_model(view)
    return create_model(name, __base__=base, __doc__=base.__doc__, **_fields(given))


def _fields(given: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    return {name: (kind, Field(description=text)) for name, (kind, text) in given.items()}


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
    if isinstance(hint, type) and field_names(hint):
        return reply_model(hint)
    origin = cast("Any", get_origin(hint))
    if origin is types.UnionType:
        origin = Union
    if origin not in _MADE_OF_OTHERS:
        return cast("Any", hint)
    made: Any = origin[tuple(_described(one, view) for one in get_args(hint))]
    return made


_REVISION = (int, "Of the definitions; for If-Match.")
_UNTIL = (int | None, "When it opens by itself; null if it must be opened.")
_ASKED = '"asked": the job is held; it ends when its run or its deadline says so.'


def _listing(name: str, doc: str, row: type[BaseModel], note: str) -> type[BaseModel]:
    """Return the model of what `listed` answers."""
    return reply(
        name,
        doc,
        rows=(list[row], note),
        cursor=_CURSOR,
        revision=_REVISION,
        now=(int, "The store's time."),
    )


GATE = reply_model(GateState)
GATES = _listing(
    "Gates", "Gates by name.", GATE, "Those that are declared, capped, closed or held."
)
CLOSURE = reply(
    "Closure",
    "A closed gate.",
    gate=(str, "Its name."),
    until_at=_UNTIL,
    by=(str, "Who closed it."),
    reason=(str, "Why."),
)
CLOSURES = _listing(
    "Closures", "Closed gates, by name.", CLOSURE, "May be empty though there is a cursor."
)
CLOSED = reply(
    "Closed",
    "A closing that holds.",
    revision=_REVISION,
    gate=(str, "Its name."),
    until_at=_UNTIL,
)
RELEASED = reply("Released", "Whether a permit was taken.", released=(bool, "The job held one."))
LANE = extended_model(
    LaneView,
    "Lane",
    unfinished=(int, "Jobs that are not final."),
    latency=(reply_model(LaneLatency) | None, "If it was asked for."),
)
LANES = _listing("Lanes", "Lanes by name.", LANE, "With what each holds.")
ENTRY = extended_model(
    EntryView,
    "Entry",
    name=(str, "Of the entry."),
    when=(str, "Its schedule in words."),
    next_at=(list[int], "When it fires next; none while it is off."),
    last_at=(int | None, "When it fired last, as far as the job is kept."),
)
ENTRIES = _listing("Entries", "The timetable, by name.", ENTRY, "With the next fires of each.")
WORKERS = page_model(WorkerView)
TRAIL = page_model(TrailView)


MADE = reply(
    "Made",
    "Which job exists now.",
    id=(str, "The job: the one asked for, or the one that has its key."),
    created=(bool, "Whether this call made it."),
)
MADE_MANY = reply(
    "MadeMany", "Which jobs exist now, in the order asked for.", jobs=(list[MADE], "")
)
JOBS = page_model(JobView)
FLOWS = page_model(WaitingFlow)
WHY = extended_model(
    WhyView,
    "Why",
    kind=(str, "Of the job."),
    lane=(str, "Of the job."),
    tenant=(str, "Of the job."),
    due_at=(int, "When the job is due."),
    blocked=(bool, "Whether it waits for anything but a free handler."),
)
MOVED = reply(
    "Moved",
    "The result of a move on one job.",
    id=(str, "The job."),
    answer=(Acted, _ASKED),
    state=(str | None, "Its state now; null for an unknown one."),
)
MOVED_ONE = reply(
    "MovedOne",
    "The result of a move.",
    id=(str, "The job."),
    answer=(Literal["done", "asked"], _ASKED),
    state=(str, "Its state now."),
)
MOVED_MANY = reply(
    "MovedMany",
    "The result of a move on many jobs.",
    done=(int, "Moved."),
    asked=(int, "Held; each ends when its run or its deadline says so."),
    refused=(int, "The move does not apply to its state."),
    unknown=(int, "There is no such job that the caller sees."),
    fits=(int | None, "Of a dry move: how many fit, up to the limit; else null."),
    jobs=(list[MOVED] | None, "In the order of the ids; null for a move by filter."),
)
