"""Calls: what is asked of a thread of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headway.contract.signals import Signal
from headway.core.job import NewJob
from headway.stores.ledger.calls import Answer, CallBase, running_loop
from headway.stores.postgres.done import Done


class Call(CallBase[Answer]):
    """One operation that is asked for.

    Args:
        work: does it, and says what it wrote.
        jobs: of an enqueue, what it inserts, so that several can be done as one; else None.
        signal: of a signal, what it applies, for the same reason; else None.
        own_thread: its caller waits in its own thread, though a loop may run there.

    Attributes:
        work: as given.
        jobs: as given.
        signal: as given.
    """

    __slots__ = ("jobs", "signal", "work")

    def __init__(
        self,
        work: Callable[[], tuple[Answer, Done]],
        jobs: Sequence[NewJob] | None = None,
        *,
        signal: Signal | None = None,
        own_thread: bool = False,
    ) -> None:
        super().__init__(None if own_thread else running_loop())
        self.work = work
        self.jobs = jobs
        self.signal = signal


AnyCall = Call[Any]
