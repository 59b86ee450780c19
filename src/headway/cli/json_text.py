"""JSON as the command writes it."""

from __future__ import annotations

import msgspec

_encode = msgspec.json.Encoder().encode
_check = msgspec.json.Decoder(msgspec.Raw).decode


def to_json(document: object) -> bytes:
    """One JSON document on one line, UTF-8."""
    return _encode(document)


def embedded_json(data: bytes) -> object:
    """JSON bytes as a part of a larger document.

    Args:
        data: what a job carries; meant to be JSON.

    Returns:
        The same JSON on one line; where it is none, its text.
    """
    try:
        _check(data)
        data.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return data.decode(errors="replace")
    if b"\n" in data or b"\r" in data:
        # A raw line break can only stand between the tokens of a JSON document.
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return msgspec.Raw(data)
