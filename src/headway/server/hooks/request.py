"""A webhook as it came: what signatures are made over, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeGuard
from urllib.parse import parse_qsl

from headway.core.errors import InvalidValue, Unauthenticated
from headway.server.strict_json import read_json

FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class HookRequest:
    """A webhook as it came.

    Attributes:
        method: in capitals.
        url: as its sender wrote it, whatever a proxy made of it.
        headers: in the order they came; the names in small letters.
        body: raw.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)

    def header(self, name: str) -> str | None:
        """The value of a header; None if there is none.

        Raises:
            Unauthenticated: it came twice, so that two readers could believe different ones.
        """
        found = [value for one, value in self.headers if one == name]
        if len(found) > 1:
            message = f"the header {name} came {len(found)} times"
            raise Unauthenticated(message, hint="send it once")
        return found[0] if found else None

    def needed(self, name: str) -> str:
        """The value of a header that must be there.

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
        """The body as JSON.

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
        """The value of a parameter of the URL; None if there is none.

        Raises:
            InvalidValue: it is there twice, or the query is unusable.
        """
        return only(read_form(self.query), name)


def is_object(one: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a value is an object of JSON."""
    return isinstance(one, dict)


def read_form(written: str | bytes) -> list[tuple[str, str]]:
    """Reads a form or a query.

    Args:
        written: `name=value` pairs, divided by `&`.

    Returns:
        Names and values in their order, empty values too.

    Raises:
        InvalidValue: it is no UTF-8, or has too many fields.
    """
    try:
        text = written if isinstance(written, str) else written.decode()
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        message = "the form is no UTF-8, or has too many fields"
        raise InvalidValue(message, hint=f"at most {MOST_FIELDS}") from None


def only(form: list[tuple[str, str]], name: str) -> str | None:
    """The one value of a field; None if there is none.

    Raises:
        InvalidValue: it has several that differ.
    """
    found = {value for one, value in form if one == name}
    if len(found) > 1:
        message = f"the field {name} has {len(found)} values"
        raise InvalidValue(message, hint="give it once")
    return next(iter(found), None)
