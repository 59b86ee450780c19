from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from headway.testing.clock import FakeClock
from tests.postgres.place import place_database  # noqa: F401  (a fixture)
from tests.repair.sites import PostgresSite, Site, SqliteSite


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sqlite", "postgresql"])
def make_site(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> Callable[[], Site[Any]]:
    if request.param == "sqlite":
        return lambda: SqliteSite(tmp_path / "headway.db", clock)
    database: str = request.getfixturevalue("place_database")
    return lambda: PostgresSite(database, clock)


@pytest_asyncio.fixture
async def site(make_site: Callable[[], Site[Any]]) -> AsyncIterator[Site[Any]]:
    made = make_site()
    yield made
    await made.close()
