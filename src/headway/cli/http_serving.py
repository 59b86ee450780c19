"""A server in this process, alone or alongside a worker, and the addresses it may listen on."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated

import structlog
import typer

from headway.cli.extras import needs_extra
from headway.cli.options import HostOption, PortOption
from headway.cli.settings import Settings
from headway.cli.systems import NONE, Systems
from headway.contract.store import Store
from headway.contract.views import TokensQuery
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.runtime import event_loop
from headway.runtime.app import App
from headway.runtime.worker.worker import Worker
from headway.server.build import alive, build
from headway.server.listener import ListenAddress, Listener
from headway.server.service import ServerOptions, Service
from headway.web.dashboard import add_dashboard
from headway.web.page import DashboardPage
from headway.web.sign_in import BASE

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True, slots=True)
class AddressOptions:
    """The address of a server, and the protection of its connections."""

    host: HostOption = "127.0.0.1"
    port: PortOption = 8080
    tls_cert: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="TLS certificate (PEM).")
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Private key of the certificate (PEM)."),
    ] = None
    plain_http: Annotated[
        bool,
        typer.Option(
            "--plain-http",
            help="Listen beyond loopback without TLS, for example behind a TLS proxy.",
        ),
    ] = False
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Proxy address or network whose X-Forwarded-* headers are trusted; repeatable.",
        ),
    ] = None

    @property
    def is_loopback(self) -> bool:
        """Whether it listens on loopback only."""
        return is_loopback(self.host)

    @property
    def url(self) -> str | None:
        """Its URL on this machine; None if the port is chosen later."""
        if not self.port:
            return None
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    def address(self, *, has_tokens: bool) -> ListenAddress:
        """Return the address to listen on.

        Raises:
            InvalidValue: the server would be reachable without a token, tokens would be sent
                unencrypted, or an option is not valid.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            message = "only one of --tls-cert and --tls-key was passed"
            raise InvalidValue(message, hint="pass both, or neither")
        for proxy in self.trust_proxy or ():
            _check_proxy(proxy)
        if not self.is_loopback and not has_tokens:
            message = f"at {self.host} others could reach the server, but the store has no token"
            raise InvalidValue(message, hint="create one first: headway token create NAME --role …")
        if self.trust_proxy and not has_tokens:
            message = "others reach the server through the proxy, but the store has no token"
            raise InvalidValue(message, hint="create one first: headway token create NAME --role …")
        if not self.is_loopback and self.tls_cert is None and not self.plain_http:
            message = f"at {self.host} tokens would be sent over the network unencrypted"
            raise InvalidValue(
                message,
                hint="pass --tls-cert and --tls-key, or --plain-http behind a TLS proxy",
            )
        return ListenAddress(
            host=self.host,
            port=self.port,
            certificate=self.tls_cert,
            key=self.tls_key,
            trusted_proxies=tuple(self.trust_proxy or ()),
        )


def _check_proxy(proxy: str) -> None:
    try:
        ip_network(proxy, strict=False)
    except ValueError:
        message = f"--trust-proxy: {proxy!r} is not an address"
        raise InvalidValue(message, hint="pass an IP address or network, not a name") from None


def is_loopback(host: str) -> bool:
    """Return whether a host is loopback, so that only this machine can reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK


MOST = 65_536


def allow_many_files() -> None:
    """Raise the soft limit of open files to the hard limit: each long poll is a connection.

    Shells often set it to 1,024 for old programs that use select, which Headway does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # a container may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


log = structlog.stdlib.get_logger("headway.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpServing:
    """A server: its App, its systems and its address."""

    app: App
    systems: Systems = NONE
    address: AddressOptions
    settings: Settings

    @property
    def base_url(self) -> str | None:
        """The public URL of the server; None if unknown."""
        return self.settings.public_url or self.address.url

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; a second signal stops at once."""
        await self.app.reach(self.settings.store_wait)
        opened = self.systems.opened(self.base_url)
        async with opened, self.app as app, self._ready(app.store) as listener:
            event_loop.on_signals(lambda now: listener.stop(now=now))
            await self._listen(listener)

    async def beside(self, store: Store, worker: Worker) -> None:
        """Serve alongside a worker until cancelled, then shut down gracefully."""
        del worker
        async with self._ready(store) as listener:
            serving = asyncio.create_task(self._listen(listener))
            try:
                await asyncio.shield(serving)
            finally:
                listener.stop()
                await serving

    @asynccontextmanager
    async def _ready(self, store: Store) -> AsyncGenerator[Listener]:
        """Build the server with its background tasks, which run while the block runs."""
        allow_many_files()
        has_tokens = bool(await store.read(TokensQuery()))
        address = self.address.address(has_tokens=has_tokens)
        service = Service(store, self._options(), app=self.app)
        if self.systems.parts is not None:
            service.alerts.storage = self.systems.parts.alert_storage
        pages = [self._watch_kafka(service)] if self.settings.kafka else []
        server = build(service, self.systems.each)
        add_dashboard(server, service, self.systems.each, pages)
        listener = Listener(server, address, on_stop=service.begin_stop)
        async with alive(service, self.systems.each):
            # Imported and declared objects are permanent: full collections need not scan them.
            gc.collect()
            gc.freeze()
            try:
                yield listener
            finally:
                gc.unfreeze()

    def _watch_kafka(self, service: Service) -> DashboardPage:
        """Watch the consumer group of [kafka.in], and return its dashboard page."""
        with needs_extra("kafka"):
            from headway.bridges.kafka.monitoring import (  # noqa: PLC0415
                kafka_page,
                start_kafka_monitoring,
            )
            from headway.bridges.kafka.settings import read_kafka_settings  # noqa: PLC0415
        settings = read_kafka_settings(self.settings.kafka)
        return kafka_page(start_kafka_monitoring(service, settings), settings)

    async def _listen(self, listener: Listener) -> None:
        logging_task = asyncio.create_task(self._log_address(listener))
        try:
            await listener.run()
        finally:
            logging_task.cancel()
        log.info("server stopped")

    def _options(self) -> ServerOptions:
        settings, address = self.settings, self.address
        loopback = address.is_loopback
        return ServerOptions(
            # A proxy on loopback forwards requests of other machines.
            open_here=loopback and not address.trust_proxy,
            hosts=(*LOOPBACK, address.host) if loopback and not address.trust_proxy else None,
            public_url=settings.public_url,
            signing_keys=settings.signing_keys,
            trusted_proxies=tuple(address.trust_proxy or ()),
            hooks=settings.hooks,
            alerts=settings.alerts,
            requests_per_s=settings.requests_per_s,
            keep_trail_ms=parse_duration(settings.keep_trail),
            traces=settings.traces,
            docs=loopback,
        )

    async def _log_address(self, listener: Listener) -> None:
        await listener.answers()
        if self.address.is_loopback and not await self.app.store.read(TokensQuery()):
            log.warning(
                "server without tokens: any user of this machine may do everything",
                fix="headway token create NAME --role admin",
            )
        log.info(
            "server listens",
            url=listener.url,
            dashboard=f"{listener.url}{BASE}",
            systems=[one.name for one in self.systems.each],
        )
