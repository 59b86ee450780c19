"""The whole suite again, with operations that alternate between two processes' stores.

`make test-slow` runs a different third on each store; `make test-deep` runs the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

from headway.contract.store import Clock, Store
from headway.stores import open_store
from headway.testing.conformance import MakeStore, StoreConformance
from tests.conformance.alternating_store import AlternatingStore
from tests.servers.namespaces import Namespaces
from tests.servers.redis import GivenRedis, RedisServer


def alternating(url: str, clock: Clock) -> Store:
    return AlternatingStore(lambda: open_store(url, clock=clock))


class AlternatingConformance(StoreConformance):
    """The suite, without what each process of the stores in SQL measures by its own claims only.

    Such a store does not store the time for which a shared gate held back a flow.
    """

    test_wait_behind_a_shared_gate_is_measured_from_the_claim_that_met_it = None
    test_each_closing_of_a_shared_gate_counts_for_all_who_waited_through_it = None
    test_wait_after_a_claim_that_emptied_an_open_flow_is_not_blocked = None


@pytest.mark.slow
@pytest.mark.third(2)
class TestAlternatingSqliteStores(AlternatingConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        numbers = count(1)

        def make(clock: Clock) -> Store:
            path = f"{tmp_path}/headway-{next(numbers)}.db"
            return alternating(f"sqlite:///{path}?synchronous=normal", clock)

        return make


@pytest.mark.slow
@pytest.mark.third(0)
class TestAlternatingPostgresStores(AlternatingConformance):
    @pytest.fixture
    def make_store(self, shared_namespaces: Namespaces) -> Iterator[MakeStore]:
        yield lambda clock: alternating(shared_namespaces.url(), clock)
        shared_namespaces.take_back()


@pytest.mark.slow
@pytest.mark.third(1)
class TestAlternatingRedisStores(StoreConformance):
    @pytest.fixture
    def make_store(self, redis_server: RedisServer | GivenRedis) -> MakeStore:
        return lambda clock: alternating(
            f"{redis_server.url}?namespace=suite-{uuid4().hex}&timeout_ms=120000", clock
        )
