"""The other side of a process: runs one handler after another, as the worker orders."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pickle import PicklingError
from typing import Any, TypeAlias

from headway.contract.outcomes import Outcome, Verdict
from headway.core.errors import HeadwayError, InvariantBroken
from headway.runtime.answers import Dead, Next, Retry, Snooze, Unfit
from headway.runtime.encoding import encode
from headway.runtime.handler import Handler
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.worker.endings import describe
from headway.runtime.worker.messages import Ask, Done, Order, Progress, Told

# In quotes: only type checkers know that it is generic.
Pipe: TypeAlias = "Connection[Any, Any]"


def serve(pipe: Pipe) -> None:
    """Does what comes through the pipe until it is closed.

    Args:
        pipe: orders come in, and what handlers say goes out.
    """
    # Ctrl-C reaches the whole terminal; the worker alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            done = _do(pipe.recv(), pipe)
            try:
                pipe.send(done)
            except (PicklingError, TypeError, AttributeError) as error:
                # An error that cannot travel is told by its text.
                pipe.send(Done(error=describe(done.raised or error)))
        except (EOFError, OSError):
            return


class PipeDesk:
    """Writes by asking the worker."""

    def __init__(self, pipe: Pipe, signal_url: str | None) -> None:
        self._pipe = pipe
        self._signal_url = signal_url

    def signal_url(self, ref: str) -> str | None:  # noqa: ARG002  (one run is here)
        """Where the outside world signals this run; the worker keeps the key that signed it."""
        return self._signal_url

    async def write(self, outcome: Outcome) -> Verdict:
        """Asks the worker to write, and waits; nothing else runs in this process."""
        return self.write_from_thread(outcome)

    def write_from_thread(self, outcome: Outcome) -> Verdict:
        """Asks the worker to write, and waits.

        Raises:
            HeadwayError: what the worker met when it wrote.
        """
        self._pipe.send(Ask(outcome=outcome))
        told: Told = self._pipe.recv()
        if told.verdict is None:
            raise told.error or InvariantBroken("the worker gave no answer")
        return told.verdict

    def note_progress(self, job: str, run: int, data: bytes) -> None:  # noqa: ARG002  (one run is here)
        """Hands progress to the worker, for its next beat."""
        self._pipe.send(Progress(data=data))


def _do(order: Order, pipe: Pipe) -> Done:
    job = Job(order.claimed, PipeDesk(pipe, order.signal_url))
    try:
        answer = _find(order).call(job, order.claimed.args)
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
        then, close = job.take_follow()
        if isinstance(answer, Retry | Dead):
            return Done(raised=answer, then=then, close=close)
        if isinstance(answer, Snooze | Next | Unfit):
            return Done(answer=answer, then=then, close=close)
        result = None if answer is None else encode("result", answer)
        return Done(result=result, then=then, close=close)
    except (Retry, Dead, HeadwayError) as error:
        then, close = job.take_follow()
        return Done(raised=error, then=then, close=close)
    except BaseException as error:  # noqa: BLE001  (whatever a handler raises is its failure)
        return Done(error=describe(error))


def _find(order: Order) -> Handler:
    found: Any = importlib.import_module(order.module)
    for part in order.name.split("."):
        found = getattr(found, part)
    if isinstance(found, Kind):
        return found.handlers[order.stage]
    function: Callable[..., Any] = found
    return Handler(order.claimed.kind, function, processes=True, strict=False)
