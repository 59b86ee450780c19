"""ai_summarize_board: summarizes a board's cards, and stores the summary with the board."""

from __future__ import annotations

import asyncio
import sqlite3

import headway as hw
from examples.lanes.handlers.board import cards_of, open_board
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="enrich", timeout="5m")
    async def ai_summarize_board(job: hw.Job, board: int, sentences: int = 3) -> str:
        title, cards = await asyncio.to_thread(cards_of, world, board)
        text = await world.writer.write(
            f"Sum up the board {title!r}.", "\n".join(cards), sentences=sentences
        )

        def keep(db: sqlite3.Connection) -> str:
            open_board(db, board)
            db.execute("UPDATE board SET summary = ? WHERE id = ?", (text, board))
            return text

        return await asyncio.to_thread(world.database.once, job.id, keep)
