"""A store whose operations alternate between two processes' stores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from headway.contract.store import Store
from tests.forwarding import forward_extensions


class AlternatingStore:
    """Executes each operation in turn on one of two stores in one place.

    What one of them has cached, the other one changes: so each operation depends on nothing that
    only its own process knows.
    """

    def __init__(self, open_one: Callable[[], Store]) -> None:
        self._stores = (open_one(), open_one())
        self._calls: Counter[str] = Counter()
        forward_extensions(self, self._stores[0])

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(self._stores[0], name)):
            return getattr(self._stores[0], name)

        def one(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            # Each operation has its own turns: otherwise one store might get all the claims.
            self._calls[name] += 1
            store = self._stores[self._calls[name] % 2]
            return getattr(store, name)(*args, **kwargs)

        return one

    async def wait(self, *args: Any, **kwargs: Any) -> None:
        """Wait on the store that the last claim was made on, to which its reply belongs."""
        await self._stores[self._calls["claim"] % 2].wait(*args, **kwargs)

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._stores))
