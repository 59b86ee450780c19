"""A server in this process, with a worker beside it where one is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from headway.cli.server_address import LOOPBACK, AddressOptions
from headway.cli.serving import ServeOptions
from headway.cli.settings import Settings
from headway.contract.views import TokensQuery
from headway.runtime import event_loop
from headway.runtime.app import App
from headway.server.build import alive, build
from headway.server.options import ServerOptions
from headway.server.run import Listener
from headway.server.service import Service
from headway.server.system import System

log = structlog.stdlib.get_logger("headway.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpServing:
    """What is served, and where.

    Attributes:
        app: whose store and kinds.
        systems: ready-made ones.
        address: where.
        settings: of the session.
        work: of a worker beside the server; None for none.
    """

    app: App
    systems: Sequence[System]
    address: AddressOptions
    settings: Settings
    work: ServeOptions | None = None

    async def run(self) -> int:
        """Serves until SIGTERM or SIGINT; a second one waits for nothing.

        Returns:
            How many runs the worker settled; 0 without one.

        Raises:
            InvalidValue: the address cannot be had, or would not be safe.
            StoreError: the store cannot be reached.
        """
        async with self.app as app:
            has_tokens = bool(await app.store.read(TokensQuery()))
            address = self.address.address(has_tokens=has_tokens)
            service = Service(app.store, self._options(), app=app)
            server = build(service, self.systems)
            listener = Listener(server, address, on_stop=service.begin_stop)
            async with alive(service, self.systems):
                self._tell(listener.url, open_here=not has_tokens)
                return await self._until_stopped(app, listener)

    async def _until_stopped(self, app: App, listener: Listener) -> int:
        if self.work is None:
            event_loop.on_signals(lambda now: listener.stop(now=now))
            await listener.run()
            return 0
        options = self.work.for_worker()
        options["signal_base"] = self.settings.public_url or listener.url
        worker = app.worker(**options)

        def stop(now: bool) -> None:
            worker.stop(now=now)
            listener.stop(now=now)

        event_loop.on_signals(stop)
        serving = asyncio.create_task(listener.run())
        serving.add_done_callback(lambda _: worker.stop())
        try:
            await worker.run()
        finally:
            listener.stop()
            await serving
        return worker.ended

    def _options(self) -> ServerOptions:
        settings, address = self.settings, self.address
        loopback = address.is_loopback
        return ServerOptions(
            open_here=loopback,
            hosts=(*LOOPBACK, address.host) if loopback and not address.trust_proxy else None,
            public_url=settings.public_url,
            signing_keys=settings.signing_keys,
            trusted_proxies=tuple(address.trust_proxy or ()),
            hooks=settings.hooks,
            alerts=settings.alerts,
            requests_per_s=settings.requests_per_s,
            docs=loopback,
        )

    def _tell(self, url: str, *, open_here: bool) -> None:
        log.info("server listens", url=url, systems=[one.name for one in self.systems])
        if open_here:
            log.warning(
                "the server is OPEN: whoever reaches this machine's loopback may do everything",
                mend="headway token create NAME --role admin",
            )
