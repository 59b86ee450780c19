"""Secrets are masked in what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.hidden import hidden_text, hidden_value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ada:pw@db/x", "postgresql://[hidden]@db/x"),
        ("GET /x?api_key_2=abc&n=1", "GET /x?api_key_2=[hidden]&n=1"),
        ("{'my-token': 'abc'}", "{'my-token': '[hidden]'}"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [hidden]"),
        ("a" * 99 + "+postgresql://ada:pw@db/x", "a" * 99 + "+postgresql://[hidden]@db/x"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_text_that_looks_like_a_secret_is_replaced(text: str, shown: str):
    assert hidden_text(text) == shown
    # What is masked may be masked again, as in a page that shows a masked error.
    assert hidden_text(shown) == shown


def test_values_under_secret_names_are_replaced_at_any_depth():
    value: Any = {"a": [{"password": "x", "n": 1}], "Client-Secret": {"y": 2}}
    assert hidden_value(value) == {
        "a": [{"password": "[hidden]", "n": 1}],
        "Client-Secret": "[hidden]",
    }
