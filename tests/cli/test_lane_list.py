from __future__ import annotations

import pytest

from headway.cli.lane_list import read_lanes
from headway.core.errors import InvalidValue


def test_lanes_have_their_weights_and_else_one():
    assert read_lanes(["calls:3, mail", "slow"]) == {"calls": 3, "mail": 1, "slow": 1}


def test_a_colon_without_a_number_belongs_to_the_name():
    assert read_lanes(["team:blue", "team:blue:2x", "a:b:7"]) == {
        "team:blue": 1,
        "team:blue:2x": 1,
        "a:b": 7,
    }


@pytest.mark.parametrize(
    ("text", "said"), [("a,a:2", "twice"), ("a:0", "weight"), ("a,,b", "empty"), ("", "empty")]
)
def test_unusable_lanes_are_refused(text: str, said: str):
    with pytest.raises(InvalidValue, match=said):
        read_lanes([text])
