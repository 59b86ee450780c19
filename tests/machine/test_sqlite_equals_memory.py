"""Random commands on SQLite and on memory: equal replies, equal dumps, clean audits."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from headway.contract.store import Clock, Store
from headway.stores import open_store
from tests.machine.machine import LONG, SHORT, StoresMachine


class SqliteMachine(StoresMachine):
    """Memory and a SQLite file."""

    store_name = "SQLite"

    def open(self, clock: Clock) -> Store:
        self.folder = Path(tempfile.mkdtemp(prefix="headway-machine-"))
        return open_store(f"sqlite:///{self.folder}/headway.db?synchronous=normal", clock=clock)

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class TestSqliteEqualsMemory(SqliteMachine.TestCase):
    settings = SHORT


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestSqliteEqualsMemoryInLongHistories(SqliteMachine.TestCase):
    settings = LONG
