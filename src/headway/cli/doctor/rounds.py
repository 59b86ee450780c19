"""The doctor's round: the file first, which can be looked at even if the store cannot be opened."""

from __future__ import annotations

from headway.cli.doctor.clock import look_at_clock
from headway.cli.doctor.finding import Finding, problem, well
from headway.cli.doctor.gates import look_at_gates
from headway.cli.doctor.jobs import look_at_jobs, look_at_lanes
from headway.cli.doctor.permits import look_at_permits
from headway.cli.doctor.sqlite_file import (
    look_at_library,
    look_at_permissions,
    look_at_room,
    look_inside,
)
from headway.cli.session import store_file
from headway.contract.store import Store
from headway.contract.views import StatsQuery


def look_at_file(url: str) -> list[Finding]:
    """Looks at a SQLite store's file.

    Args:
        url: of the store; nothing is found about one that is no file.

    Returns:
        What was found.

    Raises:
        InvalidValue: the URL is unusable.
    """
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
        *look_inside(path),
    ]


async def look_at_store(store: Store) -> list[Finding]:
    """Looks at an open store.

    Args:
        store: which store.

    Returns:
        What was found, in the order looked at.
    """
    stats = await store.read(StatsQuery())
    total = sum(stats.counts.values())
    return [
        well("store", f"{stats.identity}, epoch {stats.epoch}, {total:,} jobs"),
        *await look_at_clock(store),
        *await look_at_permits(store),
        *await look_at_gates(store),
        *await look_at_lanes(store),
        *await look_at_jobs(store),
    ]
