"""Calls: what is asked of a thread of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headway.core.errors import OutcomeUnknown
from headway.core.job import NewJob
from headway.stores.ledger.calls import Answer, CallBase, running_loop
from headway.stores.postgres.done import Done

Together = Callable[[Sequence[Any]], tuple[Sequence[Any], Done]]
"""Does what several callers ask for in one step: their answers in order, and what it has done."""
TOGETHER = 256
"""Calls of one step at most: its turn stays short, so that others do not wait long."""


class Call(CallBase[Answer]):
    """One operation that is asked for.

    Args:
        work: does it, and says what it wrote.
        jobs: of an enqueue, what it inserts, so that several can be done as one; else None.
        item: of a call that can share a step with others of its kind, what is asked for.
        together: does what several such calls ask for in one step; None for one by itself.
        own_thread: its caller waits in its own thread, though a loop may run there.
    """

    __slots__ = ("item", "jobs", "together", "work")

    def __init__(
        self,
        work: Callable[[], tuple[Answer, Done]],
        jobs: Sequence[NewJob] | None = None,
        *,
        item: object = None,
        together: Together | None = None,
        own_thread: bool = False,
    ) -> None:
        super().__init__(None if own_thread else running_loop())
        self.work = work
        self.jobs = jobs
        self.item = item
        self.together = together


AnyCall = Call[Any]


def share(first: AnyCall, other: AnyCall) -> bool:
    """Return whether two calls may be served in one step."""
    return first.together is not None and first.together == other.together


def serve(calls: Sequence[AnyCall], done: Callable[[Done], None]) -> None:
    """Serve calls that share a step; where one of them is refused it fails alone.

    Then each half is tried by itself, down to the one that is at fault: a bad call among many
    costs the others a few steps more, and nothing else.

    Args:
        calls: at least one; each is given its answer or its error.
        done: is told what each step has done.
    """
    first = calls[0]
    if len(calls) == 1 or first.together is None:
        for call in calls:
            _serve_alone(call, done)
        return
    try:
        answers, wrote = first.together([call.item for call in calls])
    except OutcomeUnknown as error:
        for call in calls:
            call.error = error
    except Exception:  # noqa: BLE001  (one of them was refused; nothing was written)
        middle = len(calls) // 2
        serve(calls[:middle], done)
        serve(calls[middle:], done)
    else:
        for call, answer in zip(calls, answers, strict=True):
            call.answer = answer
        done(wrote)


def _serve_alone(call: AnyCall, done: Callable[[Done], None]) -> None:
    try:
        call.answer, wrote = call.work()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the caller's)
        call.error = error
    else:
        done(wrote)
