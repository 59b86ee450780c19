"""The owner of a store: opens it when it is first needed, declares to it, and closes it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from threading import Lock
from typing import Any, Self, TypeVar

from headway.contract.store import Store
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateSpec
from headway.runtime.background import Background
from headway.runtime.persist import persist
from headway.runtime.registry import Registry
from headway.runtime.timing import Timing
from headway.runtime.worker.plans import Middleware

Opener = Callable[[str], Store]
Result = TypeVar("Result")


class StoreOwner(Registry):
    """What a program declares, and the store that it is declared to."""

    def __init__(
        self,
        url: str | None = None,
        *,
        opener: Opener,
        store: Store | None = None,
        name: str = "app",
        timing: Timing | None = None,
    ) -> None:
        """Makes an app; the store is opened when it is first needed.

        Args:
            url: where the store is.
            opener: opens it.
            store: an open one instead; the app does not close it.
            name: stands on the trail as the author of what the app declares.
            timing: the simulator's.
        """
        super().__init__(name, timing or Timing())
        self._url = url or ""
        self._opener = opener
        self._given = store
        self._store = store
        self._lent: Store | None = None
        self._around: list[Callable[[Store], Store]] = []
        self._opening = Lock()
        self._background = Background()

    @property
    def store(self) -> Store:
        """The store; opened now if it was not."""
        if self._store is None:
            with self._opening:
                if self._store is None:
                    opened = self._opener(self._url)
                    for wrap in self._around:
                        opened = wrap(opened)
                    self._store = opened
        return self._store

    @property
    def url(self) -> str:
        """The URL of the store; empty if the app was given an open one."""
        return "" if self._given is not None else self._url

    def move_to(self, url: str) -> None:
        """Uses another store than was said, as a command's `--store` asks for.

        Args:
            url: where the store is.

        Raises:
            InvalidValue: a store was given open, or is open already.
        """
        if self._store is not None:
            message = "the app has its store open already"
            raise InvalidValue(message, hint="say where the store is before it is used")
        self._url = url

    def use(self, store: Store) -> None:
        """Lives in this store, as a worker over HTTP asks for it; the app does not close it.

        Args:
            store: an open one.

        Raises:
            InvalidValue: another store was given open, or is open already.
        """
        if self._lent is store:
            return
        if self._store is not None:
            message = "the app has its store open already"
            raise InvalidValue(message, hint="say which store it uses before it is used")
        self._lent = store
        for wrap in self._around:
            store = wrap(store)
        self._given = self._store = store

    def observe(self, around_store: Callable[[Store], Store], around_handlers: Middleware) -> None:
        """Puts something around the app's store and, outermost, around each handler.

        Args:
            around_store: makes of a store one that does the same.
            around_handlers: as for `middleware`.

        Raises:
            InvalidValue: the app has opened its store already.
        """
        if self._store is not self._given:
            message = "the app has its store open already"
            raise InvalidValue(message, hint="observe it before it is used")
        self._around.append(around_store)
        if self._given is not None:
            self._given = self._store = around_store(self._given)
        self._middleware.insert(0, around_handlers)

    async def declare(self) -> None:
        """Tells the store what gates, lanes and entries there are; done at the first use."""
        await self._declaration.tell(self.store, self.kinds)

    async def reach(self, within: object = "1m") -> None:
        """Opens the store, and declares; tries again while the store is away.

        Args:
            within: for how long it tries, as "1m" or a timedelta; "0s" for a single time.

        Raises:
            StoreError: the store is still away then, or its error does not pass by itself.
        """
        timing = self._timing
        give_up_at = timing.monotonic() + parse_duration(within) / 1000
        await persist(
            timing,
            "opening the store",
            self.declare,
            until=lambda: timing.monotonic() >= give_up_at,
        )

    async def declare_gates(self, *specs: GateSpec) -> None:
        """Tells the store of gates that the program chooses at run time, all or none.

        What was declared holds at once, for jobs that wait already too; a store that was lost is
        told again.

        Args:
            specs: each as it is from now on.

        Raises:
            InvalidValue: the store knows one as another kind; nothing was written.
            StoreError: the store cannot do it now.
        """
        await self._declaration.tell_gates(self.store, specs)

    def open(self) -> Self:
        """Opens the store, and declares."""
        self._wait_for(self.declare())
        return self

    def close(self) -> None:
        """Closes the store that the app opened; a later call opens it again."""
        store = self._store
        self._background.run(self.close_async(), inline=store is not None and store.runs_inline)
        self._background.close()

    async def close_async(self) -> None:
        """As `close`, for callers that can await."""
        store, self._store = self._store, self._given
        if store is not None and store is not self._given:
            await store.close()

    def __enter__(self) -> Self:
        """As `open`."""
        return self.open()

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        """Opens the store, and declares."""
        await self.declare()
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `close_async`."""
        await self.close_async()

    def _wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Does for a caller who cannot await what others await."""
        try:
            inline = self.store.runs_inline
        except BaseException:
            work.close()  # the store could not be opened, so the work is never awaited
            raise
        return self._background.run(work, inline=inline)

    async def _declare_anew(self) -> None:
        self._declaration.forget()
        await self.declare()
