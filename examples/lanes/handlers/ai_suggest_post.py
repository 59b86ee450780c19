"""ai_suggest_post: drafts a post from a board's cards, for a person to publish or discard."""

from __future__ import annotations

import asyncio
import sqlite3

import headway as hw
from examples.lanes.handlers.board import cards_of, open_board
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="enrich", timeout="5m")
    async def ai_suggest_post(job: hw.Job, board: int) -> int:
        title, cards = await asyncio.to_thread(cards_of, world, board)
        text = await world.writer.write(
            f"Draft a post for the board {title!r}.", "\n".join(cards), sentences=2
        )

        def keep(db: sqlite3.Connection) -> int:
            open_board(db, board)
            draft = db.execute("INSERT INTO post (board, text) VALUES (?, ?)", (board, text))
            return draft.lastrowid or 0

        return await asyncio.to_thread(world.database.once, job.id, keep)
