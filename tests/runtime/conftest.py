"""Every test here runs on each store that there is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import headway as hw
from headway.stores import open_store
from tests.runtime.watched import WatchedStore
from tests.servers.stores import EVERYWHERE, NewUrl


@pytest.fixture(params=EVERYWHERE)
def url(request: pytest.FixtureRequest, new_url: NewUrl) -> str:
    return new_url(request.param)


@pytest.fixture
async def store(url: str) -> AsyncIterator[WatchedStore]:
    inner = open_store(url)
    yield WatchedStore(inner)
    await inner.close()


@pytest.fixture
def app(store: WatchedStore) -> hw.App:
    return hw.App(store=store)
