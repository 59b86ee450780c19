"""The format of the system `notifications`: its intake, without a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

from headway.cli.session import Session
from headway.cli.systems import make_systems
from headway.runtime.app import App
from headway.server.service import ServerOptions, Service
from headway.systems.notifications import Notifications
from headway.systems.notifications.from_kafka import NotificationSink


@asynccontextmanager
async def notifications(session: Session, app: App) -> AsyncGenerator[NotificationSink]:
    """Yield what takes notifications in, with the directory of the system open.

    Args:
        session: whose settings the system has.
        app: where the jobs go; the system's kinds are added to it.

    Raises:
        InvalidValue: a setting of the system is not valid.
        StoreError: the directory cannot be opened.
    """
    systems = make_systems(["notifications"], session.settings, session.store_url)
    systems.declare(app)
    (system,) = systems.each
    service = Service(app.store, ServerOptions(), app=app)
    async with systems.opened(session.settings.public_url):
        try:
            yield NotificationSink(service, cast("Notifications", system).context)
        finally:
            await service.close()
