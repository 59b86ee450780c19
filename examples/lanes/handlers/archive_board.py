"""archive_board: moves a closed board's cards to the archive."""

from __future__ import annotations

import sqlite3
from functools import partial

import headway as hw
from examples.lanes.database import now
from examples.lanes.handlers.board import open_board
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(timeout="10m")
    def archive_board(job: hw.Job, board: int) -> int:
        return world.database.once(job.id, partial(_archive, board=board))


def _archive(db: sqlite3.Connection, *, board: int) -> int:
    """Move the cards and mark the board, in one transaction.

    Raises:
        Retry: the board is open; the job that closes it may not have run yet.
    """
    if open_board(db, board)["state"] != "closed":
        reason = f"the board {board} is open; close it first"
        raise hw.Retry(reason, after="2s")
    moved = db.execute("INSERT INTO archived_card SELECT * FROM card WHERE board = ?", (board,))
    db.execute("DELETE FROM card WHERE board = ?", (board,))
    db.execute("UPDATE board SET state = 'archived', archived_at = ? WHERE id = ?", (now(), board))
    return moved.rowcount
