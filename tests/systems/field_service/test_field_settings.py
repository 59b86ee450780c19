"""The table [field_service]: settings that can never work are refused at startup, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import InvalidValue
from headway.systems.field_service.records import Setting
from headway.systems.field_service.settings import (
    SETTING,
    OfferTimes,
    current_times,
    read_settings,
    set_times,
)
from headway.systems.telephony.providers import read_telephony
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database, until_it_waits
from tests.systems.field_service.directories import opened

LINES = {"+15559990000": 2}
LIMIT_S = 60


@pytest.fixture
def postgres(fast_postgres_server: PostgresServer | GivenPostgres) -> Iterator[str]:
    with fresh_database(fast_postgres_server.url) as made:
        yield made


async def test_stored_times_replace_the_former_ones(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/d.db") as directory:
        await set_times(directory, 1_000, {"high": 10})
        await set_times(directory, None, {"low": 20})
        now = await current_times(directory, OfferTimes(offer_timeout_ms=5))
        assert now == OfferTimes(offer_timeout_ms=5, urgency_ms={"low": 20})


async def test_two_callers_may_store_the_first_times_at_once(postgres: str) -> None:
    async with opened(postgres) as directory, asyncio.timeout(LIMIT_S):
        async with directory.change() as other:
            other.add(Setting(name=SETTING, value={"offer_timeout_ms": 1_000}, version=1))
            await other.flush()
            setting = asyncio.create_task(set_times(directory, 2_000, {}))
            await until_it_waits(postgres, setting)
        await setting
        now = await current_times(directory, OfferTimes(offer_timeout_ms=5))
        assert now == OfferTimes(offer_timeout_ms=2_000)
        async with directory.read() as session:
            row = await session.get(Setting, SETTING)
            assert row is not None
            assert row.version == 2


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
