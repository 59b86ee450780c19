"""Where a server may listen: freely on loopback, elsewhere only with explicit protection."""

from __future__ import annotations

import resource
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated

import typer

from headway.core.errors import InvalidValue
from headway.server.listener import ListenAddress

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True, slots=True)
class AddressOptions:
    """Where a server listens, and how its connections are kept private."""

    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The name or address to listen at.")
    ] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")
    ] = 8080
    tls_cert: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A certificate, PEM.")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Its key, PEM.")
    ] = None
    plain_http: Annotated[
        bool,
        typer.Option(
            "--plain-http",
            help="Beyond loopback without TLS: something else, such as a proxy, keeps it private.",
        ),
    ] = False
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="A proxy's address or network, whose X-Forwarded-* are believed; repeatable.",
        ),
    ] = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def url(self) -> str | None:
        """How it is called on this machine; None while the port is not known."""
        if not self.port:
            return None
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    def address(self, *, has_tokens: bool) -> ListenAddress:
        """The address to listen at.

        Args:
            has_tokens: whether the store has any token.

        Raises:
            InvalidValue: it would be open to others, or its tokens would go in the clear.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            message = "of --tls-cert and --tls-key, one is missing"
            raise InvalidValue(message, hint="give both, or neither")
        for proxy in self.trust_proxy or ():
            _check_proxy(proxy)
        if not self.is_loopback and not has_tokens:
            message = f"at {self.host} others could reach the server, and the store has no token"
            raise InvalidValue(message, hint="make one first: headway token create NAME --role …")
        if self.trust_proxy and not has_tokens:
            message = "others reach the server through the proxy, and the store has no token"
            raise InvalidValue(message, hint="make one first: headway token create NAME --role …")
        if not self.is_loopback and self.tls_cert is None and not self.plain_http:
            message = f"at {self.host} tokens would go over the network in the clear"
            raise InvalidValue(
                message,
                hint="give --tls-cert and --tls-key; or --plain-http if a proxy does TLS before it",
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
        message = f"--trust-proxy: {proxy!r} is no address"
        raise InvalidValue(message, hint="give an IP address or network, no name") from None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK


MOST = 65_536


def allow_many_files() -> None:
    """Raise the soft limit as far as the hard one allows: each long poll is a connection.

    Shells often allow 1,024, for the sake of old programs that use select; none is here.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # a container may forbid it; then it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
