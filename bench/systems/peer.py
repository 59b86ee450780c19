"""The interface of a queue under measurement: enqueue jobs, and run them in a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from bench.tally import Handler


class Producer:
    """Enqueues into an open queue. A job is a number."""

    async def one(self, number: int) -> None:
        """Enqueue one job; return when the queue has acknowledged it."""
        raise NotImplementedError

    async def many(self, numbers: Sequence[int]) -> None:
        """Enqueue up to some thousand jobs in the fastest way."""
        for number in numbers:
            await self.one(number)

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        """Enqueue up to some thousand jobs that are due at the same time, ms UTC."""
        raise NotImplementedError


class Control:
    """Starts a worker together with those of other processes, and stops it at the end.

    If the worker registers no function to stop it, its process exits at once.

    Args:
        start: blocks until all workers are ready; each calls it once its queue is open.
    """

    def __init__(self, start: Callable[[], None]) -> None:
        self.start = start
        self.stop: Callable[[], object] | None = None

    def on_stop(self, stop: Callable[[], object]) -> None:
        """Register a function that is called from another thread; the worker must then return."""
        self.stop = stop


class Peer:
    """One queue on one store.

    Attributes:
        name: Name in the tables.
        store: `sqlite`, `postgres` or `redis`.
        version: Version of its package.
        setting: Description of its settings, which are the best ones found.
        bulk: Whether it takes many jobs in one call.
        bursts: Whether it takes jobs that are due later.
        slow: Whether it gets fewer jobs, to save time.
        least_redis: The first version of Redis that it supports.
        waits: Whether its handlers can wait for `seconds`.
        seconds: Seconds for which each handler waits.
        places: Number of handlers at once if they wait.
        locks: Number of lock keys; each job locks its number modulo this. 0 for no locks.
        keyed: Whether it can lock by key.
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
        """Create its schema in an empty store."""

    def producer(self, url: str) -> AbstractAsyncContextManager[Producer]:
        """Open the queue for enqueuing, in the running loop."""
        raise NotImplementedError

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        """Run a worker in this process and its main thread, until it is stopped or killed.

        It opens the queue, and calls `control.start()` before it takes the first job.
        """
        raise NotImplementedError
