"""The App of a program: the runtime, bound to the stores and to the client of a server."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Unpack

from headway.client.address import is_server, read_address
from headway.contract.store import Store
from headway.core.errors import InvalidValue, StoreUnavailable
from headway.runtime.app import App as _App
from headway.runtime.timing import Timing
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import WorkerOptions

DEFAULT_STORE = "sqlite:///headway.db"
"""Where an app lives that says nothing else."""


class App(_App):
    """A program's kinds of work, and the store that they live in."""

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        name: str = "app",
        timing: Timing | None = None,
    ) -> None:
        """Make an app; the store is opened when it is first needed.

        Args:
            url: such as "sqlite:///headway.db" or "memory://", or of a server, as
                "https://jobs.example.com"; if not given, HEADWAY_STORE in the environment, else
                "sqlite:///headway.db".
            store: an open one instead; the app does not close it.
            name: stands on the trail as the author of what the app declares.

        Raises:
            InvalidValue: the URL is empty, or the name is unusable.
        """
        if url is not None and not url.strip():
            # A variable that is not set would select another store.
            message = "the URL of an App is empty"
            raise InvalidValue(message, hint="give one as sqlite:///headway.db, or None")
        self._memory: Store | None = None
        super().__init__(
            url or os.environ.get("HEADWAY_STORE") or DEFAULT_STORE,
            opener=self._open_store,
            store=store,
            name=name,
            timing=timing,
        )

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Make a worker for this app's kinds.

        Args:
            options: see `WorkerOptions`; it serves all lanes of the app if none are given. On a
                server, the chores are the server's.

        Returns:
            The worker; `await worker.run()` works until `worker.stop()`.
        """
        # Not before it is needed: only a program whose store is a server loads its client.
        from headway.client.remote_store import RemoteStore  # noqa: PLC0415

        store = self.store
        if isinstance(store, RemoteStore):
            here: WorkerOptions = {"chores": False, "signal_url": store.signal_url}
            options = {**here, **options}
        return super().worker(**options)

    def _open_store(self, url: str) -> Store:
        if not url.startswith("memory:"):
            return _open(url)
        if self._memory is None:
            self._memory = _open(url)
        return self._memory  # the same after a close, such as that of `run`: its jobs are only here


def _open(url: str) -> Store:
    if is_server(url):
        if find_spec("httpx") is None:
            # Raised here: a worker would take the failed import for an unreachable server.
            message = "a server as the store needs the package httpx, which is not installed"
            raise StoreUnavailable(message, hint="pip install 'headway[client]'")
        from headway.client.remote_store import RemoteStore  # noqa: PLC0415  (see above)

        return RemoteStore(read_address(url))
    # Not before it is needed: a program that is given a store loads no database.
    from headway.stores import open_store  # noqa: PLC0415

    return open_store(url)
