"""Open a store by its URL."""

from __future__ import annotations

from typing import cast

from headway.contract.store import Clock, Store
from headway.core.errors import InvalidValue, StoreMisconfigured
from headway.stores.redis.options import SCHEMES as REDIS_SCHEMES
from headway.stores.redis.options import parse_url as parse_redis_url
from headway.stores.sqlite import SqliteStore, parse_url

_STORES = "sqlite:///headway.db, postgresql://…, redis://… or memory://"


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """Open a store.

    Args:
        url: `sqlite:///headway.db`, `sqlite:////absolute/path.db?synchronous=full`,
            `postgresql://user@host/database?namespace=headway`,
            `redis://localhost:6379/0?namespace=main` (also rediss, unix, redis+sentinel and
            redis+cluster), or `memory://` for a store in this process.
        clock: returns ms since 1970 (default: the machine's clock).

    Returns:
        The store, which the caller closes.

    Raises:
        InvalidValue: the URL is not that of a store.
        StoreError: the store cannot be opened; nothing was written.
    """
    if not isinstance(cast("object", url), str):
        message = f"the URL of a store must be text, not {url!r:.80}"
        raise InvalidValue(message, hint=_STORES)
    scheme = url.partition("://")[0]
    if scheme == "memory":
        # This would be a fifth of a command's imports, and only this store needs it.
        from headway.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore(clock)
    if scheme == "sqlite":
        return SqliteStore(parse_url(url), clock)
    if scheme in {"postgresql", "postgres"}:
        return _open_postgres(url, clock)
    if scheme in REDIS_SCHEMES:
        return _open_redis(url, clock)
    # The rest of a URL may contain a password.
    shown = f"{scheme}://…" if "://" in url else url
    message = f"{shown!r} is not the URL of a store"
    hint = _STORES
    if scheme.startswith(("postgresql+", "postgres+")):
        hint = "use postgresql://… without a driver name; Headway uses psycopg 3"
    if scheme in {"http", "https"}:
        hint = f"a server's address works only for an App; pass a store's URL here: {hint}"
    raise InvalidValue(message, hint=hint)


def _open_redis(url: str, clock: Clock | None) -> Store:
    options = parse_redis_url(url)
    try:
        # Its client is an optional dependency.
        from headway.stores.redis.store import RedisStore  # noqa: PLC0415
    except ImportError as error:
        message = f"the Redis store needs a package that is not installed: {error.name}"
        raise StoreMisconfigured(message, hint="pip install 'headway[redis]'") from error
    return RedisStore(options, clock)


def _open_postgres(url: str, clock: Clock | None) -> Store:
    try:
        # Its client is an optional dependency.
        from headway.stores.postgres.options import parse_url as parse  # noqa: PLC0415
        from headway.stores.postgres.store import PostgresStore  # noqa: PLC0415
    except ImportError as error:
        message = f"the PostgreSQL store needs a package that is not installed: {error.name}"
        raise StoreMisconfigured(message, hint="pip install 'headway[postgres]'") from error
    return PostgresStore(parse(url), clock)
