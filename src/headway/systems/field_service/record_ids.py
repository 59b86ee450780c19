"""Ids of technicians and users: given by whoever makes them, or made of the name."""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256
from typing import Annotated

from pydantic import AfterValidator, Field

from headway.core.errors import InvalidValue
from headway.systems.field_service.records import MAX_ID

RESERVED = frozenset({"import", "nearby"})
"""What stands in paths where an id could."""

_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_OTHERS = re.compile(r"[^a-z0-9]+")
_LONGEST = 48


def _free(text: str) -> str:
    if text in RESERVED:
        message = f"{text!r} cannot be an id"
        raise InvalidValue(message, hint="it is a word of the paths")
    return text


RecordId = Annotated[
    str,
    Field(min_length=1, max_length=MAX_ID, pattern=_PATTERN, examples=["ada"]),
    AfterValidator(_free),
]
"""An id: letters, digits, `.`, `_` and `-`, a letter or digit first."""


def made_id(name: str, distinct: str = "") -> str:
    """An id made of a name.

    Args:
        name: for people.
        distinct: what tells apart those with the same name, such as a telephone number.

    Returns:
        Such as "ada-lovelace", or "ada-lovelace-1f2e3d4c" if there is something distinct.
    """
    plain = unicodedata.normalize("NFKD", name.casefold()).encode("ascii", "ignore").decode()
    slug = _OTHERS.sub("-", plain).strip("-")[:_LONGEST].strip("-")
    if not slug or slug in RESERVED:
        slug = f"n-{_digest(name)}"
    return f"{slug}-{_digest(distinct)}" if distinct else slug


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
