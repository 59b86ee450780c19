from __future__ import annotations

import json

import pytest

from headway.cli.commands.send import read_object, read_pairs, read_values
from headway.core.errors import InvalidValue


def test_json_values_are_parsed_and_others_are_text():
    pairs = ["n=3", "yes=true", "list=[1, 2]", "phone=+15550100", 'text="0155"', "empty=", "eq=a=b"]
    assert read_values(read_pairs(pairs)) == {
        "n": 3,
        "yes": True,
        "list": [1, 2],
        "phone": "+15550100",
        "text": "0155",
        "empty": "",
        "eq": "a=b",
    }


@pytest.mark.parametrize("pair", ["phone", "=3", ""])
def test_argument_without_a_name_or_a_value_is_refused(pair: str):
    with pytest.raises(InvalidValue, match="is not a name=value"):
        read_pairs([pair])


def test_argument_given_twice_is_refused():
    with pytest.raises(InvalidValue, match="twice"):
        read_pairs(["a=1", "a=2"])


def test_argument_that_is_not_unicode_is_refused():
    with pytest.raises(InvalidValue, match="not valid Unicode"):
        read_values(read_pairs(["a=\udcff"]))


def test_object_is_written_on_one_line():
    assert json.loads(read_object("--args", '{\n "a": [1,\n 2]}')) == {"a": [1, 2]}
    assert b"\n" not in read_object("--args", '{\n "a": [1,\n 2]}')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "not a JSON object"),
        ("3", "not a JSON object"),
        ("{", "not valid JSON: "),
        ("", "not valid JSON: "),
        ("\udcff", "not valid JSON: "),
    ],
)
def test_value_that_is_not_a_json_object_is_refused(text: str, said: str):
    with pytest.raises(InvalidValue, match=f"--args is {said}"):
        read_object("--args", text)
