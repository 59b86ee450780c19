"""purge_sessions: sessions that have ended are deleted, in steps that block no other process."""

from __future__ import annotations

import headway as hw
from examples.lanes.database import now
from examples.lanes.world import World

STEP = 1_000


def declare(app: hw.App, world: World) -> None:
    """Declares the type."""

    @app.job(timeout="10m")
    def purge_sessions(job: hw.Job) -> int:
        """Deletes what has ended; a second run finds less to do, and does no harm."""
        gone, until = 0, now()
        while not job.cancelled:
            with world.database.write() as db:
                step = db.execute(
                    "DELETE FROM session WHERE id IN"
                    " (SELECT id FROM session WHERE expires_at <= ? LIMIT ?)",
                    (until, STEP),
                ).rowcount
            gone += step
            if step < STEP:
                break
            job.sync.progress(gone)
        return gone
