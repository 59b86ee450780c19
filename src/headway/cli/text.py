"""JSON as the command writes it."""

from __future__ import annotations

import re

import msgspec

_encode = msgspec.json.Encoder().encode


def to_json(document: object) -> bytes:
    """One JSON document on one line, UTF-8."""
    return _encode(document)


# What JSON may carry as it is and a terminal would obey or hide: DEL, the C1 controls, marks that
# turn the direction of text, line and paragraph separators. C0 controls are escaped by JSON itself.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def printable(text: str) -> str:
    r"""Return the text on one line, each character that is not printable written as an escape.

    Returns:
        Text of printable characters alone, such as `\x1b[2J` or `\n` for what cannot be shown.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def printable_json(text: str) -> str:
    """Return the same JSON document, with characters that a terminal would obey written as escapes.

    Args:
        text: a JSON document; such characters can stand only inside its strings.
    """
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
