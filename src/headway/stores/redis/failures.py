"""Translation of the server's errors into Headway's."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from headway.core.errors import (
    InvariantBroken,
    OutcomeUnknown,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreReadOnly,
    StoreUnavailable,
)
from headway.stores.redis.link import NotSentError, ReplyError, ReplyLostError

_UNWRITTEN = "nothing was written"
_IN_PART = "the step may be stored in part: check it with `headway audit`"
RIGHTS = (
    "the user needs resetchannels ~{headway:NAMESPACE}:* &{headway:NAMESPACE}:*"
    " +@all -@dangerous +info"
)
"""The permissions that a worker's user needs."""


class _Meaning(NamedTuple):
    """The meaning of a server's error.

    Attributes:
        sign: the first word of its text, or a word inside if a script's command failed.
        passing: whether it may be temporary, so that the call is retried on a new link.
        written: what was written of the step.
    """

    sign: str
    error: type[StoreError]
    hint: str
    passing: bool = False
    written: str = _UNWRITTEN


_MEANINGS = (
    _Meaning("LOADING", StoreUnavailable, "it is loading its data from disk; wait for it", True),
    _Meaning(
        "READONLY",
        StoreReadOnly,
        "use the master's address, or redis+sentinel://, which finds it",
        True,
    ),
    _Meaning("MASTERDOWN", StoreUnavailable, "the replica has lost its master; wait for it", True),
    _Meaning("CLUSTERDOWN", StoreUnavailable, "the cluster is down; check its nodes", True),
    _Meaning("TRYAGAIN", StoreUnavailable, "the slot is moving to another node", True),
    _Meaning("MOVED", StoreUnavailable, "use redis+cluster:// for a cluster", True),
    _Meaning("ASK", StoreUnavailable, "the slot is moving to another node", True),
    _Meaning("BUSY", StoreUnavailable, "another client's script runs too long: SCRIPT KILL", True),
    _Meaning(
        "ERR max number of clients",
        StoreUnavailable,
        "raise the server's maxclients, or run fewer processes",
        True,
    ),
    _Meaning("NOREPLICAS", StoreUnavailable, "too few replicas are connected to write", True),
    _Meaning("OOM", StoreFull, "raise the server's maxmemory, or wait until jobs are purged"),
    _Meaning("MISCONF", StoreFull, "the server cannot write to disk: free some space"),
    _Meaning("NOAUTH", StoreMisconfigured, "put the password into the URL"),
    _Meaning("WRONGPASS", StoreMisconfigured, "correct the name or the password in the URL"),
    _Meaning(
        "ERR AUTH", StoreMisconfigured, "the server needs no password: remove it from the URL"
    ),
    _Meaning(
        "ERR DB index", StoreMisconfigured, "it has no database with that number: fix the URL"
    ),
    _Meaning("NOPERM", StoreMisconfigured, RIGHTS),
    # Rights that were taken away while connections were open: before version 7, and since.
    _Meaning("user executing the script", StoreMisconfigured, RIGHTS, written=_IN_PART),
    _Meaning("ACL failure in script:", StoreMisconfigured, RIGHTS, written=_IN_PART),
    _Meaning("EXECABORT", StoreUnavailable, "try again"),
    _Meaning("UNKILLABLE", StoreUnavailable, "another client's script runs too long", True),
    _Meaning("unknown command", SchemaMismatch, "Redis 6.2 or later, or Valkey, is needed"),
    _Meaning("WRONGTYPE", StoreCorrupt, "another program wrote to Headway's keys: find it"),
)


def is_transient(text: str) -> bool:
    """Return whether a server's error may be temporary."""
    found = _meaning(text)
    return found is not None and found.passing


def explain(text: str, where: str) -> StoreError | InvariantBroken:
    """Convert a server's error to one of Headway's, whose hint says what was written."""
    found = _meaning(text)
    what = f"the Redis store {where}: {text}"
    if found is None:
        return InvariantBroken(what, hint=f"this is a bug in Headway; {_UNWRITTEN}")
    return found.error(what, hint=f"{found.hint}; {found.written}")


def unreachable(reason: object, where: str) -> StoreUnavailable:
    """Return the error for a call that was not sent."""
    message = f"the Redis store {where} is unreachable: {reason}"
    return StoreUnavailable(message, hint=f"start it, or correct the URL; {_UNWRITTEN}")


def reply_lost(reason: object, where: str) -> OutcomeUnknown:
    """Return the error for a call without a reply."""
    message = f"the Redis store {where} did not reply: {reason}"
    return OutcomeUnknown(message, hint="it may have been written; repeating the call is safe")


@contextmanager
def explained(where: str) -> Generator[None]:
    """Convert the errors of a link to Headway's.

    Raises:
        StoreUnavailable: the server is unreachable; nothing was written.
        OutcomeUnknown: the server did not reply.
        StoreError: the server refused; nothing was written.
        InvariantBroken: the server's error means a bug.
    """
    failure: StoreError | InvariantBroken
    try:
        yield
    except NotSentError as error:
        failure = unreachable(error, where)
        raise failure from error
    except ReplyLostError as error:
        failure = reply_lost(error, where)
        raise failure from error
    except ReplyError as error:
        failure = explain(str(error), where)
        raise failure from error


def _meaning(text: str) -> _Meaning | None:
    for one in _MEANINGS:
        # In a script's error, the word follows the place of the call.
        if text.startswith(one.sign) or f" {one.sign} " in text or f"-{one.sign} " in text:
            return one
    return None
