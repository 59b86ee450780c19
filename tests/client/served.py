"""A real server in a separate thread, whose store can be changed between tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from headway.contract.store import Store
from headway.runtime.timing import Timing
from headway.server.build import build
from headway.server.listener import ListenAddress, Listener
from headway.server.service import ServerOptions, Service

Result = TypeVar("Result")

LIMIT_S = 240.0


class Served:
    """An open server on a free port; a context manager.

    Attributes:
        url: its address.
    """

    def __init__(self, store: Store, **options: Any) -> None:
        self._options = ServerOptions(**{"open_here": True, "chores": False, **options})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="served", daemon=True)
        self._store = store
        self._services: dict[int, Service] = {}
        self._listener: Listener | None = None
        self._running: asyncio.Task[None] | None = None
        self.url = ""

    @property
    def service(self) -> Service:
        return self._app.state.service

    def use(self, store: Store) -> None:
        """Serve this store from now on, until another replaces it."""
        if self.service.store is not store:
            self.run(self._use(store))

    def drop(self, store: Store) -> None:
        """Remove a store, and end the calls that wait in it."""
        self.run(self._drop(store))

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    async def _start(self) -> None:
        self._app = build(self._service_of(self._store))
        self._listener = Listener(self._app, ListenAddress(port=0), on_stop=self._send_home)
        self.url = self._listener.url
        self._running = asyncio.create_task(self._listener.run())
        await self._listener.answers()

    async def _use(self, store: Store) -> None:
        self._app.state.service = self._service_of(store)

    async def _drop(self, store: Store) -> None:
        await self._services.pop(id(store)).close()

    def _send_home(self) -> None:
        for service in self._services.values():
            service.begin_stop()

    def _service_of(self, store: Store) -> Service:
        if id(store) not in self._services:
            self._services[id(store)] = Service(store, self._options, timing=Timing())
        return self._services[id(store)]

    async def _stop(self) -> None:
        assert self._listener is not None
        assert self._running is not None
        self._listener.stop()
        await self._running
        for service in self._services.values():
            await service.close()
