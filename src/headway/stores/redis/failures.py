"""Translation of the server's errors into Headway's."""

from __future__ import annotations

from typing import NamedTuple

from headway.core.errors import (
    InvariantBroken,
    OutcomeUnknown,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)

_UNWRITTEN = "nothing was written"
RIGHTS = (
    "the user needs resetchannels ~{headway:NAMESPACE}:* &{headway:NAMESPACE}:*"
    " +@all -@dangerous +info"
)
"""The rights that a worker's user needs."""


class _Meaning(NamedTuple):
    """Of an error of the server's.

    Attributes:
        sign: what its text has at its begin, or as a word inside, when a script's command failed.
        passing: it may be over soon, so the call is retried on a new link.
    """

    sign: str
    error: type[StoreError]
    hint: str
    passing: bool = False


_MEANINGS = (
    _Meaning("LOADING", StoreUnavailable, "it reads its data from the device; wait for it", True),
    _Meaning("READONLY", StoreUnavailable, "it became a replica; its master is looked for", True),
    _Meaning("MASTERDOWN", StoreUnavailable, "the replica has lost its master; wait for it", True),
    _Meaning("CLUSTERDOWN", StoreUnavailable, "the cluster is down; look at its nodes", True),
    _Meaning("TRYAGAIN", StoreUnavailable, "the slot is on its way to another node", True),
    _Meaning("MOVED", StoreUnavailable, "use redis+cluster:// for a cluster", True),
    _Meaning("ASK", StoreUnavailable, "the slot is on its way to another node", True),
    _Meaning("BUSY", StoreUnavailable, "another client's script runs too long: SCRIPT KILL", True),
    _Meaning("NOREPLICAS", StoreUnavailable, "too few replicas are connected to write", True),
    _Meaning("OOM", StoreFull, "raise the server's maxmemory, or let jobs end and be purged"),
    _Meaning("MISCONF", StoreFull, "the server cannot write its device: free some space on it"),
    _Meaning("NOAUTH", StoreUnavailable, "put the password into the URL"),
    _Meaning("WRONGPASS", StoreUnavailable, "correct the name or the password in the URL"),
    _Meaning("ERR AUTH", StoreUnavailable, "the server needs no password: remove it from the URL"),
    _Meaning("ERR DB index", StoreUnavailable, "it has no database of that number: fix the URL"),
    _Meaning("NOPERM", StoreUnavailable, RIGHTS),
    _Meaning("EXECABORT", StoreUnavailable, "try again"),
    _Meaning("UNKILLABLE", StoreUnavailable, "another client's script runs too long", True),
    _Meaning("unknown command", SchemaMismatch, "Redis 6.2 or later, or Valkey, is needed"),
    _Meaning("WRONGTYPE", StoreCorrupt, "another program wrote to Headway's keys: find it"),
)


def is_passing(text: str) -> bool:
    """Return whether an error of the server's may be over soon."""
    found = _meaning(text)
    return found is not None and found.passing


def explain(text: str, where: str) -> StoreError | InvariantBroken:
    """The error of Headway's tree for a server's error; nothing was written when it came."""
    found = _meaning(text)
    what = f"the Redis store {where}: {text}"
    if found is None:
        return InvariantBroken(what, hint=f"this is a bug in Headway; {_UNWRITTEN}")
    return found.error(what, hint=f"{found.hint}; {_UNWRITTEN}")


def unreachable(reason: object, where: str) -> StoreUnavailable:
    """Return the error if nothing was sent."""
    message = f"the Redis store {where} is out of reach: {reason}"
    return StoreUnavailable(message, hint=f"start it, or correct the URL; {_UNWRITTEN}")


def reply_lost(reason: object, where: str) -> OutcomeUnknown:
    """Return the error if no reply came after something was sent."""
    message = f"the Redis store {where} did not answer: {reason}"
    return OutcomeUnknown(message, hint="it may have been written; repeating the call is safe")


def _meaning(text: str) -> _Meaning | None:
    for one in _MEANINGS:
        # Within a script the server's word stands behind the place of the call.
        if text.startswith(one.sign) or f" {one.sign} " in text or f"-{one.sign} " in text:
            return one
    return None
