"""Opens the store that a URL names."""

from __future__ import annotations

from headway.contract.clock import Clock
from headway.contract.store import Store
from headway.core.errors import InvalidValue
from headway.stores.memory import MemoryStore
from headway.stores.sqlite import SqliteStore, parse_url


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """Opens a store.

    Args:
        url: `sqlite:///headway.db`, `sqlite:////absolute/path.db?synchronous=full`, or
            `memory://` for one that is gone with this process.
        clock: tells ms since 1970; None for the machine's.

    Returns:
        The store; to be closed.

    Raises:
        InvalidValue: the URL names no store.
        StoreError: the store cannot be opened; nothing was written.
    """
    scheme = url.partition("://")[0]
    if scheme == "memory":
        return MemoryStore(clock)
    if scheme == "sqlite":
        return SqliteStore(parse_url(url), clock)
    message = f"{url!r} is not the URL of a store"
    raise InvalidValue(message, hint="sqlite:///headway.db or memory://")
