"""Stores of every kind for tests that name none: each is empty and used by one test only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4
from zlib import crc32

import pytest

from tests.servers.namespaces import Namespaces
from tests.servers.postgres import fresh_database

NewUrl = Callable[..., str]
"""Takes a kind of store, and returns the URL of an empty store.

With `made=False` there is no schema yet (PostgreSQL only): for tests that create or change one.
"""

ON_SERVERS = ("postgresql", "redis")
"""Kinds of stores that run on a server."""

DURABLE = ("sqlite", *ON_SERVERS)
"""Kinds of stores that persist for the next process."""

EVERYWHERE = ("memory", *DURABLE)
"""All kinds of stores."""

SERVERS_SAMPLED = [
    pytest.param(kind, marks=pytest.mark.sampled) if kind in ON_SERVERS else kind
    for kind in EVERYWHERE
]
"""All kinds as parameters: of the server cases of a test, `make test` runs a third."""


def third_of(name: str) -> int:
    """Return which third a test belongs to, by a hash of its name: 0, 1 or 2."""
    # Pytest escapes a parameter once more for each class collected before it.
    return crc32(name.replace("\\", "").encode()) % 3


def is_quick(nodeid: str) -> bool:
    """Return whether `make test` runs a test marked `sampled`: it runs a third of them."""
    return third_of(nodeid) == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("sampled") is not None and not is_quick(item.nodeid):
            item.add_marker(pytest.mark.slow)
        third = item.get_closest_marker("third")
        # By the name alone: the same test belongs to the same third on every store.
        if third is not None and third_of(item.name) != third.args[0]:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.deep)


@pytest.fixture(scope="session")
def shared_namespaces(request: pytest.FixtureRequest) -> Iterator[Namespaces]:
    """Create the namespaces of one database for all tests of a process."""
    server = request.getfixturevalue("fast_postgres_server")
    with fresh_database(server.url) as url, Namespaces(url) as namespaces:
        yield namespaces


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewUrl]:
    """Yield a function that returns URLs of empty stores; PostgreSQL's are emptied after the test.

    A server is started for its first store, so tests of other stores need none.
    """
    lent: list[Namespaces] = []

    def new(kind: str, *, made: bool = True) -> str:
        name = f"t{uuid4().hex}"
        if kind == "memory":
            return "memory://"
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/{name}.db?synchronous=normal"
        if kind == "redis":
            return f"{request.getfixturevalue('redis_server').url}?namespace={name}"
        assert kind == "postgresql", kind
        lent.append(request.getfixturevalue("shared_namespaces"))
        return lent[-1].url(made=made)

    yield new
    if lent:
        lent[-1].take_back()
