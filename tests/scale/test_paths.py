"""The calls made by one operation are counted on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

import headway as hw
from bench.paths import STORES, measure

PACKAGE = Path(hw.__file__).parent
SENDING = {"SQLite": "sqlite/writer", "PostgreSQL": "postgres/session", "Redis": "redis/link"}
"""The functions that send statements or scripts; the first two on a thread of their own."""


@pytest.mark.parametrize("store", STORES)
async def test_calls_of_each_operation_are_counted_on_all_its_threads(store: str) -> None:
    with STORES[store]() as (place, _):
        found = await measure(place.url)
    assert [*found] == ["send", "claim", "settle"]
    for seen in found.values():
        assert all((PACKAGE / file.removeprefix("/")).is_file() for file in seen)
        assert f"/stores/{SENDING[store]}.py" in seen
    assert "/runtime/app.py" in found["send"]
    assert "/runtime/app.py" not in found["settle"]
