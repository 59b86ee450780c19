from __future__ import annotations

import json

import pytest

from headway.cli.text import printable, printable_json


@pytest.mark.parametrize(
    "text",
    ["plain", "Grüße, 東京", "a b", "", "tab-free {} [red]markup[/red]"],
)
def test_printable_text_is_unchanged(text: str):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("two\nlines", "two\\nlines"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eright to left", "\\u202eright to left"),
        ("\udcff", "\\udcff"),
        ("\x00", "\\x00"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str):
    assert printable(text) == shown
    assert printable(text).isprintable()


def test_json_keeps_its_value_without_control_characters():
    value = {"a\x9b": "\x7f\u202e\u2028 ok \u200b\ufeff é"}
    text = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert text.isprintable()
