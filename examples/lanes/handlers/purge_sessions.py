"""purge_sessions: deletes expired sessions, in short steps that do not block other processes."""

from __future__ import annotations

import headway as hw
from examples.lanes.database import now
from examples.lanes.world import World

STEP = 1_000


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(timeout="10m")
    def purge_sessions(job: hw.Job) -> int:
        """Delete expired sessions; a second run is harmless."""
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
