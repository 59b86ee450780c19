"""The public `App`: the runtime, bound to the stores and to the client of a server."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Unpack, cast

from headway.client.address import is_server, read_address
from headway.contract.store import Store
from headway.core.errors import InvalidValue, StoreUnavailable
from headway.runtime.app import App as _App
from headway.runtime.timing import Timing
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import WorkerOptions

DEFAULT_STORE = "sqlite:///headway.db"
"""Store of an app without a URL."""


class App(_App):
    """The kinds of a program, and the store of their jobs."""

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        name: str = "app",
        timing: Timing | None = None,
    ) -> None:
        """Create an app; the store is opened on first use.

        Args:
            url: URL of a store, such as "sqlite:///headway.db" or "memory://", or of a server, such
                as "https://jobs.example.com". Defaults to HEADWAY_STORE in the environment, or to
                "sqlite:///headway.db" if that is not set.
            store: open store to use instead; the app does not close it.
            name: author of the app's declarations in the trail.

        Raises:
            InvalidValue: the URL is empty or not text, `store` is not an open store, or the name
                is not valid.
        """
        if not isinstance(cast("object", url), str | None):
            message = f"the URL of an App is {url!r:.80}"
            hint = "pass text such as sqlite:///headway.db; an open store is passed as store="
            raise InvalidValue(message, hint=hint)
        if url is not None and not url.strip():
            # Probably a variable that is not set: do not use the default store instead.
            message = "the URL of an App is empty"
            raise InvalidValue(message, hint="pass one such as sqlite:///headway.db, or None")
        self._memory: Store | None = None
        super().__init__(
            url or os.environ.get("HEADWAY_STORE") or DEFAULT_STORE,
            opener=self._open_store,
            store=store,
            name=name,
            timing=timing,
        )

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Create a worker for this app's kinds.

        Args:
            options: see `WorkerOptions`; by default, the worker serves all lanes of the app. If the
                store is a server, the server runs the chores.

        Returns:
            The worker; `await worker.run()` works until `worker.stop()`.
        """
        # Imported here, so that only programs whose store is a server load the client.
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
        return self._memory  # reused after a close, such as that of `run`: only it has the jobs


def _open(url: str) -> Store:
    if is_server(url):
        if find_spec("httpx") is None:
            # Checked here, because a worker would treat a failed import as an unreachable server.
            message = "a server as the store needs the package httpx, which is not installed"
            raise StoreUnavailable(message, hint="pip install 'headway[client]'")
        from headway.client.remote_store import RemoteStore  # noqa: PLC0415  (see above)

        return RemoteStore(read_address(url))
    # Imported here, so that programs that pass an open store load no database.
    from headway.stores import open_store  # noqa: PLC0415

    return open_store(url)
