"""Redaction of secrets: recognised by the names of values, and by patterns in text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

HIDDEN = "[hidden]"

_WORDS = (
    r"pass(?:word|wd|phrase)|secret|token|authori[sz]ation|api[_-]?key|signing[_-]?key|credential"
    r"|cookie|signature"
)
_SECRET = re.compile(_WORDS, re.IGNORECASE)
# What precedes a delimiter is bounded, so that a long text without it does not take quadratic time.
_IN_TEXT = (
    # Before the @ of a URL.
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)[^/\s@]+@", re.IGNORECASE), rf"\1{HIDDEN}@"),
    # A token of Headway: its id is not secret, and helps to find it.
    (re.compile(r"\b(hw_[0-9a-f]{16}_)[A-Za-z0-9_-]+"), rf"\1{HIDDEN}"),
    # The value of a header.
    (re.compile(r"\b(bearer)\s+(?!\[hidden\])[^\s'\",;)}\]]+", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(basic)\s+[A-Za-z0-9+/=]{12,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    # name=value, as in the query of a URL or in a repr; "name": "value", as in JSON.
    (
        re.compile(
            rf"((?:{_WORDS})\w{{0,64}}=)(['\"]?)(?!\[hidden\])[^\s&'\",;)}}\]]+", re.IGNORECASE
        ),
        rf"\1\2{HIDDEN}",
    ),
    (
        re.compile(
            rf"(['\"][\w-]{{0,64}}(?:{_WORDS})[\w-]{{0,64}}['\"]\s*:\s*['\"])(?!\[hidden\])[^'\"]+",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
)


def hidden_value(value: object) -> object:
    """Return a value with its secrets replaced, including those in nested mappings and lists."""
    match value:
        case str():
            return hidden_text(value)
        case None | bool() | int() | float():
            return value
        case Mapping():
            fields = cast("Mapping[str, object]", value)
            return {
                key: HIDDEN if _SECRET.search(str(key)) else hidden_value(one)
                for key, one in fields.items()
            }
        case list() | tuple():
            return [hidden_value(one) for one in cast("list[object]", value)]
        case _:
            return _shown(value)


def _shown(value: object) -> object:
    """Return the value, or its redacted repr if that contains a secret."""
    text = repr(value)
    hidden = hidden_text(text)
    return value if hidden == text else hidden


def hidden_text(text: str) -> str:
    """Return a text with everything that looks like a secret replaced."""
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text
