"""A job of a kind that this program does not declare, as a server is asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from uuid_utils import uuid7

from headway.client.fields import Fields
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import parse_instant

OPTIONS = frozenset(
    {
        "candidates",
        "due",
        "expires",
        "job_id",
        "key",
        "lane",
        "priority",
        "subject",
        "tenant",
    }
)
"""What a send says beside arguments; the same words as `Kind.make`."""


def plain_body(kind: str, given: Mapping[str, object], also: Mapping[str, object]) -> Fields:
    """The body that asks for a job of a kind by its name.

    Args:
        kind: its name; the server's App may know it, and any worker.
        given: the handler's arguments, and the options of `Kind.make`; `due` may be a span from
            now, such as "20m".
        also: further fields of the job as the HTTP API has them, such as gates and retry.

    Returns:
        The body; with an id of its own, so that it can be sent again.

    Raises:
        InvalidValue: an option is unusable.
    """
    said: Fields = {name: value for name, value in given.items() if name in OPTIONS}
    args = {name: value for name, value in given.items() if name not in OPTIONS}
    return body_with_id({"kind": kind, "args": args, **_read(said), **also})


def body_with_id(body: Mapping[str, object]) -> Fields:
    """The body with an id, a new one if it has none.

    Raises:
        InvalidValue: it names no kind.
    """
    if not body.get("kind"):
        message = "a job names no kind"
        raise InvalidValue(message, hint='as {"kind": "send_mail", "args": {"to": "…"}}')
    return {"id": str(uuid7()), **body}


def _read(said: Fields) -> Fields:
    body = {name: value for name, value in said.items() if value is not None}
    if "job_id" in body:
        body["id"] = str(body.pop("job_id"))
    if isinstance(body.get("due"), datetime):
        body["due"] = parse_instant(body["due"])
    for name in ("due", "expires"):
        if isinstance(body.get(name), timedelta):
            body[name] = parse_duration(body[name])
    if isinstance(said.get("due"), timedelta):
        # A bare number would be an instant.
        body["due"] = f"{body['due']}ms"
    return body
