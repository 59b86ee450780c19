"""JSON output, and escaping of control characters."""

from __future__ import annotations

import re

import msgspec

_encode = msgspec.json.Encoder().encode


def to_json(document: object) -> bytes:
    """Encode a JSON document on one line."""
    return _encode(document)


# Characters that JSON may contain unescaped, but that a terminal interprets or hides: DEL, the C1
# controls, bidirectional marks, line and paragraph separators. JSON itself escapes C0 controls.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def printable(text: str) -> str:
    r"""Return the text on one line, with unprintable characters escaped, such as `\x1b` or `\n`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def printable_json(text: str) -> str:
    """Return an equal JSON document, with characters escaped that a terminal would interpret.

    They can occur only inside the document's strings.
    """
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
