"""The table [calls] of the settings: what it does not take, and what it says then."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.errors import InvalidValue
from headway.systems.calls.settings import read_settings


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"call_dedline": "3s"}, "'call_dedline' (did you mean call_deadline?)"),
        ({"colour": 3}, "'colour' (known: customer_limit, customer_per, "),
        ({"template": {"max_rety": 3}}, "'template.max_rety' (did you mean template.max_retry?)"),
        ({"template": {"colour": 3}}, "'template.colour' (known: payload_schema, "),
    ],
)
def test_a_setting_of_calls_that_there_is_not_is_told_with_the_one_meant(
    written: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_settings(written)
    assert str(refused.value).startswith(f"[calls]: there is no setting {told}")
