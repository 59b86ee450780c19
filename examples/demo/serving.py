"""The HTTP server of the demo with its systems, in the demo's process and on its store."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headway as hw
from examples.demo.automations.gardens import Gardens
from examples.demo.mail_room.kinds import declare_kinds
from examples.demo.newsroom.newsroom import settings as newsroom_settings
from examples.demo.telephones import LOOPBACK, Telephones
from headway.cli.systems import Systems
from headway.runtime.worker.worker import Worker
from headway.server.build import alive, build
from headway.server.listener import ListenAddress, Listener
from headway.server.service import ServerOptions, Service
from headway.systems import automations, calls, field_service, lanes, notifications
from headway.systems.directory.database import Directory
from headway.systems.parts import Parts
from headway.systems.telephony.providers import read_telephony
from headway.web.dashboard import add_dashboard

LANES = Path(__file__).parents[1] / "lanes" / "headway.toml"
"""The lanes with their targets, from the `lanes` example."""
SYSTEMS = Path(__file__).parent / "systems.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A running server.

    Attributes:
        url: URL of the server.
        worker: Runs the jobs of all systems except `lanes`; not started yet.
    """

    url: str
    worker: Worker


@asynccontextmanager
async def serving(
    store: hw.Store, folder: Path, phones: Telephones, smtp_port: int, gardens: Gardens | None
) -> AsyncGenerator[Served]:
    """Serve a store with the systems until the block ends.

    Args:
        store: The store; it is not closed.
        folder: Folder for the systems' directory.
        phones: The carrier.
        smtp_port: Port of the mail server for notifications.
        gardens: The automations; None to omit that system.

    Yields:
        The server, on a free port. It is open to all users of this machine.
    """
    app = hw.App(store=store, name="served")
    declare_kinds(app)
    settings: dict[str, Any] = tomllib.loads(SYSTEMS.read_text("utf-8"))
    parts = Parts(
        directory=Directory(f"sqlite:///{folder / 'directory.db'}"),
        telephony=read_telephony(phones.settings),
    )
    systems = Systems(
        each=(
            lanes.make(tomllib.loads(LANES.read_text("utf-8"))["lanes"]),
            calls.make(settings["calls"], parts),
            field_service.make(settings["field_service"], parts),
            notifications.make(newsroom_settings(smtp_port), parts),
            *(() if gardens is None else (automations.make(gardens.settings),)),
        ),
        parts=parts,
    )
    ours = systems.declare(app)
    options = ServerOptions(open_here=True, hosts=(LOOPBACK, "localhost"), docs=True)
    service = Service(store, options, app=app)
    server = build(service, systems.each)
    add_dashboard(server, service, systems.each)
    listener = Listener(server, ListenAddress(host=LOOPBACK, port=0), on_stop=service.begin_stop)
    async with systems.opened(listener.url), alive(service, systems.each):
        phones.carrier.network.inbound_urls[""] = f"{listener.url}/field-service/hooks/twilio/texts"
        running = asyncio.create_task(listener.run())
        try:
            await listener.answers()
            yield Served(
                url=listener.url,
                worker=app.worker(lanes=",".join(ours), concurrency=100, grace="3s"),
            )
        finally:
            listener.stop()
            await running
