"""Problem details: every error of the tree as RFC 9457 has it, and the faults of a refused body.

A validator reports the path through its own parts: tags of unions, names of models and functions.
Here each fault gets the path in the request, what is allowed there, and the value that was given.

Source: RFC 9457.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from headway.core.errors import (
    AccessError,
    BacklogFull,
    CallerError,
    Forbidden,
    HandlerError,
    HeadwayError,
    IdConflict,
    InvalidState,
    InvariantBroken,
    KeyConflict,
    OwnershipError,
    PayloadTooLarge,
    ProviderError,
    RevisionConflict,
    StoreError,
    StoreFull,
    TooManyRequests,
    Unauthenticated,
    UnknownEntry,
    UnknownGate,
    UnknownJob,
    UnknownRecord,
)


def add_members(error: HeadwayError, **members: object) -> None:
    """Add members to the problem of an error; `status` is the reply's."""
    vars(error)["problem"] = {**vars(error).get("problem", {}), **members}


@contextmanager
def named_by_body() -> Generator[None]:
    """Reply with 422 instead of 404 to unknown names: the body named them, not the path.

    Raises:
        UnknownGate: as it was.
        UnknownEntry: as it was.
        UnknownJob: as it was.
    """
    try:
        yield
    except (UnknownGate, UnknownEntry, UnknownJob) as error:
        add_members(error, status=422)
        raise


MEDIA_TYPE = "application/problem+json"
_PATHS = "GET /openapi.json lists what there is; --system adds the paths of a ready-made system"
_FIELDS = "GET /openapi.json lists the fields of each request"
RETRY_AFTER_S = 1
"""Seconds after which a call that a passing state refused is worth repeating."""

STATUSES: Mapping[type[HeadwayError], int] = {
    UnknownJob: 404,
    UnknownGate: 404,
    UnknownEntry: 404,
    UnknownRecord: 404,
    PayloadTooLarge: 413,
    KeyConflict: 409,
    IdConflict: 409,
    RevisionConflict: 409,
    InvalidState: 409,
    BacklogFull: 429,
    TooManyRequests: 429,
    CallerError: 422,
    Unauthenticated: 401,
    Forbidden: 403,
    AccessError: 403,
    OwnershipError: 409,
    StoreFull: 507,
    StoreError: 503,
    ProviderError: 502,
    HandlerError: 500,
    InvariantBroken: 500,
    HeadwayError: 500,
}
"""The status of each error: that of its class, else of its nearest base."""

_log = logging.getLogger("headway.server")


