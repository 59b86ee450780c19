"""The settings table [calls]: invalid values, and the errors for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import InvalidValue
from headway.runtime.settings_table import read_table
from headway.systems.calls import make
from headway.systems.calls.template import CallsSettings
from headway.systems.directory.database import Directory
from headway.systems.parts import Parts
from headway.systems.telephony.providers import Telephony


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            {"call_dedline": "3s"},
            "call_dedline: there is no such setting (did you mean call_deadline?)",
        ),
        ({"colour": 3}, "colour: there is no such setting (known: customer_limit, customer_per, "),
        (
            {"template": {"max_rety": 3}},
            "template.max_rety: there is no such setting (did you mean max_retry?)",
        ),
        (
            {"template": {"colour": 3}},
            "template.colour: there is no such setting (known: payload_schema, ",
        ),
    ],
)
def test_unknown_setting_of_calls_is_reported_with_the_one_meant(
    written: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_table("calls", CallsSettings, written)
    assert str(refused.value).startswith(f"calls.{told}")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"customer_limit": -1}, "calls.customer_limit is -1: "),
        ({"customer_limit": 0}, "calls.customer_limit is 0: "),
        ({"template": {"customer_limit": 0}}, "calls.template.customer_limit is 0: "),
        ({"template": {"ring_s": "long"}}, "calls.template.ring_s is 'long': "),
        ({"template": {"hours": {"spans": "9-17"}}}, "calls.template.hours is {'spans': '9-17'}: "),
        (
            {"reporting_keys": "whsec_c2VjcmV0"},
            "calls.reporting_keys: it should be a list",
        ),
    ],
)
def test_invalid_value_is_shown_unless_it_is_a_secret(written: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_table("calls", CallsSettings, written)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ({"say": "Hello {nam"}, "calls.template.say contains a brace outside a placeholder"),
        ({"fetch": "http://:80/x"}, "calls.template.fetch is 'http://:80/x', which is not a URL"),
        (
            {"checks": [{"check": "http", "url": "https://?ask"}]},
            "calls.template.checks[0].url is 'https://?ask', which is not a URL",
        ),
        ({"providers": ["vonnage"]}, "no call provider is named 'vonnage'"),
    ],
)
def test_default_template_of_the_settings_is_validated_as_one_that_is_put(
    tmp_path: Path, template: dict[str, Any], error: str
) -> None:
    directory = Directory(f"sqlite:///{tmp_path}/directory.db")
    with pytest.raises(InvalidValue) as refused:
        make({"template": template}, Parts(directory=directory, telephony=Telephony({}, {})))
    assert str(refused.value).startswith(error)
