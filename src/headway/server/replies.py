"""JSON replies, and the models that describe them, generated from the contract's views."""

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
from headway.runtime.records import AnyDataclass, job_record, record

_GONE = 499

_CURSOR = (str | None, "Cursor for the next request; null at the end.")

_encode = msgspec.json.Encoder().encode


def answer(
    value: object, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a reply with a value, which may contain views, as JSON."""
    return json_reply(plain_value(value), status, headers=headers)


def json_reply(
    value: object, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Like `answer`, for values without views; faster for long lists."""
    return Response(
        _encode(value),
        status_code=status,
        media_type="application/json",
        headers=None if headers is None else dict(headers),
    )


def disconnected() -> Response:
    """Return a placeholder reply for a client that disconnected; its status is only logged."""
    return Response(status_code=_GONE)


def plain_value(value: object) -> object:
    """Return a value with its views replaced by their records."""
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
        return record(cast("AnyDataclass", value))
    return value


_MADE_OF_OTHERS: frozenset[Any] = frozenset({dict, list, tuple, Union})
_UNDER_WAY: set[type[Any]] = set()
"""Views whose models are being made, because views may contain each other."""
_INCOMPLETE: list[type[BaseModel]] = []
"""Models that refer to one that is still being made."""
_ATTRIBUTES = re.compile(r"^Attributes:\n(?P<lines>(?:    .*\n?|\n)*)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"^    (?P<name>\w+): (?P<text>.*(?:\n     +.*)*)", re.MULTILINE)


@cache
def reply_model(view: type[Any]) -> type[BaseModel]:
    """Return the model of a view's record.

    Bytes are any JSON; the descriptions are from the view's docstring.
    """
    hints, notes = get_type_hints(view), attribute_docs(view)
    _UNDER_WAY.add(view)
    given: dict[str, Any] = {
        name: (_described(hints[name]), Field(description=notes.get(name)))
        for name in field_names(view)
    }
    _UNDER_WAY.discard(view)
    return _model(view.__name__, _first_line(view), given, {view.__name__: view})


@cache
def page_model(view: type[Any]) -> type[BaseModel]:
    """Return the model of a page of views."""
    return reply(
        f"PageOf{view.__name__}",
        "One page of a listing.",
        rows=(list[reply_model(view)], "Rows, in the order of the listing."),
        cursor=_CURSOR,
    )


def reply(name: str, doc: str, /, **given: tuple[Any, str]) -> type[BaseModel]:
    """Return a model with the given fields, each with its description."""
    return _model(name, doc, _fields(given), {})


def extended_model(view: type[Any], name: str, /, **given: tuple[Any, str]) -> type[BaseModel]:
    """Return the model of a view with additional fields."""
    base = reply_model(view)
    return create_model(name, __base__=base, __doc__=base.__doc__, **_fields(given))


def _fields(given: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    return {name: (kind, Field(description=text)) for name, (kind, text) in given.items()}


def attribute_docs(view: type[Any]) -> Mapping[str, str]:
    """Return the description of each attribute from a docstring, on one line, with JSON's terms."""
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
    names = dict.fromkeys(known, model)
    _INCOMPLETE[:] = [
        one
        for one in (model, *_INCOMPLETE)
        if one.model_rebuild(raise_errors=False, _types_namespace=names) is False
    ]
    return model


def _first_line(view: type[Any]) -> str:
    return cleandoc(view.__doc__ or "").partition("\n")[0]


def _described(hint: Any) -> Any:  # noqa: ANN401  (an annotation)
    """Return an annotation, with dataclasses replaced by their models."""
    if hint is bytes:
        return Any
    if isinstance(hint, type) and field_names(hint):
        return ForwardRef(hint.__name__) if hint in _UNDER_WAY else reply_model(hint)
    origin = cast("Any", get_origin(hint))
    if origin is types.UnionType:
        origin = Union
    if origin not in _MADE_OF_OTHERS:
        return cast("Any", hint)
    made: Any = origin[tuple(_described(one) for one in get_args(hint))]
    return made


_REVISION = (int, "Revision of the definitions, for If-Match.")
_UNTIL = (int | None, "When the gate opens by itself; null if it has to be opened.")
_ASKED = 'Result. "asked": the job is held, and is cancelled when its run or its deadline ends.'


def _listing(name: str, doc: str, row: type[BaseModel], note: str) -> type[BaseModel]:
    """Return the model of a reply of `listed`."""
    return reply(
        name,
        doc,
        rows=(list[row], note),
        cursor=_CURSOR,
        revision=_REVISION,
        now=(int, "Current time of the store."),
    )


GATE = reply_model(GateState)
GATES = _listing(
    "Gates", "A page of gates, by name.", GATE, "Gates that are declared, capped, closed or held."
)
CLOSURE = reply(
    "Closure",
    "A closed gate.",
    gate=(str, "Name of the gate."),
    until_at=_UNTIL,
    by=(str, "Who closed the gate."),
    reason=(str, "Reason for closing it."),
)
CLOSURES = _listing(
    "Closures",
    "A page of closed gates, by name.",
    CLOSURE,
    "Closed gates; may be empty even if there is a cursor.",
)
CLOSED = reply(
    "Closed",
    "A gate that is now closed.",
    revision=_REVISION,
    gate=(str, "Name of the gate."),
    until_at=_UNTIL,
)
RELEASED = reply(
    "Released", "Whether a permit was taken.", released=(bool, "Whether the job held a permit.")
)
LANE = extended_model(
    LaneView,
    "Lane",
    unfinished=(int, "Number of jobs that are not final."),
    latency=(reply_model(LaneLatency) | None, "Latency, if requested."),
)
LANES = _listing("Lanes", "A page of lanes, by name.", LANE, "Lanes, each with its jobs by state.")
ENTRY = extended_model(
    EntryView,
    "Entry",
    name=(str, "Name of the entry."),
    when=(str, "Schedule in words."),
    next_at=(list[int], "Next fires; empty while the entry is off."),
    last_at=(int | None, "When the entry last fired, if that job is still kept."),
)
ENTRIES = _listing(
    "Entries", "A page of the timetable, by name.", ENTRY, "Entries, each with its next fires."
)
WORKERS = page_model(WorkerView)
TRAIL = page_model(TrailView)


MADE = reply(
    "Made",
    "The job that now exists.",
    id=(str, "Id of the job: the new one, or the existing one with the same key."),
    created=(bool, "Whether this request created it."),
)
MADE_MANY = reply(
    "MadeMany",
    "The jobs that now exist, in the order of the request.",
    jobs=(list[MADE], "One item for each job of the request."),
)
JOBS = page_model(JobView)
FLOWS = page_model(WaitingFlow)
WHY = extended_model(
    WhyView,
    "Why",
    kind=(str, "Kind of the job."),
    lane=(str, "Lane of the job."),
    tenant=(str, "Tenant of the job."),
    due_at=(int, "When the job is due."),
    blocked=(bool, "Whether the job waits for anything other than a free handler."),
)
MOVED = reply(
    "Moved",
    "The result of a move on one job.",
    id=(str, "Id of the job."),
    answer=(Acted, _ASKED),
    state=(str | None, "Current state; null for an unknown job."),
)
MOVED_ONE = reply(
    "MovedOne",
    "The result of a move.",
    id=(str, "Id of the job."),
    answer=(Literal["done", "asked"], _ASKED),
    state=(str, "Current state."),
)
MOVED_MANY = reply(
    "MovedMany",
    "The result of a move on many jobs.",
    done=(int, "Number of jobs moved."),
    asked=(int, "Number of held jobs; each is cancelled when its run or its deadline ends."),
    refused=(int, "Number of jobs whose state does not allow the move."),
    unknown=(int, "Number of ids for which the caller sees no job."),
    more=(bool | None, "Whether jobs above the limit match, too; null for a move by ids."),
    fits=(int | None, "For a dry move: how many jobs match, up to the limit; otherwise null."),
    jobs=(list[MOVED] | None, "Results in the order of the ids; null for a move by filter."),
)
