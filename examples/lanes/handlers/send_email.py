"""send_email: sends one message to one address."""

from __future__ import annotations

import headway as hw
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="send_email", subject="{to}", timeout="1m")
    async def send_email(job: hw.Job, to: str, title: str, text: str) -> str:
        return await world.mailer.send(job, world.mailer.message(to, title, text))
