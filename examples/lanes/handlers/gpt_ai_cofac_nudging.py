"""gpt_ai_cofac_nudging: writes to members who have not contributed yet."""

from __future__ import annotations

import asyncio

import headway as hw
from examples.lanes.handlers.board import cards_of
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="enrich", timeout="5m")
    async def gpt_ai_cofac_nudging(job: hw.Job, board: int) -> int:
        """Create one send_email for each silent member, in the step that ends this job."""
        title, cards = await asyncio.to_thread(cards_of, world, board)
        silent = await asyncio.to_thread(_silent, world, board)
        if not silent:
            return 0
        said = await world.writer.write(
            f"Invite a silent member to the board {title!r}.", "\n".join(cards), sentences=1
        )
        job.then(
            *(
                app.kind("send_email").make(
                    to=email,
                    title=f"What do you think about {title}?",
                    text=f"Hello {name},\n\nothers have said:\n{said}\n\nWhat is your view?\n",
                    key=f"nudge:{job.id}:{email}",
                )
                for email, name in silent
            )
        )
        return len(silent)


def _silent(world: World, board: int) -> list[tuple[str, str]]:
    with world.database.read() as db:
        rows = db.execute(
            "SELECT email, name FROM member WHERE board = ?1 AND NOT EXISTS"
            " (SELECT 1 FROM card WHERE card.board = ?1 AND card.author = member.name)"
            " ORDER BY email LIMIT 1000",
            (board,),
        ).fetchall()
    return [(row["email"], row["name"]) for row in rows]
