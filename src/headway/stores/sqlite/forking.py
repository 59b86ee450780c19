"""Closes all connections before this process is forked.

SQLite keeps its locks on a file per process. In a child it would still count those of its parent's
connections, which the system does not: the child would wait for a transaction that never ends
there, or write to a log that another process has deleted as unused. SQLite also has locks of the
whole process: one that another thread holds during a fork is never released in the child.

Source: https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_across_a_fork_
"""

from __future__ import annotations

import os
import threading
from threading import Lock, RLock
from typing import Protocol
from weakref import WeakSet

PATIENCE = 5.0
"""Maximum seconds that a fork waits for the step or query of one connection."""


class Connected(Protocol):
    """An owner of a connection, which it opens again when it needs it.

    Attributes:
        turn: held while the connection is used.
    """

    turn: Lock

    def disconnect(self) -> None:
        """Close the connection; the caller holds `turn`."""
        ...


class _Closable(Protocol):
    """Something that a child must close, because it shares it with its parent."""

    def close(self) -> None:
        """Close it."""
        ...


class _Fork(threading.local):
    """The owners whose `turn` is held by a thread that forks."""

    def __init__(self) -> None:
        self.held: list[Connected] = []


_fork = _Fork()
_owners: WeakSet[Connected] = WeakSet()
_shared: WeakSet[_Closable] = WeakSet()
no_fork = RLock()
"""Held while SQLite is used without the `turn` of an owner, while something is added, and from
before a fork until after it: no two threads that take turns wait for each other."""


def close_before_forks(owner: Connected) -> None:
    """Close the connection of an owner before each fork, as long as the owner is in use."""
    with no_fork:
        _owners.add(owner)


def close_in_children(shared: _Closable) -> None:
    """Close something in each child, as long as it is in use."""
    with no_fork:
        _shared.add(shared)


def _before() -> None:
    no_fork.acquire()
    for owner in tuple(_owners):
        if owner.turn.acquire(timeout=PATIENCE):
            _fork.held.append(owner)
            owner.disconnect()


def _after_in_parent() -> None:
    held, _fork.held = _fork.held, []
    for owner in held:
        owner.turn.release()
    no_fork.release()


def _after_in_child() -> None:
    _after_in_parent()
    for shared in tuple(_shared):
        shared.close()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
