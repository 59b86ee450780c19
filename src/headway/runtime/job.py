"""The job as its handler sees it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Protocol

from headway.contract.claims import Claimed
from headway.contract.outcomes import (
    Closing,
    GaveBack,
    HandedOver,
    KnownAs,
    Outcome,
    Verdict,
)
from headway.core.duration import Duration, parse_duration
from headway.core.errors import (
    HandlerCancelled,
    InvalidState,
    InvalidValue,
    LeaseLost,
)
from headway.core.instant import Instant
from headway.core.job import MAX_BATCH, NewJob, check_made
from headway.core.naming import check_name
from headway.runtime.handler_results import Dead, moment
from headway.runtime.records import encode, text_of

Stop = Literal["cancel", "lost", "stop", "timeout"]
"""Why a handler is asked to stop: its job is cancelled, its run is no longer live, its worker
stops, or its timeout has passed."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Asked = ParamSpec("Asked")
Written = Coroutine[Any, Any, None]
_HAND_OVERS = frozenset(("hand_over", "offer"))

_log = logging.getLogger("headway.worker")


def _awaited(
    verb: Callable[Concatenate[Job, Asked], Written],
) -> Callable[Concatenate[Job, Asked], Written]:
    """Decorate a method whose result must be awaited, to detect calls that are not.

    A call outside an event loop, where it would do nothing, is refused.
    """
    name = verb.__name__

    @wraps(verb)
    def call(job: Job, *args: Asked.args, **kwargs: Asked.kwargs) -> Written:
        _check_async(job, name)
        written = verb(job, *args, **kwargs)
        job.touched = True
        # Of several calls that are awaited together, the first represents all.
        if not _is_forgotten(job.called.get(name)):
            job.called = {**job.called, name: written}
        return written

    return call


