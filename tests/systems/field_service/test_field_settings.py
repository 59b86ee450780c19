"""The table [field_service]: settings that can never work are refused at startup, by name."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.errors import InvalidValue
from headway.systems.field_service.settings import read_settings
from headway.systems.telephony.providers import read_telephony

LINES = {"+15559990000": 2}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ring": "11m"}, "ring"),
        ({"ring": "0s"}, "ring"),
        ({"call_limit": "5h"}, "call_limit"),
        ({"call_limit": "0s"}, "call_limit"),
        ({"line_wait": "0s"}, "line_wait"),
        ({"offer_timeout": "0s"}, "offer_timeout"),
        ({"urgency": {"soon": "1m"}}, "soon"),
        ({"urgency": {"high": "0s"}}, "urgency.high"),
        ({"radius_km": 0}, "radius_km"),
        ({"most": 1_001}, "most"),
        ({"lines": {"555": 1}}, "555"),
        ({"lines": {"+15559990000": 0}}, "+15559990000"),
        ({"provider": "fax"}, "fax"),
        ({"text_from": "Headway"}, "text_from"),
        ({"geocoder_url": "nominatim.example.org/search"}, "geocoder_url"),
        ({"geocoder_url": "file:///etc/passwd"}, "geocoder_url"),
        ({"geocoder_url": "http://"}, "geocoder_url"),
        ({"geocoder_url": "http://[::1/"}, "geocoder_url"),
        ({"rings": "30s"}, "did you mean ring"),
    ],
    ids=str,
)
def test_impossible_setting_is_refused_by_its_name(wrong: dict[str, Any], says: str):
    telephony = read_telephony({"simulated": {}})
    with pytest.raises(InvalidValue) as refused:
        read_settings({"lines": LINES, **wrong}, telephony)
    assert says in str(refused.value)


def test_longest_time_of_any_provider_is_used():
    telephony = read_telephony({"simulated": {}})
    read = read_settings(
        {"lines": LINES, "ring": "10m", "call_limit": "4h", "geocoder_url": "https://a.org/s?k=1"},
        telephony,
    )
    assert (read.ring, read.call_limit) == (600_000, 14_400_000)
