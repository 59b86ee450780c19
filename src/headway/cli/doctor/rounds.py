"""The doctor's round: the file or server first, as the reason why a store does not open."""

from __future__ import annotations

from headway.cli.doctor.finding import Finding, problem, well
from headway.cli.doctor.sqlite_file import (
    look_at_library,
    look_at_machine_clock,
    look_at_permissions,
    look_at_room,
    look_inside,
)
from headway.cli.doctor.store import (
    look_at_clock,
    look_at_gates,
    look_at_jobs,
    look_at_lanes,
    look_at_permits,
)
from headway.cli.postgres import DRIVER, is_postgres
from headway.cli.session import store_file
from headway.contract.repair import Repairable
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.stores.redis.options import SCHEMES as REDIS_SCHEMES

PLACES = frozenset({"file", "server"})
"""A problem with one of these keeps the store from being opened."""


def look_at_place(url: str) -> list[Finding]:
    """Look at a SQLite store's file, or a PostgreSQL or Redis store's server.

    Args:
        url: of the store; nothing is found about one that has neither.

    Returns:
        What was found.

    Raises:
        InvalidValue: the URL is unusable.
    """
    if is_postgres(url):
        return _look_at_postgres(url)
    if url.partition("://")[0] in REDIS_SCHEMES:
        return _look_at_redis(url)
    path = store_file(url)
    if path is None:
        return []
    if not path.exists():
        hint = "headway migrate makes it; or give --store"
        return [*look_at_library(), problem("file", f"{path} does not exist", hint)]
    return [
        *look_at_library(),
        *look_at_permissions(path),
        *look_at_room(path),
        *look_at_machine_clock(path),
        *look_inside(path),
    ]


def _look_at_postgres(url: str) -> list[Finding]:
    try:
        # Only those who use it have its driver.
        from headway.cli.doctor.postgres_server import look_at_postgres  # noqa: PLC0415
    except ImportError as error:
        found = f"a package is not installed: {error.name}"
        return [problem("server", found, DRIVER)]
    return look_at_postgres(url)


def _look_at_redis(url: str) -> list[Finding]:
    try:
        # Only those who use it have its client.
        from headway.cli.doctor.redis_server import look_at_redis  # noqa: PLC0415
    except ImportError as error:
        found = f"a package is not installed: {error.name}"
        return [problem("server", found, "pip install 'headway[redis]'")]
    return look_at_redis(url)


async def look_at_store(store: Store) -> list[Finding]:
    """Look at an open store.

    Returns:
        What was found, in the order looked at.
    """
    stats = await store.read(StatsQuery())
    total = sum(stats.counts.values())
    found = await store.suspicion() if isinstance(store, Repairable) else None
    return [
        well("store", f"{stats.identity}, epoch {stats.epoch}, {total:,} jobs")
        if found is None
        else problem("store", f"nothing is claimed: {found.message}", found.hint),
        *await look_at_clock(store),
        *await look_at_permits(store),
        *await look_at_gates(store),
        *await look_at_lanes(store),
        *await look_at_jobs(store),
    ]
