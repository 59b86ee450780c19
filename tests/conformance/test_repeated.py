"""The whole suite again, with every operation repeated as after a lost reply.

For Redis, `tests/redis/test_cluster.py` does this on a cluster. `make test-slow` repeats all of it
on memory, and a different third on each of SQLite, PostgreSQL and Redis; `make test-deep` repeats
the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.stores.postgres.schema import latest
from headway.testing.conformance import MakeStore, StoreConformance
from tests.conformance.repeating_store import RepeatingStore
from tests.postgres.other_schemas import folder_of, migrate_to
from tests.servers.namespaces import Namespaces
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database


@pytest.mark.sampled
class TestRepeatedMemoryStore(StoreConformance):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: RepeatingStore(MemoryStore(clock=clock))


@pytest.mark.slow
@pytest.mark.third(0)
class TestRepeatedSqliteStore(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        numbers = count(1)
        return lambda clock: RepeatingStore(
            open_store(
                f"sqlite:///{tmp_path}/headway-{next(numbers)}.db?synchronous=normal", clock=clock
            )
        )


@pytest.fixture(scope="module")
def later_namespaces(
    fast_postgres_server: PostgresServer | GivenPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Namespaces]:
    """Namespaces of a separate database, on the schema of a later program."""
    folder = folder_of(tmp_path_factory.mktemp("later"), later=True)

    def prepare(url: str) -> None:
        assert migrate_to(url, folder) == latest() + 1

    with (
        fresh_database(fast_postgres_server.url) as url,
        Namespaces(url, prepare=prepare) as namespaces,
    ):
        yield namespaces


@pytest.mark.slow
@pytest.mark.third(1)
class TestRepeatedOnALaterPostgresSchema(StoreConformance):
    @pytest.fixture
    def make_store(self, later_namespaces: Namespaces) -> Iterator[MakeStore]:
        yield lambda clock: RepeatingStore(open_store(later_namespaces.url(), clock=clock))
        later_namespaces.take_back()
