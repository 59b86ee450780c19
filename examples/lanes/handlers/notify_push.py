"""notify_push: sends a notice to one device, through the gateway."""

from __future__ import annotations

import headway as hw
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="notify", subject="{device}", timeout="30s", expires="1h")
    async def notify_push(job: hw.Job, device: str, title: str, text: str = "") -> str:
        return await world.gateway.push(job, device, title, text)
