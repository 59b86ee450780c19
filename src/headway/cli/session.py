"""A session: one invocation of the command, with its settings and its store."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from headway.cli.extras import unmigrated_url
from headway.cli.settings import Settings, load_settings, misspelt_variables
from headway.cli.terminal import LocalClock, Terminal
from headway.contract.store import Store
from headway.contract.views import Query, StatsQuery
from headway.core.errors import InvalidValue, StoreUnavailable
from headway.core.naming import check_name
from headway.runtime.app import App
from headway.stores import open_store
from headway.stores.sqlite import parse_url

Result = TypeVar("Result")


def store_file(url: str) -> Path | None:
    """Return the file of a SQLite store; None for other stores."""
    return parse_url(url).path if url.startswith("sqlite:") else None


class CommandSession:
    """One invocation of the command.

    Attributes:
        named_store: The value of `--store`; None if it was not passed.
    """

    def __init__(self, *, store: str | None, json: bool) -> None:
        self.terminal = Terminal(json=json)
        self.named_store = store

    @property
    def json(self) -> bool:
        """Whether to print results as JSON."""
        return self.terminal.json

    @cached_property
    def settings(self) -> Settings:
        """The settings, read once."""
        settings = load_settings()
        self.notes(misspelt_variables())
        return settings

    @cached_property
    def clock(self) -> LocalClock:
        """A clock in the zone of the settings."""
        return LocalClock(self.settings.zone)

    @property
    def store_url(self) -> str:
        """The store's URL: the option, or by default the setting."""
        return self.settings.store if self.named_store is None else self.named_store

    def refuse_store(self, hint: str) -> None:
        """Refuse `--store` in a command that does not use it.

        Raises:
            InvalidValue: the option was passed.
        """
        if self.named_store is not None:
            message = f"this command does not use --store {self.named_store!r}"
            raise InvalidValue(message, hint=hint)

    def author(self, named: str | None) -> str:
        """Return the author for the trail: the option, the setting, or the login name.

        Raises:
            InvalidValue: a store would refuse it, perhaps only after a command's first steps.
        """
        if author := named or self.settings.author:
            return check_name("author", author)
        try:
            return getpass.getuser()
        except (OSError, KeyError):
            return "unknown"

    def with_store(
        self, work: Callable[[Store], Awaitable[Result]], *, make: bool = False
    ) -> Result:
        """Run `work` on the open store, and close it.

        Args:
            make: Create the store if it does not exist.

        Raises:
            StoreUnavailable: the store does not exist, and `make` is false.
        """
        file = store_file(self.store_url)
        if file is not None and not make and not file.exists():
            message = f"there is no store at {file}"
            raise StoreUnavailable(message, hint="pass --store, or create it with headway migrate")

        async def whole() -> Result:
            store = open_store(self.store_url if make else unmigrated_url(self.store_url))
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(whole())

    def notes(self, notes: Iterable[str]) -> None:
        """Print notes about names that are not known to standard error."""
        for one in notes:
            self.terminal.remark(one, "yellow")

    def with_app(self, app: App, work: Callable[[Store], Awaitable[Result]]) -> Result:
        """Open an App's store, declare the App, run `work`, and close the store."""

        async def whole() -> Result:
            async with app:
                return await work(app.store)

        return asyncio.run(whole())

    def ask(self, query: Query[Result]) -> Result:
        """Open the store, run one query, and close it."""
        return self.with_store(lambda store: store.read(query))

    def ask_at(self, query: Query[Result]) -> tuple[Result, int]:
        """Run one query; return its result and the store's time, ms UTC."""

        async def work(store: Store) -> tuple[Result, int]:
            return await store.read(query), (await store.read(StatsQuery())).now

        return self.with_store(work)
