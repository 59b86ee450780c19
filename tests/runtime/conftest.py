"""Run every test in this folder on each store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import headway as hw
from headway.stores import open_store
from tests.runtime.observed_store import ObservedStore, sweep_often
from tests.servers.stores import EVERYWHERE, ON_SERVERS, NewUrl

THE_RUNTIME_ALONE = {"test_middleware", "test_processes", "test_stopping_handlers"}
"""These tests do not depend on the store: on servers only `make test-slow` runs them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given = getattr(item, "callspec", None)
        here = item.path.parent.name == "runtime" and item.path.stem in THE_RUNTIME_ALONE
        if here and given is not None and given.params.get("url") in ON_SERVERS:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def sweeps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweep often, except in the tests of how often: what becomes due need not wait for 2 s."""
    if request.path.stem != "test_chores":
        sweep_often(monkeypatch)


@pytest.fixture(params=EVERYWHERE)
def url(request: pytest.FixtureRequest, new_url: NewUrl) -> str:
    return new_url(request.param)


@pytest.fixture
async def store(url: str) -> AsyncIterator[ObservedStore]:
    inner = open_store(url)
    yield ObservedStore(inner)
    await inner.close()


@pytest.fixture
def app(store: ObservedStore) -> hw.App:
    return hw.App(store=store)
