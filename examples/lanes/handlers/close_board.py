"""close_board: closes a board to new posts."""

from __future__ import annotations

import sqlite3
from functools import partial

import headway as hw
from examples.lanes.database import now
from examples.lanes.handlers.board import open_board
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(timeout="1m")
    def close_board(job: hw.Job, board: int) -> str:
        return world.database.once(job.id, partial(_close, board=board))


def _close(db: sqlite3.Connection, *, board: int) -> str:
    row = open_board(db, board)
    if row["state"] == "closed":
        return row["closed_at"]
    at = now()
    db.execute("UPDATE board SET state = 'closed', closed_at = ? WHERE id = ?", (at, board))
    return at
