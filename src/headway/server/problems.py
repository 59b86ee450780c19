"""Problem details (RFC 9457) for all Headway errors and for invalid requests.

Source: RFC 9457.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import cast

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from headway.core.errors import (
    AccessError,
    BacklogFull,
    CallerError,
    HeadwayError,
    IdConflict,
    InvalidState,
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
from headway.runtime.faults import faults, sentence


def add_members(error: HeadwayError, **members: object) -> None:
    """Add members to the problem of an error; `status` sets the status of the reply."""
    vars(error)["problem"] = {**vars(error).get("problem", {}), **members}


@contextmanager
def named_by_body() -> Generator[None]:
    """Set the status of unknown names to 422 instead of 404, because the body names them.

    Raises:
        UnknownGate: from the block.
        UnknownEntry: from the block.
        UnknownJob: from the block.
    """
    try:
        yield
    except (UnknownGate, UnknownEntry, UnknownJob) as error:
        add_members(error, status=422)
        raise


MEDIA_TYPE = "application/problem+json"
_PATHS = "GET /openapi.json lists all paths; --system adds the paths of a built-in system"
_FIELDS = "GET /openapi.json lists the fields of each request"
RETRY_AFTER_S = 1
"""Seconds after which a request that was refused with 429 or 503 is worth repeating."""

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
    AccessError: 403,
    OwnershipError: 409,
    StoreFull: 507,
    StoreError: 503,
    ProviderError: 502,
    HeadwayError: 500,
}
"""The status of each error class; a class that is missing here has that of its nearest base."""

_log = logging.getLogger("headway.server")


def status_of(error: HeadwayError) -> int:
    """Return the HTTP status for an error."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem(
    status: int,
    *,
    code: str,
    detail: str,
    request: Request,
    hint: str = "",
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> Response:
    """Return a reply with problem details, as `application/problem+json`."""
    body: dict[str, object] = {
        "type": f"/problems/{code}",
        "title": code.replace("_", " "),
        "status": status,
        "detail": detail,
        "code": code,
    }
    if hint:
        body["hint"] = hint
    # For the log. The detail of 401 and 403 contains no data of jobs, so it may be logged.
    request.state.problem = f"{code}: {detail}" if status in {401, 403} else code
    if instance := getattr(request.state, "request_id", ""):
        body["instance"] = f"/requests/{instance}"
    return Response(
        msgspec.json.encode(body | more),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def problem_of(error: HeadwayError, request: Request) -> Response:
    """Return the reply for an error, without the details of internal errors."""
    more: dict[str, object] = dict(getattr(error, "problem", {}))
    own = more.pop("status", None)
    status = own if isinstance(own, int) else status_of(error)
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
    """Return the reply for an error that a route may raise, or None for an unexpected error."""
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
    """Make an app reply to every expected error with a problem."""

    async def respond(request: Request, error: Exception) -> Response:
        response = answer_error(request, error)
        if response is None:
            raise error
        return response

    for kind in (HeadwayError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, respond)


def _refused(request: Request, error: RequestValidationError) -> Response:
    """Return the reply for an invalid request: each location, and what is wrong there."""
    found = faults(error.errors(), cast("object", error.body))
    media = request.headers.get("content-type", "")
    # To the models a body of another type is bytes, and their messages about it do not help.
    unread = bool(found) and found[0].where == "body" and "json" not in media
    hint = "send Content-Type: application/json (curl: --json instead of -d)" if unread else ""
    if any(one.kind == "extra_forbidden" for one in found):
        hint = _FIELDS
    return problem(
        422,
        code="invalid_value",
        detail=sentence(found) or "the request is not valid",
        hint=hint,
        request=request,
        errors=[{"where": one.where, "what": one.said} for one in found],
    )


def _plain(request: Request, error: HTTPException) -> Response:
    match error.__cause__:  # raised while the body was read
        case HeadwayError() as cause:
            return problem_of(cause, request)
        case RequestValidationError() as cause:
            return _refused(request, cause)
        case _:
            pass
    status = HTTPStatus(error.status_code)
    words = {
        404: ("unknown_path", f"the path {request.url.path[:200]} does not exist"),
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


def unexpected(request: Request) -> Response:
    """Return the reply to an internal error; it reveals nothing about the error."""
    return problem(
        500,
        code="bug",
        detail="the server had an unexpected error",
        hint="search the server's log for the id of this request",
        request=request,
    )
