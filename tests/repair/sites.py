"""Sites: where stores stand, which an operator may replace by a backup, or by another store."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from headway.contract.extensions import Repairable
from headway.contract.store import Store
from headway.stores.postgres.store import PostgresStore
from headway.stores.sqlite import SqliteStore
from headway.testing.clock import FakeClock
from tests.postgres.places import Place
from tests.sqlite.rig import options


class Durable(Store, Repairable, Protocol):
    """A store that may come back as another or an older one."""


Kind = TypeVar("Kind", bound=Durable)


class Site(ABC, Generic[Kind]):
    """Where stores stand."""

    @abstractmethod
    def open(self) -> Kind:
        """A store of a process of its own, as far as it knows; closed with the site at the last."""

    @abstractmethod
    async def back_up(self, store: Kind) -> Kind:
        """Keeps all as it is now; with the store that goes on, here the only one."""

    @abstractmethod
    def restore(self, kept: Self | None = None) -> None:
        """Puts back what was kept here, or there; the stores stay open, and know nothing."""

    @abstractmethod
    def look(self, store: Kind) -> None:
        """Lets a store look for what it looks for by itself once a second, if it does so."""

    @abstractmethod
    def another(self) -> Self:
        """A site of its own, to be closed too."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the stores, and forgets what they left."""


class SqliteSite(Site[SqliteStore]):
    """A file.

    Args:
        path: of it.
        clock: of its stores.
    """

    def __init__(self, path: Path, clock: FakeClock) -> None:
        self._path = path
        self._clock = clock
        self._stores: list[SqliteStore] = []

    @property
    def _kept(self) -> Path:
        return self._path.with_suffix(".kept")

    def open(self) -> SqliteStore:
        store = SqliteStore(options(self._path), self._clock)
        self._stores.append(store)
        return store

    async def back_up(self, store: SqliteStore) -> SqliteStore:
        # A closed store is all in one file.
        await store.close()
        shutil.copy(self._path, self._kept)
        return self.open()

    def restore(self, kept: SqliteSite | None = None) -> None:
        for name in (f"{self._path.name}-wal", f"{self._path.name}-shm"):
            self._path.with_name(name).unlink(missing_ok=True)
        coming = self._path.with_suffix(".coming")
        shutil.copy((kept or self)._kept, coming)
        # Another file under the old name.
        os.replace(coming, self._path)

    def look(self, store: SqliteStore) -> None:
        store._writer.check_file()

    def another(self) -> SqliteSite:
        return SqliteSite(self._path.with_name("another.db"), self._clock)

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


class PostgresSite(Site[PostgresStore]):
    """A namespace of a database.

    Args:
        database: its URL.
        clock: of the stores.
    """

    def __init__(self, database: str, clock: FakeClock) -> None:
        self._place = Place(database)
        self._clock = clock

    def open(self) -> PostgresStore:
        return self._place.open(self._clock)

    async def back_up(self, store: PostgresStore) -> PostgresStore:
        self._place.back_up()
        return store

    def restore(self, kept: PostgresSite | None = None) -> None:
        self._place.restore(None if kept is None else kept._place.namespace)

    def look(self, store: PostgresStore) -> None:
        """It does so with each of its steps."""

    def another(self) -> PostgresSite:
        return PostgresSite(self._place.database, self._clock)

    async def close(self) -> None:
        for store in self._place.stores:
            await store.close()
        self._place.forget()
