"""publish_post: publishes a draft, and notifies the board's members."""

from __future__ import annotations

import sqlite3
from functools import partial

import headway as hw
from examples.lanes.database import now
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="notify", timeout="1m")
    def publish_post(job: hw.Job, post: int, devices: list[str] | None = None) -> str:
        """Create one notify_push for each device, in the step that ends this job."""
        at = world.database.once(job.id, partial(_publish, post=post))
        job.then(
            *(
                app.kind("notify_push").make(
                    device=device, title="A new post", key=f"post:{post}:{device}"
                )
                for device in devices or ()
            )
        )
        return at


def _publish(db: sqlite3.Connection, *, post: int) -> str:
    row = db.execute("SELECT state, published_at FROM post WHERE id = ?", (post,)).fetchone()
    if row is None:
        reason = f"there is no post {post}"
        raise hw.Dead(reason)
    if row["state"] == "published":
        return row["published_at"]
    at = now()
    db.execute("UPDATE post SET state = 'published', published_at = ? WHERE id = ?", (at, post))
    return at
