"""Where the master is: the server itself, the one that sentinels name, or the slot's node."""

from __future__ import annotations

from collections.abc import Iterator

from headway.stores.redis.link import Link, NotSentError, ReplyError, ReplyLostError
from headway.stores.redis.options import Address, RedisOptions

_SLOTS = 16_384


def masters(options: RedisOptions, key: str) -> Iterator[Address]:
    """The servers to try, the likeliest first.

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
