"""The service: what all routes of one server work with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, TypeVar

from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.runtime.app import App
from headway.runtime.timing import Timing
from headway.server.access.request_rate import RequestRates
from headway.server.access.token_book import TokenBook
from headway.server.alerts.alerts import Alerts
from headway.server.declared_gates import DeclaredGates
from headway.server.events.feed import Feed
from headway.server.hooks.hooks import Hooks
from headway.server.metrics.request_metrics import RequestMetrics
from headway.server.metrics.scrape import Scrapes
from headway.server.options import ServerOptions
from headway.server.pulling.lobby import Lobby
from headway.server.readiness import Readiness

A_TURN = 100
"""Items of a long list that are worked on before others get a turn."""
A_TURN_BYTES = 65_536
"""Bytes of the same."""

Item = TypeVar("Item")

_log = logging.getLogger("headway.server")


class Service:
    """What all routes of one server work with.

    Attributes:
        store: where the jobs are.
        app: whose kinds jobs are made by; None for none.
        options: what the server was told.
        timing: its clocks and pauses.
        tokens: who holds a token.
        rates: how often each caller may ask.
        gates: that jobs may name.
        lobby: where long polls wait.
        hooks: whose webhooks are heard.
        feed: of those who watch what changes.
        scrapes: reads the metrics; systems add theirs.
        alerts: to which systems add their rules.
        large_body: held while a large body is decoded and validated, so that only one is; of a
            list, until its request is answered.
        readiness: whether the server can do its work.
        stopping: set when the server begins to stop; whoever waits for long must end then.
        desks: what the routes of each ready-made system work with, by its name; put there when
            the system starts.
    """

    def __init__(
        self,
        store: Store,
        options: ServerOptions,
        *,
        app: App | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Joins the parts; nothing runs yet."""
        self.store = store
        self.app = app
        self.options = options
        self.timing = timing or Timing()
        self.tokens = TokenBook(store, self.timing, open_here=options.open_here)
        self.rates = RequestRates(options.requests_per_s, self.timing)
        self.gates = DeclaredGates(store, self.timing)
        self.lobby = Lobby(store, self.timing)
        self.hooks = Hooks(options.hooks, public_url=options.public_url, timing=self.timing)
        self.feed = Feed(store, self.timing, each_s=options.events_each_s, spawn=self.spawn)
        self.scrapes = Scrapes(store, self.timing, RequestMetrics())
        self.alerts = Alerts()
        self.large_body = asyncio.Lock()
        self.readiness = Readiness(store, self.timing)
        self.stopping = asyncio.Event()
        self.desks: dict[str, object] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def now(self) -> int:
        """The store's time, ms UTC.

        Raises:
            StoreError: the store cannot tell now.
        """
        return (await self.store.read(StatsQuery())).now

    async def in_turns(self, items: Iterable[Item]) -> AsyncIterator[Item]:
        """Yield items; after every so many, all else that is ready gets a turn."""
        for place, item in enumerate(items, 1):
            yield item
            if place % A_TURN == 0:
                await self.timing.pause(0)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs something for as long as the server runs.

        Args:
            work: ends when it is cancelled; if it fails, that is logged and the server goes on.
            name: for the log.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def begin_stop(self) -> None:
        """Ends long polls and event streams, so that the server can stop."""
        self.stopping.set()
        self.lobby.close()
        self.feed.close()

    async def close(self) -> None:
        """Ends all that was spawned, and notes the uses of tokens."""
        self.begin_stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.lobby.finish()
        await self.tokens.note()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("%s ended: %s", task.get_name(), error, exc_info=error)
