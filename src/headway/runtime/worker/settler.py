"""The settler: writes outcomes of runs to the store in batches, one request at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from headway.contract.outcomes import (
    Failed,
    GaveBack,
    HandedOver,
    KnownAs,
    Outcome,
    SettleRequest,
    Succeeded,
    Verdict,
)
from headway.contract.store import Store
from headway.core.errors import (
    CallerError,
    Forbidden,
    InvalidValue,
    StoreUnavailable,
    UnknownGate,
)
from headway.core.job import MAX_BATCH
from headway.runtime.timing import Timing, persist
from headway.runtime.worker.lease import Held, Run
from headway.runtime.worker.outcomes import describe

STAYING = frozenset({HandedOver, KnownAs, GaveBack})
"""Outcomes after which the worker still holds the run, because its handler still runs."""

_STOPPED = "the worker has stopped"

_log = logging.getLogger("headway.worker")


class Settler:
    """Writes outcomes in the order in which they are put.

    Outcomes that arrive during a request go into the next one. So a slow store gets large batches,
    and a fast one gets each outcome at once.
    """

    def __init__(self, store: Store, worker: str, held: Held, timing: Timing) -> None:
        self.settled = 0
        self._store = store
        self._worker = worker
        self._held = held
        self._timing = timing
        self._queue: list[Outcome] = []
        self._writing = 0
        self._answers: dict[int, tuple[Run, asyncio.Future[Verdict]]] = {}
        self._wake = asyncio.Event()
        self._closed = False
        self._over = False
        self._hurry = False
        self._on_batch: Callable[[], None] = lambda: None

    @property
    def pending(self) -> int:
        """Outcomes that the store has not answered yet."""
        return len(self._queue) + self._writing

    def on_batch(self, call: Callable[[], None]) -> None:
        """Set the function that is called after each request."""
        self._on_batch = call

    def put(self, outcome: Outcome) -> None:
        """Queue an outcome whose verdict the caller does not need."""
        queue = self._queue
        if not queue:
            self._wake.set()
        queue.append(outcome)

    async def write(self, outcome: Outcome) -> Verdict:
        """Write an outcome after those already queued, and return its verdict.

        Raises:
            CallerError: the store refused it; nothing was written.
            Forbidden: the worker's token may not create a follow-up job or close a gate of it;
                nothing was written.
            StoreUnavailable: the worker has stopped; what was written is unknown.
        """
        if self._over:
            raise StoreUnavailable(_STOPPED)
        future = asyncio.get_running_loop().create_future()
        self._answers[id(outcome)] = ((outcome.job, outcome.run), future)
        self.put(outcome)
        return await future

    def asks(self, run: Run) -> bool:
        """Return whether the handler of this run waits for a verdict."""
        return any(asked == run for asked, _ in self._answers.values())

    async def run(self) -> None:
        """Write until closed and nothing is left."""
        try:
            while self._queue or not self._closed:
                if self._queue:
                    await self._write_some()
                else:
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self._over = True
            answers, self._answers = self._answers, {}
            for _, answer in answers.values():
                if not answer.done():
                    answer.set_exception(StoreUnavailable(_STOPPED))

    async def _write_some(self) -> None:
        batch = tuple(self._queue[:MAX_BATCH])
        del self._queue[:MAX_BATCH]
        self._writing = len(batch)
        try:
            verdicts = await self._deliver(batch)
        except asyncio.CancelledError:
            # Whether they were written is unknown; the store recognizes a repeat.
            self._queue[:0] = batch
            raise
        finally:
            self._writing = 0
        self._finish(batch, verdicts)
        self._on_batch()

    def close(self, *, hurry: bool = False) -> None:
        """Make `run` return once everything is written.

        Args:
            hurry: give up if the store is unreachable.
        """
        self._closed = True
        self._hurry = self._hurry or hurry
        self._wake.set()

    async def _deliver(self, batch: tuple[Outcome, ...]) -> list[Verdict]:
        request = SettleRequest(worker=self._worker, outcomes=batch)
        try:
            return await persist(
                self._timing,
                "settle",
                lambda: self._settle(request),
                until=lambda _: self._hurry,
            )
        except (CallerError, Forbidden) as error:
            if len(batch) > 1:
                # One of them is invalid, such as a follow-up job with an unknown gate.
                return [verdict for one in batch for verdict in await self._deliver((one,))]
            return await self._refused(request, error)

    async def _settle(self, request: SettleRequest) -> list[Verdict]:
        """Settle once; only this attempt is timed, because the store itself judges a repeat."""
        sent = self._timing.monotonic()
        verdicts = await self._store.settle(request)
        took_ms = 1000 * (self._timing.monotonic() - sent)
        return [_in_time(*one, took_ms) for one in zip(request.outcomes, verdicts, strict=True)]

    async def _refused(
        self, refused: SettleRequest, error: CallerError | Forbidden
    ) -> list[Verdict]:
        (outcome,) = refused.outcomes
        asked = self._answers.get(id(outcome))
        if asked is not None:
            _, answer = asked
            if not answer.done():
                answer.set_exception(error)
            return [Verdict.LOST]
        if outcome.close and isinstance(error, UnknownGate | InvalidValue):
            _log.warning("job %s: gates not closed: %s", outcome.job, error)
            return await self._deliver((replace(outcome, close=()),))
        _log.warning("job %s: outcome refused: %s", outcome.job, error)
        failed = Failed(outcome.job, outcome.run, error=describe(error))
        request = SettleRequest(worker=self._worker, outcomes=(failed,))
        return await persist(
            self._timing, "settle", lambda: self._store.settle(request), until=lambda _: self._hurry
        )

    def _finish(self, batch: tuple[Outcome, ...], verdicts: list[Verdict]) -> None:
        runs, answers = self._held.runs, self._answers
        for outcome, verdict in zip(batch, verdicts, strict=True):
            kind = type(outcome)
            if kind is Succeeded or kind not in STAYING:
                runs.pop((outcome.job, outcome.run), None)
                self.settled += 1
                if verdict is Verdict.LOST:
                    _log.warning(
                        "job %s: run %d was no longer live when it ended as %s",
                        outcome.job,
                        outcome.run,
                        kind.__name__,
                    )
            elif verdict is Verdict.CANCELLED:
                # The refused hand-over has ended the run; its handler is about to be notified.
                runs.pop((outcome.job, outcome.run), None)
            if answers:
                asked = answers.pop(id(outcome), None)
                if asked is not None and not asked[1].done():
                    asked[1].set_result(verdict)


def _in_time(outcome: Outcome, verdict: Verdict, took_ms: float) -> Verdict:
    """Return the verdict, or LOST for a hand-over whose deadline may have passed before the reply.

    The deadline counts from the store's write, which is not before the request was sent. After it,
    other jobs may have the run's permits, so its handler must not continue.
    """
    if type(outcome) is not HandedOver or verdict is Verdict.LOST:
        return verdict
    if took_ms < max(1, outcome.timeout_ms):
        return verdict
    _log.warning(
        "job %s: the answer to its hand-over came after %.0f ms; its timeout is %d ms",
        outcome.job,
        took_ms,
        outcome.timeout_ms,
    )
    return Verdict.LOST
