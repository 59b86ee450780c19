"""What breaks under the store on PostgreSQL, at work: told exactly, and mended by a repeat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from headway.core.errors import OutcomeUnknown
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.store import PostgresStore
from headway.testing.clock import FakeClock
from tests.postgres.places import Place
from tests.servers.proxy import Proxy
from tests.torture.every_verb import OPERATIONS, differences


@pytest.fixture(scope="module")
def way(place_database: str) -> Iterator[Proxy]:
    with Proxy(place_database) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def other_place(place_database: str) -> AsyncIterator[Place]:
    made = Place(place_database)
    yield made
    for store in made.stores:
        await store.close()
    made.forget()


@pytest.mark.parametrize("name", list(OPERATIONS))
async def test_operation_of_which_each_reply_was_lost_once_has_been_done_once(
    place: Place, other_place: Place, way: Proxy, name: str
) -> None:
    clocks = FakeClock(), FakeClock()
    # Without prepared statements the proxy can read what is sent.
    options = f"namespace={other_place.namespace}&listen=off&pooled=on"
    disturbed = PostgresStore(parse_url(f"{way.url}?{options}"), clocks[1])
    undisturbed = place.open(clocks[0], listen="off")
    found, raised = await differences(name, undisturbed, disturbed, clocks, way, first=b"COMMIT")
    await disturbed.close()
    assert found == []
    assert raised[0] is OutcomeUnknown
