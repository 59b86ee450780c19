"""What all parts of a client share: the server, and callers that cannot await."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from headway.client.address import read_address
from headway.client.calls import Call, Reply
from headway.client.remote_store import RemoteStore
from headway.contract.store import Store
from headway.core.duration import parse_duration
from headway.runtime.background import Background
from headway.runtime.timing import Timing

Result = TypeVar("Result")


class Connected:
    """A server, and the way to it.

    Attributes:
        remote: the server as a store.
        patience_s: for how long a call is repeated while the server is away.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: object = "30s",
        patience: object = "10s",
        timing: Timing | None = None,
    ) -> None:
        """Makes it; nothing is opened before the first call.

        Args:
            url: of the server; if not given, HEADWAY_URL in the environment, else
                "http://127.0.0.1:8080".
            token: if not given, HEADWAY_TOKEN in the environment, else none.
            timeout: how long one try of a call may take, as "30s" or a timedelta.
            patience: for how long a call is repeated while the server is away, or asks for it.
            timing: the simulator's.

        Raises:
            InvalidValue: the URL is none of a server, or another value is unusable.
        """
        address = read_address(url, token)
        self._url = address.url
        self.remote = RemoteStore(
            address,
            timeout_s=parse_duration(timeout) / 1000,
            patience_s=parse_duration(patience) / 1000,
            timing=timing,
        )
        self.patience_s = parse_duration(patience) / 1000
        self._background = Background()

    def __repr__(self) -> str:
        """Where the server is; never the token."""
        return f"<Client {self._url}>"

    @property
    def store(self) -> Store:
        """The server as a store: what workers, and `App(store=...)`, speak to."""
        return self.remote

    def close(self) -> None:
        """Closes all connections; a later call opens them again."""
        self.wait_for(self.close_async())
        self._background.close()

    async def close_async(self) -> None:
        """As `close`, for callers that can await."""
        await self.remote.close()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `close_async`."""
        await self.close_async()

    async def post(self, path: str, body: object) -> Reply:
        """Posts something that may be posted again."""
        call = Call(method="POST", path=path, body=body, patience_s=self.patience_s)
        return await self.remote.ask(call)

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs something for a caller that cannot await."""
        return self._background.run(work)
