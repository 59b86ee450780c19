"""Facts about a server, for diagnosis; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.stores.redis.failures import explained
from headway.stores.redis.link import Link, ReplyError
from headway.stores.redis.options import RedisOptions
from headway.stores.redis.server import Server, ask_server, check_rights, masters
from headway.stores.redis.timing import machine_clock, monotonic

_PINGS = 20
_SETTINGS = ("appendfsync", "min-replicas-to-write", "appendonly")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerFacts:
    """Facts about a server.

    Attributes:
        settings: the readable ones; empty if CONFIG is forbidden.
        offset_ms: how far its clock is ahead of this machine's.
        ping_ms: median duration of a PING.
        missing: the server's error for a command that workers need; empty if all succeed.
    """

    server: Server
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    offset_ms: int
    ping_ms: float
    user: str
    missing: str


def read_facts(options: RedisOptions) -> ServerFacts:
    """Check the master of a store.

    Raises:
        StoreUnavailable: the server is unreachable, or refuses the connection.
        OutcomeUnknown: the server did not reply.
        StoreError: the server failed.
        InvariantBroken: the server's error means a bug.
    """
    base = f"{{headway:{options.namespace}}}:"
    with explained(str(options)):
        address = next(iter(masters(options, base)))
        link = Link(address, options, options.account, options.database)
        try:
            return _collect(link, base)
        finally:
            link.close()


def _collect(link: Link, base: str) -> ServerFacts:
    before = machine_clock()
    seconds, micros = link.ask("TIME")
    after = machine_clock()
    return ServerFacts(
        server=ask_server(link),
        settings=_settings(link),
        offset_ms=int(seconds) * 1000 + int(micros) // 1000 - (before + after) // 2,
        ping_ms=_ping_ms(link),
        user=_user(link),
        missing=_missing(link, base),
    )


def _settings(link: Link) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _SETTINGS:
        try:
            reply = link.ask("CONFIG", "GET", name)
        except ReplyError:
            # If CONFIG is forbidden, callers have to use INFO.
            return found
        if reply:
            found[name] = reply[1].decode()
    return found


def _ping_ms(link: Link) -> float:
    times: list[float] = []
    for _ in range(_PINGS):
        begin = monotonic()
        link.ask("PING")
        times.append((monotonic() - begin) * 1000)
    return sorted(times)[_PINGS // 2]


def _user(link: Link) -> str:
    try:
        return link.ask("ACL", "WHOAMI").decode()
    except ReplyError:
        return "default"


def _missing(link: Link, base: str) -> str:
    """Try the commands that workers need, without writing."""
    try:
        check_rights(link, base)
        link.ask("SUBSCRIBE", f"{base}wakes")
    except ReplyError as error:
        return str(error)
    return ""
