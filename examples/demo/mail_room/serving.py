"""The HTTP server of the demo, in its own process and on its own store."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import headway as hw
from examples.demo.mail_room.kinds import declare_kinds
from headway.server.build import alive, build
from headway.server.listening.listener import Address, Listener
from headway.server.options import ServerOptions
from headway.server.service import Service
from headway.systems.lanes import make

LOOPBACK = "127.0.0.1"
SETTINGS = Path(__file__).parents[2] / "lanes" / "headway.toml"
"""The lanes, with their targets, as the example beside this one has them."""


@asynccontextmanager
async def serving(store: hw.Store) -> AsyncGenerator[str]:
    """Serves a store with the system `lanes`, until the block ends.

    Args:
        store: whose jobs; it is not closed.

    Yields:
        The address, on a port that was free. It is open to whoever is on this machine.
    """
    app = hw.App(store=store, name="mail room")
    declare_kinds(app)
    systems = (make(tomllib.loads(SETTINGS.read_text("utf-8"))["lanes"]),)
    options = ServerOptions(open_here=True, hosts=(LOOPBACK, "localhost"), docs=True)
    service = Service(store, options, app=app)
    listener = Listener(
        build(service, systems), Address(host=LOOPBACK, port=0), on_stop=service.begin_stop
    )
    async with alive(service, systems):
        running = asyncio.create_task(listener.run())
        try:
            await listener.answers()
            yield listener.url
        finally:
            listener.stop()
            await running
