"""A webhook as it was received, and what the checks of its signature share."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeGuard
from urllib.parse import parse_qsl

from fastapi import Request

from headway.core.errors import InvalidValue, Unauthenticated
from headway.server.strict_json import read_json

PROVIDER_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "Whatever the provider sends, with the provider's own signature.",
        "content": {"application/json": {}, "application/x-www-form-urlencoded": {}},
    }
}
"""What OpenAPI says of the body of a route that receives webhooks."""


def sender_url(scope: Mapping[str, Any], public_url: str | None) -> str:
    """Return the URL of a request as its sender wrote it.

    Path and query are taken byte for byte. The rest is the server's public address; without one,
    the scheme and the host are the request's own: of the headers of proxies only
    X-Forwarded-Proto counts, and only that of a trusted one, which the listener has seen to.

    Args:
        scope: of the request, as ASGI has it.
        public_url: the server's address as the outside world sees it; None if that is not known.
    """
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    tail = path.partition(b"?")[0] + (b"?" + query if query else b"")
    text = tail.decode("utf-8", "replace")
    if public_url is not None:
        return public_url.rstrip("/") + text
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    return f"{scope['scheme']}://{host.decode('latin-1')}{text}"


FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class HookRequest:
    """A webhook as it came.

    Attributes:
        url: as its sender wrote it, whatever a proxy made of it.
        headers: in the order they came; the names in small letters.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)

    def header(self, name: str) -> str | None:
        """Return the value of a header; None if there is none.

        Raises:
            Unauthenticated: it came twice, so that two readers could believe different ones.
        """
        found = [value for one, value in self.headers if one == name]
        if len(found) > 1:
            message = f"the header {name} was sent {len(found)} times"
            raise Unauthenticated(message, hint="send it once")
        return found[0] if found else None

    def needed(self, name: str) -> str:
        """Return the value of a header that must be there.

        Raises:
            Unauthenticated: it is missing, empty, or came twice.
        """
        value = self.header(name)
        if not value:
            message = f"the header {name} is missing"
            raise Unauthenticated(message, hint="let the provider sign its webhooks")
        return value

    @property
    def is_form(self) -> bool:
        """Whether the body is a form."""
        said = self.header("content-type") or ""
        return said.partition(";")[0].strip().lower() == FORM

    def json(self) -> object:
        """Return the body as JSON.

        Raises:
            InvalidValue: it is not strict JSON.
            PayloadTooLarge: it has too many values.
        """
        return read_json(self.body)

    @property
    def query(self) -> str:
        """The URL's query, as it was written."""
        return self.url.partition("#")[0].partition("?")[2]

    def asked(self, name: str) -> str | None:
        """Return the value of a parameter of the URL; None if there is none.

        Raises:
            InvalidValue: it is there twice, or the query is unusable.
        """
        return only(read_form(self.query), name)


async def received(request: Request, public_url: str | None) -> HookRequest:
    """Return a webhook as it came; its URL as `sender_url` has it."""
    return HookRequest(
        method=request.method,
        url=sender_url(request.scope, public_url),
        headers=tuple(request.headers.items()),
        body=await request.body(),
    )


def is_object(one: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a value is an object of JSON."""
    return isinstance(one, dict)


def read_form(written: str | bytes) -> list[tuple[str, str]]:
    """Read a form or a query.

    Returns:
        Names and values in their order, empty values too.

    Raises:
        InvalidValue: it is no UTF-8, or has too many fields.
    """
    try:
        text = written if isinstance(written, str) else written.decode()
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        message = "the form is not UTF-8, or has too many fields"
        raise InvalidValue(message, hint=f"at most {MOST_FIELDS}") from None


def only(form: list[tuple[str, str]], name: str) -> str | None:
    """Return the one value of a field; None if there is none.

    Raises:
        InvalidValue: it has several that differ.
    """
    found = {value for one, value in form if one == name}
    if len(found) > 1:
        message = f"the field {name} has {len(found)} values"
        raise InvalidValue(message, hint="give it once")
    return next(iter(found), None)


TOLERANCE_MS = 300_000
"""How far the moment of a webhook may lie from now.

Source: Standard Webhooks, "Verifying signatures".
"""

_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


def refuse() -> NoReturn:
    """Refuse a signature; the message reveals nothing about the expected one.

    Raises:
        Unauthenticated: always.
    """
    message = "the webhook's signature is wrong"
    hint = "compare the keys with the provider's, and public_url with the URL it calls"
    raise Unauthenticated(message, hint=hint)


def check_fresh(written: str, now: int, tolerance_ms: int) -> None:
    """Check that a timestamp is close enough to now.

    Args:
        written: seconds since 1970, as the webhook says.
        now: the moment, ms UTC.
        tolerance_ms: how far it may lie from now, before and after.

    Raises:
        Unauthenticated: it is no number, or too far away.
    """
    if _SECONDS.fullmatch(written) is None:
        message = "the webhook's timestamp is not a number of seconds"
        raise Unauthenticated(message)
    away_ms = now - int(written) * 1000
    if abs(away_ms) > tolerance_ms:
        old = "old" if away_ms > 0 else "far ahead"
        message = f"the webhook's timestamp is too {old}"
        raise Unauthenticated(message, hint="check the clocks; webhooks must not be replayed")


def any_same(expected: Iterable[bytes], said: bytes) -> bool:
    """Return whether one of them is what was said, in a time that does not depend on which one."""
    same = False
    for one in expected:
        same |= hmac.compare_digest(one, said)
    return same


def strict_base64(text: str) -> bytes | None:
    """Return the bytes that a text stands for.

    None unless it is the one text that stands for them.
    """
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        return None
    return data if b64encode(data).decode() == text else None
