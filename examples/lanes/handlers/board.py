"""Reading a board, for several types of jobs."""

from __future__ import annotations

import sqlite3

import headway as hw
from examples.lanes.world import World


def open_board(db: sqlite3.Connection, board: int) -> sqlite3.Row:
    """Return a board that is not archived.

    Raises:
        Dead: there is no such board, or it is archived.
    """
    row = db.execute("SELECT * FROM board WHERE id = ?", (board,)).fetchone()
    if row is None or row["state"] == "archived":
        reason = f"there is no board {board}" if row is None else f"the board {board} is archived"
        raise hw.Dead(reason)
    return row


def cards_of(world: World, board: int) -> tuple[str, list[str]]:
    """Return a board's title and the texts of its cards, oldest first."""
    with world.database.read() as db:
        title = open_board(db, board)["title"]
        cards = db.execute("SELECT text FROM card WHERE board = ? ORDER BY at, id", (board,))
        return title, [card["text"] for card in cards]
