"""The server: which one it is, and whether the store may stand on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.core.errors import SchemaMismatch, StoreUnavailable
from headway.stores.redis.link import Link, NotSentError

OLDEST = (6, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """What a server says of itself.

    Attributes:
        name: "redis" or "valkey".
        version: of Redis, or of the Redis that a Valkey is like.
    """

    name: str
    version: tuple[int, ...]
    facts: Mapping[str, str]

    @property
    def is_replica(self) -> bool:
        """Whether it follows a master, and takes no writes."""
        return self.facts.get("role") == "slave"

    @property
    def eviction(self) -> str:
        """What it throws away when its memory is used up; "noeviction" for nothing."""
        return self.facts.get("maxmemory_policy", "noeviction")


def ask_server(link: Link) -> Server:
    """Ask a server what it is.

    Raises:
        ReplyError: it does not say, to us.
        ReplyLostError: it did not answer.
    """
    text = link.ask("INFO").decode(errors="replace")
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    facts = {name: value.strip() for name, value in pairs}
    version = facts.get("redis_version", "0")
    name = facts.get("server_name", "valkey" if "valkey_version" in facts else "redis")
    return Server(
        name=name,
        version=tuple(int(part) for part in version.split(".") if part.isdigit()),
        facts=facts,
    )


def check_server(server: Server, where: str) -> None:
    """Let a server pass on which nothing is lost by its own rules.

    Raises:
        SchemaMismatch: it is too old.
        StoreUnavailable: it throws keys away when its memory is used up.
        NotSentError: it is a replica.
    """
    if server.version < OLDEST:
        found = ".".join(map(str, server.version)) or "unknown"
        message = f"the Redis store {where} is of version {found}"
        raise SchemaMismatch(message, hint="6.2 or later is needed, or Valkey")
    if server.eviction != "noeviction":
        message = f"the Redis store {where} evicts keys ({server.eviction}): jobs would be lost"
        hint = "CONFIG SET maxmemory-policy noeviction, and in redis.conf; nothing was written"
        raise StoreUnavailable(message, hint=hint)
    if server.is_replica:
        message = f"{where} is a replica"
        raise NotSentError(message)
