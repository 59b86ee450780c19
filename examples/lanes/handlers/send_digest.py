"""send_digest: sends the news of a board to each of its members."""

from __future__ import annotations

import sqlite3

import headway as hw
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="send_email", timeout="5m")
    def send_digest(job: hw.Job, board: int, since: str) -> int:
        """Create one send_email for each member, in the step that ends this job.

        Because the jobs are created only in that step, no digest is sent twice.
        """
        with world.database.read() as db:
            cards = db.execute(
                "SELECT author, text FROM card WHERE board = ? AND at >= ? ORDER BY at, id",
                (board, since),
            ).fetchall()
            members = db.execute(
                "SELECT email, name FROM member WHERE board = ? ORDER BY email LIMIT 1000", (board,)
            ).fetchall()
            title = _title(db, board)
        if not cards:
            return 0
        news = "\n".join(f"- {card['author']}: {card['text']}" for card in cards)
        job.then(
            *(
                app.kind("send_email").make(
                    to=member["email"],
                    title=f"{title}: {len(cards)} new",
                    text=f"Hello {member['name']},\n\n{news}\n",
                    key=f"digest:{job.id}:{member['email']}",
                )
                for member in members
            )
        )
        return len(members)


def _title(db: sqlite3.Connection, board: int) -> str:
    row = db.execute("SELECT title FROM board WHERE id = ?", (board,)).fetchone()
    if row is None:
        reason = f"there is no board {board}"
        raise hw.Dead(reason)
    return row["title"]
