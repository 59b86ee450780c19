"""vacuum_logs: deletes old log lines, and shrinks the database file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import headway as hw
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(timeout="30m")
    def vacuum_logs(job: hw.Job, keep_days: int = 30) -> dict[str, int]:
        """Delete lines and shrink the file; a second run is harmless."""
        del job
        before = (datetime.now(UTC) - timedelta(days=keep_days)).isoformat(timespec="seconds")
        file = Path(world.database.path)
        was = file.stat().st_size if file.exists() else 0
        with world.database.write() as db:
            lines = db.execute("DELETE FROM log WHERE at < ?", (before,)).rowcount
        with world.database.read() as db:
            db.execute("VACUUM")
        return {"lines": lines, "bytes": max(0, was - file.stat().st_size)}