def status_of(error: HeadwayError) -> int:
    """Return the HTTP status for an error of the tree."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem(
    status: int,
    *,
    code: str,
    detail: str,
    hint: str = "",
    request: Request | None = None,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> Response:
    """Return a reply that says what is wrong.

    Returns:
        `application/problem+json`.
    """
    said: dict[str, object] = {
        "type": f"/problems/{code}",
        "title": code.replace("_", " "),
        "status": status,
        "detail": detail,
        "code": code,
    }
    if hint:
        said["hint"] = hint
    if request is not None:
        # For the log. A refused login names no job, so its detail may be logged.
        request.state.problem = f"{code}: {detail}" if status in {401, 403} else code
        if instance := getattr(request.state, "request_id", ""):
            said["instance"] = f"/requests/{instance}"
    return Response(
        msgspec.json.encode(said | more),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def problem_of(error: HeadwayError, request: Request | None = None) -> Response:
    """Return the reply for an error of the tree; internal details are left out."""
    more: dict[str, object] = dict(getattr(error, "problem", {}))
    said = more.pop("status", None)
    status = said if isinstance(said, int) else status_of(error)
    headers: dict[str, str] = {}
    if status in {429, 503}:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("%s: %s", type(error).__name__, error, exc_info=error)
        return unexpected(request)
    return problem(
        status,
        code=error.code,
        detail=error.message,
        hint=error.hint,
        request=request,
        headers=headers,
        **more,
    )


def answer_error(request: Request, error: Exception) -> Response | None:
    """Return the reply for an error that a route may raise; None for an unexpected one."""
    match error:
        case HeadwayError():
            return problem_of(error, request)
        case RequestValidationError():
            return _refused(request, error)
        case HTTPException():
            return _plain(request, error)
        case _:
            return None


def add_problem_handlers(app: FastAPI) -> None:
    """Make an app answer every error with a problem."""

    async def respond(request: Request, error: Exception) -> Response:
        response = answer_error(request, error)
        if response is None:
            raise error
        return response

    for kind in (HeadwayError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, respond)


def _refused(request: Request, error: RequestValidationError) -> Response:
    """Return what the models refuse: each place, and what is wrong there."""
    found = faults(error.errors(), cast("object", error.body))
    media = request.headers.get("content-type", "")
    # A body of another type is bytes to the models, whose messages about it are of no use.
    unread = bool(found) and found[0].where == "body" and "json" not in media
    hint = "send Content-Type: application/json (curl: --json instead of -d)" if unread else ""
    if any(one.what == _PLAIN["extra_forbidden"] for one in found):
        hint = _FIELDS
    return problem(
        422,
        code="invalid_value",
        detail=sentence(found) or "the request is not valid",
        hint=hint,
        request=request,
        errors=[{"where": one.where, "what": one.what} for one in found],
    )


def _plain(request: Request, error: HTTPException) -> Response:
    match error.__cause__:  # met while the body was read
        case HeadwayError() as cause:
            return problem_of(cause, request)
        case RequestValidationError() as cause:
            return _refused(request, cause)
        case _:
            pass
    status = HTTPStatus(error.status_code)
    words = {
        404: ("unknown_path", f"there is nothing at {request.url.path[:200]}"),
        405: ("unknown_method", f"{request.method} does not apply to {request.url.path[:200]}"),
        413: ("payload_too_large", "the body is above the limit"),
    }
    code, detail = words.get(
        status, (status.phrase.lower().replace(" ", "_"), str(error.detail)[:400])
    )
    return problem(
        status,
        code=code,
        detail=detail,
        hint=_PATHS if code == "unknown_path" else "",
        request=request,
        headers=error.headers,
    )


def unexpected(request: Request | None) -> Response:
    """Return the reply to an internal error; it reveals nothing about the error."""
    return problem(
        500,
        code="bug",
        detail="the server met something it did not expect",
        hint="its log has this request's id",
        request=request,
    )


MOST_FAULTS = 100
"""Faults of one request that are reported."""
MOST_SHOWN = 60
"""Characters of a value that are shown."""
MOST_TEXT = 400
"""Characters of what is said of one fault."""

Part = str | int

_SECRET = re.compile(r"(?i)secret|token|password|signature|credential|authorization|private")
_INTERNAL = re.compile(r"[\[(]|^(?:constrained|lax-or-strict|json-or-python|is-instance)-|Body$")
_TYPES: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
}
"""What should be where there is a value of another type."""
_BOUNDS: Mapping[str, str] = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "int_parsing_size": "a smaller number",
}
"""What a value should be."""
_PLAIN: Mapping[str, str] = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such field",
    "string_too_short": "it should have at least {min_length} characters",
    "string_too_long": "it should have at most {max_length} characters",
    "too_short": "it should have at least {min_length} items, and has {actual_length}",
    "too_long": "it should have at most {max_length} items",
    "union_tag_not_found": "the field {discriminator} is missing",
    "union_tag_invalid": "the field {discriminator} should be one of {expected_tags}",
    "string_unicode": "it should be text in UTF-8",
    "json_invalid": "it is not JSON: {error}",
    "invalid_key": "a key of it should be text",
}
"""What is wrong, of faults that are not about the type or the range of a value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A place in what was given, and what is wrong there.

    Attributes:
        path: keys and indexes, from the outermost one.
        what: what is wrong, and what is allowed.
    """

    path: tuple[Part, ...]
    what: str

    @property
    def where(self) -> str:
        """The path as one line, such as `body.gates.0.amount`."""
        return ".".join(str(one)[:80] for one in self.path)


def faults(errors: Sequence[Mapping[str, Any]], root: object = None) -> list[Fault]:
    """Read a validator's errors.

    Args:
        errors: of one validation, as pydantic lists them.
        root: what was validated. If a place begins with the name of a part of a request, it is
            the value of the body.

    Returns:
        The faults in their order, each place with its alternatives once; up to 100.
    """
    placed = [(_path(one, root), one) for one in errors[: 10 * MOST_FAULTS]]
    found: dict[tuple[Part, ...], list[Mapping[str, Any]]] = {}
    for path, one in placed:
        found.setdefault(path, []).append(one)
    deeper = {path[:end] for path in found for end in range(len(path))}
    read: list[Fault] = []
    for path, there in found.items():
        others = [one for one in there if one["type"] not in _TYPES]
        if others:
            whats = [_what(path, one) for one in others]
        elif path in deeper:
            continue  # a type that another alternative of the union wants
        else:
            wanted = dict.fromkeys(_TYPES[one["type"]] for one in there)
            whats = [f"it should be {' or '.join(wanted)}{_given(path, there[0])}"]
        read += [Fault(path=path, what=what) for what in dict.fromkeys(whats)]
    return read[:MOST_FAULTS]


def sentence(found: Sequence[Fault]) -> str:
    """Return the first faults as one line."""
    return "; ".join(f"{one.where}: {one.what}" if one.path else one.what for one in found[:3])


def _path(error: Mapping[str, Any], root: object) -> tuple[Part, ...]:
    """Return the place of a fault in the JSON, without the parts of the validator on the way."""
    loc = cast("tuple[Part, ...]", tuple(error.get("loc", ())))
    head = loc[:1] if loc and loc[0] in {"body", "query", "path", "header"} else ()
    rest = loc[len(head) :]
    if head in {(), ("body",)} and root is not None:
        names_child = error["type"] in {"missing", "extra_forbidden"}
        target = error.get("input")
        last: tuple[Part, ...] = rest[-1:] if names_child else ()
        steps = rest[: len(rest) - len(last)]
        if error["type"] == "extra_forbidden":
            paths = _paths(root, steps, lambda one: isinstance(one, dict) and rest[-1] in one)
        else:
            paths = _paths(root, steps, lambda one: one is target)
        # If two are equally long, the one with the later last step.
        best = max(reversed([*paths]), key=len, default=None)
        if best is not None:
            return (*head, *best, *last)
    return (*head, *(one for one in rest if not _INTERNAL.search(str(one))))


def _paths(
    value: object, steps: Sequence[Part], fits: Callable[[Any], bool]
) -> Iterator[tuple[Part, ...]]:
    """Yield the ways from a value along some of the steps, in their order, to one that fits."""
    if fits(value):
        yield ()
    for place, step in enumerate(steps[:24]):
        held: object
        if isinstance(value, dict) and step in value:
            held = cast("dict[Part, object]", value)[step]
        elif isinstance(value, list) and isinstance(step, int):
            items = cast("list[object]", value)
            if not 0 <= step < len(items):
                continue
            held = items[step]
        else:
            continue
        yield from ((step, *path) for path in _paths(held, steps[place + 1 :], fits))


def _what(path: tuple[Part, ...], error: Mapping[str, Any]) -> str:
    kind = str(error["type"])
    context = cast("Mapping[str, Any]", error.get("ctx") or {})
    if kind in {"value_error", "assertion_error"}:
        return str(context.get("error") or "it is not valid")[:MOST_TEXT]
    try:
        if kind in _BOUNDS:
            return f"it should be {_BOUNDS[kind].format(**context)}{_given(path, error)}"[
                :MOST_TEXT
            ]
        said = _PLAIN.get(kind, "it is not valid").format(**context)
    except KeyError:
        said = "it is not valid"
    return said[:MOST_TEXT]


def _given(path: tuple[Part, ...], error: Mapping[str, Any]) -> str:
    """Return the value that was given, if it may be shown; of one that is long, its beginning."""
    if "input" not in error:
        return ""
    return f", and is {_shown(path, error['input'])}"


def _shown(path: tuple[Part, ...], value: object) -> str:
    hidden = path[:1] == ("header",) or any(_SECRET.search(str(one)) for one in path)
    match value:
        case None | bool() | int() | float() if not hidden:
            text = json.dumps(value)
            return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
        case str() if not hidden:
            cut = value[:MOST_SHOWN]
            return json.dumps(cut) if len(value) <= MOST_SHOWN else f"{json.dumps(cut)}…"
        case str() | bytes():
            return f"a text of {len(value)} characters"
        case dict():
            return "an object"
        case list() | tuple():
            return "a list"
        case _:
            return "another value"