def _check_async(job: Job, verb: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        message = f"the handler of {job.kind!r} is not async, and cannot await job.{verb}"
        raise InvalidState(message, hint=f"call job.sync.{verb}") from None


def _is_forgotten(written: Written | None) -> bool:
    return written is not None and inspect.getcoroutinestate(written) == inspect.CORO_CREATED


async def _noted() -> None:
    """Do nothing: the call that returned this coroutine has already done the work."""


class Job:
    """A run of a job, as its handler sees it.

    Attributes:
        stop: why the handler is asked to stop; None while it is not.
        handed: whether this run has handed over.
        touched: whether anything happened that its outcome must take into account.
        called: coroutines returned by its awaitable methods, by method name.
    """

    # Class attributes instead of slots: most jobs never change one, and each field that is not set
    # makes creating a job a tenth of a microsecond faster.
    stop: Stop | None = None
    handed: bool = False
    touched: bool = False
    _then: tuple[NewJob, ...] = ()
    _close: tuple[Closing, ...] = ()
    called: Mapping[str, Written] = {}

    def __init__(self, claimed: Claimed, context: HandlerContext) -> None:
        self.claimed = claimed
        self._context = context

    @property
    def id(self) -> str:
        """The job's id."""
        return self.claimed.id

    @property
    def run(self) -> int:
        """Number of this run; it increases with every claim."""
        return self.claimed.run

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1; a snooze or a returned job does not increase it."""
        return self.claimed.attempt

    @property
    def ref(self) -> str:
        """Reference of this run, `id:run`, by which a signal finds it."""
        return f"{self.claimed.id}:{self.claimed.run}"

    @property
    def kind(self) -> str:
        """The job's kind."""
        return self.claimed.kind

    @property
    def stage(self) -> str:
        """The stage of its kind; empty if the kind has no stages."""
        return self.claimed.stage

    @property
    def lane(self) -> str:
        """The lane it was claimed from."""
        return self.claimed.lane

    @property
    def tenant(self) -> str:
        """The tenant; empty if there is none."""
        return self.claimed.tenant

    @property
    def subject(self) -> str | None:
        """What the job is about."""
        return self.claimed.subject

    @property
    def priority(self) -> int:
        """The priority; lower numbers start first."""
        return self.claimed.priority

    @property
    def due_at(self) -> datetime:
        """When it was due, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.claimed.due_at)

    @property
    def permits(self) -> Mapping[str, str]:
        """The member it got in each pool, by the name of the pool."""
        return self.claimed.members

    @property
    def candidate(self) -> str:
        """In a cascade, the candidate whose turn it is; otherwise empty."""
        return self.claimed.candidate

    @property
    def cancelled(self) -> bool:
        """Whether the handler has been asked to stop; long handlers should check it."""
        return self.stop is not None

    @property
    def handing(self) -> bool:
        """Whether a hand-over was called, awaited or not."""
        return not _HAND_OVERS.isdisjoint(self.called)

    @property
    def signal_url(self) -> str | None:
        """URL that receives signals for this run; None if no server is configured."""
        return self._context.signal_url(self.ref)

    @property
    def sync(self) -> SyncJob:
        """The same job for handlers that cannot await."""
        return SyncJob(self, self._context)

    @_awaited
    async def hand_over(self, key: str | None = None, *, timeout: Duration = "30m") -> None:  # noqa: ASYNC109  (of the hand-over, not of this call)
        """Record, before any side effect, that a signal will report the end of the job.

        Once this has returned, no other run of the job starts for this attempt, whatever happens to
        the worker. What the handler then returns or raises is only recorded, except for Retry, Dead
        and Snooze.

        Args:
            key: key by which the signal will find the run; defaults to the run's reference.
            timeout: time until the deadline, as "30m" or a timedelta.

        Raises:
            LeaseLost: the run is no longer live, or the store took longer than the timeout to
                answer, so that it may not be; cause no side effect. The hand-over may have been
                written in the second case, or if an earlier reply was lost.
            HandlerCancelled: the job was cancelled; cause no side effect.
            KeyConflict: the key belongs to the live run of another job; nothing was written.
            InvalidState: the handler is not async; use `job.sync`.
        """
        outcome = self.handing_over(key, timeout)
        self.settled_by(outcome, await self._context.write(outcome))

    def forgotten(self) -> Dead | None:
        """Return Dead if the handler forgot to await one of the job's methods; otherwise None.

        It is not retried, because another attempt would do the work again and forget the same
        `await`. After a hand-over it is only logged, because the signal is still to come.
        """
        forgotten = [name for name, written in self.called.items() if _is_forgotten(written)]
        for name in forgotten:
            self.called[name].close()
        if not forgotten:
            return None
        verb = forgotten[0]
        what = "hand-over" if verb in _HAND_OVERS else verb
        message = f"the handler of {self.kind!r} ended without its {what}"
        error = InvalidState(message, hint=f"write `await` before job.{verb}")
        if self.handed:
            _log.error("job %s run=%d: %s", self.id, self.run, error)
            return None
        return Dead(f"{error.code}: {error}")

    @_awaited
    async def offer(self, *, timeout: Duration = "5m") -> None:  # noqa: ASYNC109  (of the offer, not of this call)
        """Offer the job to the candidate whose turn it is; a hand-over under the run's reference.

        Args:
            timeout: time until the next candidate's turn.

        Raises:
            LeaseLost: as for `hand_over`; do not contact the candidate.
            HandlerCancelled: the job was cancelled; do not contact the candidate.
        """
        await self.hand_over(timeout=timeout)

    @_awaited
    async def known_as(self, key: str) -> None:
        """Add a key, such as the provider's id, by which signals find this run.

        Raises:
            KeyConflict: the key belongs to the live run of another job; nothing was written.
            LeaseLost: the run is no longer live; nothing was written.
        """
        outcome = KnownAs(self.id, self.run, key=check_name("key", key))
        self.settled_by(outcome, await self._context.write(outcome))

    @_awaited
    async def give_back(self, gate: str) -> None:
        """Return the permits of one gate before the run ends.

        Args:
            gate: resolved name of the gate; for a pool member, the name of the pool.

        Raises:
            InvalidValue: this run did not pass such a gate; nothing was written.
            LeaseLost: the run is no longer live; nothing was written.
        """
        outcome = GaveBack(self.id, self.run, gate=check_name("gate", gate))
        self.settled_by(outcome, await self._context.write(outcome))

    def progress(self, value: object) -> Written:
        """Report progress; the latest value is sent with the next heartbeat of a live run.

        The call itself records the value, but its result must still be awaited.

        Args:
            value: any JSON value.

        Raises:
            PayloadTooLarge: it exceeds the size limit.
        """
        _check_async(self, "progress")
        self._context.note_progress(self.id, self.run, encode("progress", value))
        return _noted()

    def then(self, *jobs: NewJob) -> None:
        """Create jobs in the same step as this run's next settlement or hand-over.

        They are dropped if the run fails, is snoozed or returned: the next run creates them again.
        They are also dropped if the hand-over is refused because the job was cancelled.

        Args:
            jobs: created by a kind's `make`.

        Raises:
            InvalidValue: one of them is not a job, or there are too many for one step.
        """
        for job in jobs:
            check_made(job)
        if len(self._then) + len(jobs) > MAX_BATCH:
            message = f"{self.kind}: more than {MAX_BATCH} jobs passed to then()"
            raise InvalidValue(message, hint="let one of them create the others")
        self.follow(jobs, ())

    def close(
        self,
        gate: str,
        *,
        after: Duration | None = None,
        until: Instant | None = None,
        reason: str = "",
    ) -> None:
        """Close a gate for all jobs, in the same step as this run's next settlement.

        Args:
            gate: resolved name of the gate.
            after: for how long, as "60s" or a timedelta.
            until: until when, as an aware datetime or ISO 8601 with an offset.
            reason: free text.

        Raises:
            InvalidValue: it has no end time, or a value is not valid.
        """
        for_ms, until_at = moment("close", after=after, at=until)
        if for_ms is None and until_at is None:
            message = f"close() of the gate {gate!r} has no end time"
            raise InvalidValue(
                message, hint="pass `after` or `until`; only an operator can close it indefinitely"
            )
        closing = Closing(
            gate=check_name("gate", gate),
            for_ms=for_ms,
            until_at=until_at,
            reason=text_of(reason),
        )
        self.follow((), (closing,))

    def follow(self, then: tuple[NewJob, ...], close: tuple[Closing, ...]) -> None:
        """Add jobs to create and gates to close in the step of the next settlement."""
        self._then += then
        self._close += close
        self.touched = True

    def request_stop(self, why: Stop) -> None:
        """Record why the handler must stop; "lost" is never replaced."""
        if self.stop != "lost":
            self.stop = why
        self.touched = True

    def take_follow(self) -> tuple[tuple[NewJob, ...], tuple[Closing, ...]]:
        """Return and clear the jobs to create and the gates to close with the next settlement."""
        follow = self._then, self._close
        self._then, self._close = (), ()
        return follow

    def handing_over(self, key: str | None, timeout: Duration) -> HandedOver:
        """Build the hand-over, with the jobs to create and the gates to close in its step.

        Raises:
            InvalidValue: this run has already handed over, or a value is not valid.
        """
        if self.handed:
            message = f"run {self.ref} of kind {self.kind!r} has already handed over"
            raise InvalidValue(message, hint="add another key with known_as")
        timeout_ms = parse_duration(timeout)
        name = self.ref if key is None else check_name("key", key)
        return HandedOver(
            self.id, self.run, self._then, self._close, key=name, timeout_ms=timeout_ms
        )

    def settled_by(self, outcome: Outcome, verdict: Verdict) -> None:
        """Apply the verdict on an outcome that was written while the handler runs.

        Raises:
            LeaseLost: the run is no longer live.
            HandlerCancelled: the job was not handed over, because it was cancelled.
        """
        if verdict is Verdict.LOST:
            self.request_stop("lost")
            message = f"run {self.ref} of kind {self.kind!r} is no longer live"
            raise LeaseLost(message, hint="stop: another worker may have the job")
        if isinstance(outcome, HandedOver):
            # Only now: after a refused hand-over the next settlement gets them.
            self._then = self._then[len(outcome.then) :]
            self._close = self._close[len(outcome.close) :]
            self.touched = True
            self.handed = verdict is not Verdict.CANCELLED
            if verdict is Verdict.CANCELLED:
                self.request_stop("cancel")
                message = f"job {self.id} is cancelled"
                raise HandlerCancelled(message, hint="stop before any side effect")


class HandlerContext(Protocol):
    """What the jobs of one worker write through."""

    def signal_url(self, ref: str) -> str | None:
        """Return the URL that receives signals for a run; None if no server is configured."""
        ...

    async def write(self, outcome: Outcome) -> Verdict:
        """Write an outcome of a live run, and return the store's verdict."""
        ...

    def write_from_thread(self, outcome: Outcome) -> Verdict:
        """Write an outcome for a handler that runs in another thread or process."""
        ...

    def note_progress(self, job: str, run: int, data: bytes) -> None:
        """Keep the latest progress of a run for the next beat."""
        ...


class SyncJob:
    """The methods of a job for handlers in a thread or a process."""

    __slots__ = ("_context", "_job")

    def __init__(self, job: Job, context: HandlerContext) -> None:
        self._job = job
        self._context = context

    def hand_over(self, key: str | None = None, *, timeout: Duration = "30m") -> None:
        """Synchronous version of `Job.hand_over`."""
        self._write(self._job.handing_over(key, timeout))

    def offer(self, *, timeout: Duration = "5m") -> None:
        """Synchronous version of `Job.offer`."""
        self.hand_over(timeout=timeout)

    def known_as(self, key: str) -> None:
        """Synchronous version of `Job.known_as`."""
        self._write(KnownAs(self._job.id, self._job.run, key=check_name("key", key)))

    def give_back(self, gate: str) -> None:
        """Synchronous version of `Job.give_back`."""
        self._write(GaveBack(self._job.id, self._job.run, gate=check_name("gate", gate)))

    def progress(self, value: object) -> None:
        """Synchronous version of `Job.progress`."""
        job = self._job
        self._context.note_progress(job.id, job.run, encode("progress", value))

    def _write(self, outcome: Outcome) -> None:
        self._job.settled_by(outcome, self._context.write_from_thread(outcome))
