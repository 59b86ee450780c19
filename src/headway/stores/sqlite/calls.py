"""Calls: what is asked of a thread of the store."""

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
    """One operation that is asked for.

    Attributes:
        verb: what to do within a step.
        jobs: of an enqueue, what it inserts, so that several can be done as one; else None.
        bulk: it may take long, and lets those behind it go first.
        urgent: it goes before all others that wait, as a beat does, on which leases depend.
        takes_room: it is refused while the device is nearly full.
        asked_at: by the monotonic clock.
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
        """Blocks a caller in its own thread until it is told."""
        if self.bell is not None:
            self.bell.acquire()


AnyCall = Call[Any]


def fail(calls: Iterable[AnyCall], error: BaseException) -> None:
    """Refuses calls that were not begun, each with the same error."""
    failed = list(calls)
    for call in failed:
        call.error = error
    deliver(failed)
