"""A received webhook, and what the signature schemes share."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeGuard
from urllib.parse import parse_qsl

from cryptography.exceptions import InvalidSignature
from fastapi import Request

from headway.core.errors import InvalidValue, Unauthenticated
from headway.core.naming import whole_number
from headway.server.strict_json import read_json

PROVIDER_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "Whatever the provider sends, with the provider's own signature.",
        "content": {"application/json": {}, "application/x-www-form-urlencoded": {}},
    }
}
"""OpenAPI description of the body of a route that receives webhooks."""


def sender_url(scope: Mapping[str, Any], public_url: str | None) -> str:
    """Return the URL of a request as its sender wrote it.

    Path and query are taken byte for byte. Scheme and host are those of the server's public URL,
    or else of the request. Of the headers that proxies add, only X-Forwarded-Proto of a trusted
    proxy counts; the listener has already applied it.

    Args:
        public_url: the server's URL as the outside world sees it; None if unknown.
    """
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    tail = path + (b"?" + query if query else b"")
    text = tail.decode("utf-8", "replace")
    if public_url is not None:
        return public_url.rstrip("/") + text
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    return f"{scope['scheme']}://{host.decode('latin-1')}{text}"


FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class HookRequest:
    """A webhook as it was received.

    Attributes:
        url: as its sender wrote it; see `sender_url`.
        headers: in the order received; names are in lower case.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)

    def header(self, name: str) -> str | None:
        """Return the value of a header, if present.

        Raises:
            Unauthenticated: the header was sent more than once, which two readers might resolve
                differently.
        """
        found = [value for one, value in self.headers if one == name]
        if len(found) > 1:
            message = f"the header {name} was sent {len(found)} times"
            raise Unauthenticated(message, hint="send it once")
        return found[0] if found else None

    def needed(self, name: str) -> str:
        """Return the value of a required header.

        Raises:
            Unauthenticated: the header is missing or empty, or was sent more than once.
        """
        value = self.header(name)
        if not value:
            message = f"the header {name} is missing"
            raise Unauthenticated(message, hint="configure the provider to sign its webhooks")
        return value

    @property
    def is_form(self) -> bool:
        """Whether the body is a form."""
        content_type = self.header("content-type") or ""
        return content_type.partition(";")[0].strip().lower() == FORM

    def json(self) -> object:
        """Return the body as JSON."""
        return read_json(self.body)

    @property
    def query(self) -> str:
        """The query of the URL, not decoded."""
        return self.url.partition("?")[2]

    def asked(self, name: str) -> str | None:
        """Return the value of a query parameter, if present."""
        return only(read_form(self.query), name)


async def received(request: Request, public_url: str | None) -> HookRequest:
    """Read a request as a webhook; see `sender_url` for its URL."""
    return HookRequest(
        method=request.method,
        url=sender_url(request.scope, public_url),
        headers=tuple(request.headers.items()),
        body=await request.body(),
    )


def is_object(one: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a value is a JSON object."""
    return isinstance(one, dict)


def read_form(written: str | bytes) -> list[tuple[str, str]]:
    """Parse a form or a query into names and values, in order and including empty values.

    Raises:
        InvalidValue: the text is not UTF-8, or has too many fields.
    """
    try:
        text = written if isinstance(written, str) else written.decode()
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        message = "the form is not UTF-8, or has too many fields"
        raise InvalidValue(message, hint=f"at most {MOST_FIELDS} fields") from None


def only(form: list[tuple[str, str]], name: str) -> str | None:
    """Return the value of a field, if present.

    Raises:
        InvalidValue: the field has several different values.
    """
    found = {value for one, value in form if one == name}
    if len(found) > 1:
        message = f"the field {name} has {len(found)} values"
        raise InvalidValue(message, hint="send it once")
    return next(iter(found), None)


TOLERANCE_MS = 300_000
"""Maximum difference between the timestamp of a webhook and now.

Source: Standard Webhooks, "Verifying signatures".
"""


def refuse() -> NoReturn:
    """Refuse a signature, without revealing anything about the expected one.

    Raises:
        Unauthenticated: always.
    """
    message = "the webhook's signature is wrong"
    hint = "compare the keys with the provider's, and public_url with the URL it calls"
    raise Unauthenticated(message, hint=hint)


def check_fresh(written: str, now: int, tolerance_ms: int) -> None:
    """Check that a timestamp is close enough to now.

    Args:
        written: seconds since 1970, as the webhook has it.
        now: in ms UTC.
        tolerance_ms: maximum difference, before and after now.

    Raises:
        Unauthenticated: the timestamp is not a number, or is too far from now.
    """
    seconds = whole_number(written, digits=12)
    if seconds is None:
        message = "the webhook's timestamp is not a number of seconds"
        raise Unauthenticated(message)
    away_ms = now - seconds * 1000
    if abs(away_ms) > tolerance_ms:
        old = "old" if away_ms > 0 else "far ahead"
        message = f"the webhook's timestamp is too {old}"
        raise Unauthenticated(message, hint="check the clocks; webhooks must not be replayed")


def any_same(expected: Iterable[bytes], given: bytes) -> bool:
    """Return whether one of the values equals `given`, in a time that does not depend on which."""
    same = False
    for one in expected:
        same |= hmac.compare_digest(one, given)
    return same


def is_signed(verify: Callable[..., None], *given: object) -> bool:
    """Return whether a public key's `verify` accepts these arguments."""
    try:
        verify(*given)
    except InvalidSignature:
        return False
    return True


def strict_base64(text: str) -> bytes | None:
    """Decode base64; return None unless the text is the canonical encoding of the bytes."""
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        return None
    return data if b64encode(data).decode() == text else None
