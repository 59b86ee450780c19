"""Problems: what a server refuses, as the error of the tree that it means.

Source: RFC 9457.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from headway.core.errors import (
    CallerError,
    Forbidden,
    HeadwayError,
    InvariantBroken,
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TooManyRequests,
    Unauthenticated,
)

PROBLEM = "application/problem+json"

_BUG = "bug"
_HOW_TO_OPEN = "pass token=, or set HEADWAY_TOKEN; `headway token create` makes one"
_URL_HINT = "is this the address of a Headway server?"

_decode = msgspec.json.Decoder().decode


def error_of(status: int, body: bytes, *, what: str, writes: bool) -> HeadwayError:
    """The error that a reply means.

    Args:
        status: of the reply, 300 or above.
        body: of the reply; a problem if a Headway server wrote it.
        what: the call, for the message, as "POST /v1/jobs".
        writes: whether the call may have written something.

    Returns:
        The error of its code; of an unknown code, the nearest branch.
    """
    problem = _problem(body)
    code = problem.get("code", "")
    if not code:
        return _of_somebody_else(status, what, writes=writes)
    detail = problem.get("detail") or f"{what} was answered with {status}"
    hint = problem.get("hint", "")
    if code == _BUG:
        seen = problem.get("instance", "")
        message = f"{what}: {detail}"
        return InvariantBroken(message, hint=f"{hint}: {seen}" if seen else hint)
    kind = _KINDS.get(code) or _branch(status)
    if kind is Unauthenticated:
        hint = hint or _HOW_TO_OPEN
    return kind(detail, hint=hint)


def _problem(body: bytes) -> Mapping[str, str]:
    try:
        said = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    if not isinstance(said, dict):
        return {}
    fields = cast("dict[str, object]", said)
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def _branch(status: int) -> type[HeadwayError]:
    """The nearest branch for a code that this program does not know."""
    known: dict[int, type[HeadwayError]] = {
        401: Unauthenticated,
        403: Forbidden,
        429: TooManyRequests,
        500: InvariantBroken,
        503: StoreUnavailable,
        507: StoreFull,
    }
    if status in known:
        return known[status]
    return CallerError if status < 500 else StoreError


def _of_somebody_else(status: int, what: str, *, writes: bool) -> HeadwayError:
    """The error for a reply that no Headway server wrote: a proxy's, or another program's."""
    message = f"{what} was answered with {status}"
    if status in {401, 407}:
        return Unauthenticated(message, hint=_HOW_TO_OPEN)
    if status == 403:
        return Forbidden(message, hint="something before the server refuses the call")
    if status == 429:
        return TooManyRequests(message, hint="something before the server limits the calls")
    if status == 503:
        return StoreUnavailable(message, hint="the server is not there")
    if status >= 500:
        # Whoever stands before the server does not know how far the call came.
        return (OutcomeUnknown if writes else StoreUnavailable)(message)
    return CallerError(message, hint=_URL_HINT)


def _all(kind: type[HeadwayError]) -> Iterator[type[HeadwayError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _all(one)


_KINDS: Mapping[str, type[HeadwayError]] = {kind.code: kind for kind in _all(HeadwayError)}
