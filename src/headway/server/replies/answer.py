"""An answer: a view of the contract, or a few facts, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import cast

import msgspec
from fastapi import Response

from headway.contract.views import JobView
from headway.runtime.records import View, job_record, record

_GONE = 499

_encode = msgspec.json.Encoder().encode


def answer(
    value: object, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """A reply that says a value.

    Args:
        value: a view, or dicts and lists of views and plain values. JSON that a job carries
            stands in it as that JSON.
        status: of the reply.
        headers: of the reply.

    Returns:
        `application/json`.
    """
    return plain(told(value), status, headers=headers)


def plain(
    value: object, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """As `answer`, of what is known to hold no view; quick for long lists."""
    return Response(
        _encode(value),
        status_code=status,
        media_type="application/json",
        headers=None if headers is None else dict(headers),
    )


def unread() -> Response:
    """A reply that nobody reads, for its client is gone; its status stands in the log alone."""
    return Response(status_code=_GONE)


def told(value: object) -> object:
    """A value as `answer` says it: views as their records."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, JobView):
        return job_record(value)
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: told(one) for name, one in fields.items()}
    if isinstance(value, list | tuple):
        return [told(one) for one in cast("list[object]", value)]
    if is_dataclass(value):
        return record(cast("View", value))
    return value
