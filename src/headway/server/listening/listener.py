"""Runs a server until it is told to stop, and then lets go of everything in order."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from headway.core.errors import InvalidValue
from headway.server.listening.connection import Connection

GRACE_S = 10
"""Seconds that requests under way get after a stop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: a name or an address.
        port: 0 for any that is free.
        certificate: of TLS, a PEM file; None for none.
        key: of the certificate, a PEM file.
        trusted_proxies: addresses whose X-Forwarded-* headers are believed.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    trusted_proxies: tuple[str, ...] = ()


class _Server(uvicorn.Server):
    """Uvicorn's server, but for the signals, which the caller minds."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Takes no signals: a worker beside it needs them too."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to answer, and says so."""
        await super().startup(sockets)
        self.answers.set()


class Listener:
    """A server at an address.

    Attributes:
        url: where it listens; known once `bound`.
    """

    def __init__(
        self, app: ASGIApp, address: Address, *, on_stop: Callable[[], None] = lambda: None
    ) -> None:
        """Binds the address; nothing is answered yet.

        Args:
            app: what answers.
            address: where.
            on_stop: called by `stop`; sends home who waits for long, or the stop waits for them.

        Raises:
            InvalidValue: the address cannot be had.
        """
        self._socket = _bind(address)
        host = f"[{address.host}]" if ":" in address.host else address.host
        scheme = "https" if address.certificate else "http"
        self.url = f"{scheme}://{host}:{self._socket.getsockname()[1]}"
        self._server = _Server(
            uvicorn.Config(
                app,
                http=Connection,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(address.trusted_proxies),
                forwarded_allow_ips=list(address.trusted_proxies),
                timeout_keep_alive=75,
                timeout_graceful_shutdown=GRACE_S,
                ssl_certfile=address.certificate,
                ssl_keyfile=address.key,
            )
        )
        self._on_stop = on_stop

    async def run(self) -> None:
        """Answers until `stop`; ends when what is under way has ended, or the grace is over."""
        await self._server.serve([self._socket])

    def stop(self, *, now: bool = False) -> None:
        """Tells it to stop; returns at once.

        Args:
            now: do not wait for requests under way.
        """
        self._on_stop()
        self._server.should_exit = True
        self._server.force_exit = self._server.force_exit or now

    async def answers(self) -> None:
        """Returns when it answers."""
        await self._server.answers.wait()


def _hint(error: OSError | OverflowError) -> str:
    match error:
        case OSError(errno=errno.EADDRINUSE):
            return "another program is there; give another --port, or end it"
        case OSError(errno=errno.EACCES):
            return "ports below 1024 need rights; give another --port"
        case _:
            return "give a --host that is a name or an address of this machine"


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # Named, or asyncio takes it for no TCP, and lets small packets wait for one another.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or error
        message = f"the server cannot listen at {address.host}:{address.port}: {why}"
        raise InvalidValue(message, hint=_hint(error)) from None
    listening.set_inheritable(True)
    return listening
