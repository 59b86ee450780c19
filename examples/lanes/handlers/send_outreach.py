"""send_outreach: sends a first message to a prospect who has not opted out."""

from __future__ import annotations

import asyncio

import headway as hw
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="send_outreach", timeout="1m")
    async def send_outreach(job: hw.Job, prospect: int, title: str, text: str) -> str:
        """Fill in `{name}` and `{company}` in title and text, and send the message.

        Raises:
            Dead: there is no such prospect.
        """
        row = await asyncio.to_thread(_find, world, prospect)
        if row is None:
            reason = f"there is no prospect {prospect}"
            raise hw.Dead(reason)
        # Checked here, not when the job is created, so that an opt-out takes effect at once.
        if row["out"]:
            return "opted out"
        filled = [
            one.replace("{name}", row["name"] or "there").replace("{company}", row["company"])
            for one in (title, text)
        ]
        message = world.mailer.message(row["email"], *filled)
        message["List-Unsubscribe"] = f"<mailto:{world.mailer.sender}?subject=unsubscribe>"
        return await world.mailer.send(job, message)


def _find(world: World, prospect: int) -> dict[str, str] | None:
    with world.database.read() as db:
        row = db.execute(
            "SELECT email, name, company,"
            " EXISTS (SELECT 1 FROM opted_out WHERE opted_out.email = prospect.email) AS out"
            " FROM prospect WHERE id = ?",
            (prospect,),
        ).fetchone()
    return None if row is None else dict(row)
