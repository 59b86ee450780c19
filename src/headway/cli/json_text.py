"""JSON as the command writes it."""

from __future__ import annotations

import msgspec

_encode = msgspec.json.Encoder().encode


def to_json(document: object) -> bytes:
    """One JSON document on one line, UTF-8."""
    return _encode(document)
