"""What the bench asks of a queue: to take jobs, and to do them in a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from bench.tally import Handler


class Producer:
    """Puts jobs into an open queue. A job is a number."""

    async def one(self, number: int) -> None:
        """Returns when the queue has acknowledged it."""
        raise NotImplementedError

    async def many(self, numbers: Sequence[int]) -> None:
        """Some thousand at most, by whatever is fastest."""
        for number in numbers:
            await self.one(number)

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        """All due at one moment, in ms UTC; some thousand at most."""
        raise NotImplementedError


class Ending:
    """Tells a worker that all is done.

    A worker that names nothing to call is ended from outside, without ceremony.
    """

    def __init__(self) -> None:
        self.told: Callable[[], object] | None = None

    def calls(self, told: Callable[[], object]) -> None:
        """Lets a function be called, from a thread of its own; the worker must then return."""
        self.told = told


class Peer:
    """One queue on one store.

    Attributes:
        name: in the tables.
        store: `sqlite`, `postgres` or `redis`.
        version: of its package.
        setting: what was set for it, in words; its best here.
        bulk: whether it takes many jobs in one call.
        bursts: whether it takes jobs that are due later.
        slow: whether it gets fewer jobs where time would else be lost.
        least_redis: the first version of Redis that it runs on.
        waits: whether its handlers can be told to wait.
        seconds: for which each handler waits.
        places: handlers at once while they wait.
        locks: keys; each job holds that of its number modulo so many. 0 for none.
        keyed: whether it can lock by key.
    """

    name = ""
    version = ""
    store = "redis"
    setting = ""
    bulk = False
    bursts = True
    slow = False
    least_redis = (0,)
    waits = False
    seconds = 0.0
    places = 0
    locks = 0
    keyed = False

    async def prepare(self, url: str) -> None:
        """Makes what it needs in an empty store."""

    def producer(self, url: str) -> AbstractAsyncContextManager[Producer]:
        """Opens the queue for one who enqueues, in the running loop."""
        raise NotImplementedError

    def consume(self, url: str, handler: Handler, ending: Ending) -> None:
        """Works in this process and its main thread, until it is told or ended."""
        raise NotImplementedError
