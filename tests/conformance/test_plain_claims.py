"""The suite on PostgreSQL once more, with each claim attempted as a plain claim.

`make test-slow` runs a third of it, `make test-deep` the rest: random histories of plain lanes are
also compared with the memory store, in `tests/machine/test_postgres_equals_memory.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.stores import open_store
from headway.testing.conformance import MakeStore, StoreConformance
from headway.testing.conformance.rig import Rig
from tests.conformance.plain_first import Counted, PlainFirstStore
from tests.servers.namespaces import Namespaces

PART = 300
"""Minimum number of stores that a third of the suite claims from."""


@pytest.fixture(scope="module")
def counted() -> Iterator[Counted]:
    counted = Counted()
    yield counted
    enough = counted.claims >= 0.8 * counted.stores and counted.started >= 3 * counted.stores
    assert counted.stores < PART or enough


@pytest.mark.slow
@pytest.mark.third(0)
class TestPlainPostgresStore(StoreConformance):
    @pytest.fixture
    def make_store(self, shared_namespaces: Namespaces, counted: Counted) -> Iterator[MakeStore]:
        yield lambda clock: PlainFirstStore(
            open_store(shared_namespaces.url(), clock=clock), counted
        )
        shared_namespaces.take_back()

    async def test_first_claim_of_jobs_without_gates_is_a_plain_one(
        self, rig: Rig, counted: Counted
    ) -> None:
        await rig.add_many(3)
        claims, started = counted.claims, counted.started
        assert len((await rig.new_worker().ask(2)).jobs) == 2
        assert (counted.claims, counted.started) == (claims + 1, started + 2)
