"""The server: where the master is, which one it is, and whether the store may stand on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headway.core.errors import SchemaMismatch, StoreUnavailable
from headway.stores.redis.link import Link, NotSentError, ReplyError, ReplyLostError
from headway.stores.redis.options import Address, RedisOptions

OLDEST = (6, 2)
_SLOTS = 16_384


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


def masters(options: RedisOptions, key: str) -> Iterator[Address]:
    """The servers to try, the likeliest first: itself, the sentinels' choice, or the slot's node.

    Args:
        key: one of the store's keys; they are all in one slot of a cluster.

    Raises:
        NotSentError: no sentinel or node could be asked.
    """
    if options.service:
        yield _by_sentinels(options)
    elif options.cluster:
        yield _by_nodes(options, key)
    else:
        yield from options.addresses


def _by_sentinels(options: RedisOptions) -> Address:
    reason = "no sentinel is named"
    for address in options.addresses:
        try:
            link = Link(address, options, options.sentinel_account)
        except (NotSentError, ReplyError) as error:
            reason = f"the sentinel {address}: {error}"
            continue
        try:
            found = link.ask("SENTINEL", "get-master-addr-by-name", options.service)
        except (ReplyError, ReplyLostError) as error:
            reason = f"the sentinel {address}: {error}"
            continue
        finally:
            link.close()
        if found:
            host, port = found
            return Address(host=host.decode(), port=int(port))
        reason = f"the sentinel {address} knows no service {options.service!r}"
    raise NotSentError(reason)


def _by_nodes(options: RedisOptions, key: str) -> Address:
    reason = "no node is named"
    for address in options.addresses:
        try:
            link = Link(address, options, options.account)
        except (NotSentError, ReplyError) as error:
            reason = str(error)
            continue
        try:
            return _node_of(link, key)
        except (ReplyError, ReplyLostError, NotSentError) as error:
            reason = f"the node {address}: {error}"
        finally:
            link.close()
    raise NotSentError(reason)


def _node_of(link: Link, key: str) -> Address:
    slot = link.ask("CLUSTER", "KEYSLOT", key)
    for first, last, master, *_ in link.ask("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            host, port = master[0], master[1]
            # A node that does not know its own name is the one that was asked.
            return Address(host=host.decode() if host else link.address.host, port=port)
    message = f"no node serves slot {slot} of {_SLOTS}"
    raise NotSentError(message)
