"""The server: find the master, read its facts, and check that it can hold a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headway.core.errors import SchemaMismatch, StoreMisconfigured
from headway.stores.redis.link import Link, NotSentError, ReplyError, ReplyLostError, packed
from headway.stores.redis.options import Address, RedisOptions
from headway.stores.redis.scripts import key_suffixes

OLDEST = (6, 2)
_SLOTS = 16_384
USED = {
    "EXISTS HGETALL HKEYS HLEN ZCARD": 0,
    "HDEL HEXISTS HGET HMGET ZMSCORE ZREM": 1,
    "HINCRBY HSET ZADD ZLEXCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZREVRANGEBYLEX"
    " ZREVRANGEBYSCORE": 2,
}
"""The commands of the scripts that have a key, by the number of words after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """Facts that a server reports.

    Attributes:
        name: "redis" or "valkey".
        version: of Redis; for Valkey, the compatible Redis version.
    """

    name: str
    version: tuple[int, ...]
    facts: Mapping[str, str]

    @property
    def is_replica(self) -> bool:
        """Whether it is a replica, which accepts no writes."""
        return self.facts.get("role") == "slave"

    @property
    def eviction(self) -> str:
        """Eviction policy for a full memory; "noeviction" for none."""
        return self.facts.get("maxmemory_policy", "noeviction")


def ask_server(link: Link) -> Server:
    """Read the facts about a server.

    Raises:
        ReplyError: the user may not read them.
        ReplyLostError: the server did not reply.
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
    """Validate that a server can hold a store.

    Raises:
        SchemaMismatch: it is too old.
        StoreMisconfigured: it evicts keys when its memory is full.
        ReplyError: it is a replica.
    """
    if server.version < OLDEST:
        found = ".".join(map(str, server.version)) or "unknown"
        message = f"the Redis store {where} has version {found}"
        raise SchemaMismatch(message, hint="Redis 6.2 or later, or Valkey, is needed")
    if server.eviction != "noeviction":
        message = f"the Redis store {where} evicts keys ({server.eviction}): jobs would be lost"
        hint = "CONFIG SET maxmemory-policy noeviction, and in redis.conf; nothing was written"
        raise StoreMisconfigured(message, hint=hint)
    if server.is_replica:
        # As if it had refused a write.
        message = "READONLY it is a replica"
        raise ReplyError(message)


def check_rights(link: Link, base: str) -> None:
    """Check that the user may run each command of the scripts.

    A script that is refused a command has done what precedes it, and the server does not undo it.

    Args:
        base: what the store's keys begin with.

    Raises:
        ReplyError: the user may not run one of them, or use it for the store's keys.
        ReplyLostError: the server did not reply.
    """
    keys = [f"{base}{suffix}" for suffix in key_suffixes()]
    tries: list[tuple[str | int, ...]] = [
        ("EVALSHA", "", len(keys), *keys),
        ("SCRIPT", "LOAD", ""),
        ("TIME",),
        ("PUBLISH", f"{base}wakes", ""),
    ]
    tries += [(one, keys[0], *[""] * more) for all_, more in USED.items() for one in all_.split()]
    # A transaction checks each command when it is added to it; none of these is carried out.
    link.ask("MULTI")
    replies = [link.call(b"".join(packed(*words) for words in (*tries, ("DISCARD",))))]
    # The calls are sent; these wait for the other replies.
    replies += [link.call(b"") for _ in tries]
    for reply in replies:
        if isinstance(reply, ReplyError) and str(reply).startswith("NOPERM"):
            raise reply


def masters(options: RedisOptions, key: str) -> Iterator[Address]:
    """Yield the servers to try: the given ones, the sentinels' master, or the slot's node.

    Args:
        key: one of the store's keys, which are all in one slot of a cluster.

    Raises:
        NotSentError: no sentinel or node could be queried.
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
            # A node without a host is the one that replied.
            return Address(host=host.decode() if host else link.address.host, port=port)
    message = f"no node serves slot {slot} of {_SLOTS}"
    raise NotSentError(message)
