"""Sites: locations of stores, which an operator may replace with a backup or another store."""

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
    """A store that may be replaced by another one, or by an older state of itself."""


Kind = TypeVar("Kind", bound=Durable)


class Site(ABC, Generic[Kind]):
    """The location of stores."""

    @abstractmethod
    def open(self) -> Kind:
        """Open a store as a new process does; it is closed with the site."""

    @abstractmethod
    async def back_up(self, store: Kind) -> Kind:
        """Back up everything as it is now; return the store to use next, the only open one."""

    @abstractmethod
    def restore(self, kept: Self | None = None) -> None:
        """Restore the backup of this or another site; open stores stay open, and get no notice."""

    @abstractmethod
    def check(self, store: Kind) -> None:
        """Run the check that the store makes by itself once a second, if it has one."""

    @abstractmethod
    def another(self) -> Self:
        """Return a separate site, which must also be closed."""

    @abstractmethod
    async def close(self) -> None:
        """Close the stores, and remove what they left behind."""


class SqliteSite(Site[SqliteStore]):
    """A file.

    Args:
        path: path of the file.
        clock: clock of its stores.
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
        # After a store is closed, all its data is in one file.
        await store.close()
        shutil.copy(self._path, self._kept)
        return self.open()

    def restore(self, kept: SqliteSite | None = None) -> None:
        for name in (f"{self._path.name}-wal", f"{self._path.name}-shm"):
            self._path.with_name(name).unlink(missing_ok=True)
        coming = self._path.with_suffix(".coming")
        shutil.copy((kept or self)._kept, coming)
        # A different file with the same name.
        os.replace(coming, self._path)

    def check(self, store: SqliteStore) -> None:
        store._writer.check_file()

    def another(self) -> SqliteSite:
        return SqliteSite(self._path.with_name("another.db"), self._clock)

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


class PostgresSite(Site[PostgresStore]):
    """A namespace of a database.

    Args:
        database: URL of the database.
        clock: clock of the stores.
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

    def check(self, store: PostgresStore) -> None:
        """Do nothing: the store checks in each of its steps."""

    def another(self) -> PostgresSite:
        return PostgresSite(self._place.database, self._clock)

    async def close(self) -> None:
        for store in self._place.stores:
            await store.close()
        self._place.forget()
