"""metric_rollup: aggregates the values of past hours into one row per hour."""

from __future__ import annotations

import sqlite3

import headway as hw
from examples.lanes.database import now
from examples.lanes.world import World

HOUR = len("2026-01-02T03")


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(timeout="30m")
    def metric_rollup(job: hw.Job) -> int:
        """Aggregate all past hours; late values are added to their hour by the next run."""
        return world.database.once(job.id, _roll_up)


def _roll_up(db: sqlite3.Connection) -> int:
    """Add values to their hours' rows and delete them, within the caller's transaction."""
    this_hour = now()[:HOUR]
    db.execute(
        "INSERT INTO metric_hour (hour, name, count, sum, least, most)"
        " SELECT substr(at, 1, ?2), name, count(*), sum(value), min(value), max(value)"
        " FROM metric WHERE at < ?1 GROUP BY 1, 2"
        " ON CONFLICT (hour, name) DO UPDATE SET count = count + excluded.count,"
        " sum = sum + excluded.sum, least = min(least, excluded.least),"
        " most = max(most, excluded.most)",
        (this_hour, HOUR),
    )
    return db.execute("DELETE FROM metric WHERE at < ?", (this_hour,)).rowcount
