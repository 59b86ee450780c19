"""A store that executes everything twice, as if each first reply had been lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headway.contract.store import Store
from headway.core.errors import CallerError
from tests.forwarding import forward_extensions

# Never repeated: a read and a wait change nothing, and no caller requests a sweep.
ONCE = {"read", "wait", "close", "sweep"}


class RepeatingStore:
    """Executes each operation twice, and returns the first reply."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        forward_extensions(self, inner)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        operation = getattr(self.inner, name)
        if name in ONCE:
            return operation

        async def twice(*args: Any, **kwargs: Any) -> Any:
            reply = await operation(*args, **kwargs)
            try:
                again = await operation(*args, **kwargs)
                if name == "claim" and not reply.jobs:
                    # A claim that starts nothing writes nothing, and its repeat may start jobs.
                    return again if again.jobs else reply
            except CallerError:
                # The first call changed the revision that guards a definition, or removed the
                # entry; nothing more was written.
                assert name == "define"
            return reply

        return twice
