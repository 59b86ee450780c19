"""The lanes that a worker of systems serves."""

from __future__ import annotations

import headway as hw
from headway.cli.systems import Systems
from headway.server.service import Service


class ByChannel:
    """A system with one kind, whose jobs are sent to a lane for each channel."""

    name = "channels"
    routers = ()

    def declare(self, app: hw.App) -> None:
        async def send(job: hw.Job) -> None:
            del job

        app.job(name="channels.send", lane="channels.push")(send)
        app.lane("channels.push")
        app.lane("channels.email")

    async def start(self, service: Service) -> None:
        del service


def test_systems_worker_serves_each_lane_that_the_system_declares() -> None:
    app = hw.App("memory://")
    app.lane("mine")
    assert Systems(each=(ByChannel(),)).declare(app) == ["channels.push", "channels.email"]
