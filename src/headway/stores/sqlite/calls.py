"""Calls that a thread of the store serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headway.core.job import NewJob
from headway.stores.ledger.calls import Answer, CallBase, deliver, running_loop
from headway.stores.sqlite.ledger import SqliteLedger
from headway.stores.sqlite.timing import monotonic

BULK = 16
"""An enqueue of more jobs is bulk."""
BULK_BYTES = 65_536
"""An enqueue of more bytes of arguments is bulk, too."""


class Call(CallBase[Answer]):
    """One requested operation.

    Attributes:
        verb: runs within a step.
        jobs: of an enqueue, its jobs, so that several enqueues can be merged; else None.
        bulk: it may take long, so later calls may overtake it.
        urgent: it overtakes all others, as a beat must, on which leases depend.
        takes_room: it is refused while the device is nearly full.
        asked_at: when it was submitted, by the monotonic clock.
    """

    __slots__ = ("asked_at", "bulk", "jobs", "takes_room", "urgent", "verb")

    def __init__(
        self,
        verb: Callable[[SqliteLedger], Answer],
        *,
        jobs: Sequence[NewJob] | None = None,
        takes_room: bool = False,
        urgent: bool = False,
    ) -> None:
        super().__init__(running_loop())
        self.verb = verb
        self.jobs = jobs
        self.takes_room = takes_room
        self.urgent = urgent
        self.bulk = jobs is not None and (
            len(jobs) > BULK or sum(len(job.args) for job in jobs) > BULK_BYTES
        )
        self.asked_at = monotonic()

    def wait(self) -> None:
        """Block a caller in its own thread until its reply is there."""
        if self.done_lock is not None:
            self.done_lock.acquire()


AnyCall = Call[Any]


def fail(calls: Iterable[AnyCall], error: BaseException) -> None:
    """Refuse calls that were not begun, each with the same error."""
    failed = list(calls)
    for call in failed:
        call.error = error
    deliver(failed)
