"""Handlers in separate processes, to contain crashes, leaks and long computations."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from threading import Lock
from typing import Any, TypeAlias, cast

from headway.contract.claims import Claimed
from headway.contract.outcomes import Closing, Outcome, Verdict
from headway.core.errors import HeadwayError, InvalidValue, InvariantBroken, PayloadTooLarge
from headway.core.job import NewJob
from headway.runtime.handler import Handler
from headway.runtime.handler_results import Dead, Next, Retry, Snooze, Unfit
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.records import encode
from headway.runtime.worker.outcomes import HandlerCrashed, describe

_Write = Callable[[Outcome], Verdict]


CHECK_EVERY = 1.0
"""Seconds between two checks that a silent process is still alive."""
END_S = 1.0
"""How long an idle process may take to end, before it is killed."""


class Processes:
    """A pool of processes, each of which runs one handler at a time and is then reused."""

    def __init__(self) -> None:
        # Spawned, because forking a process that has threads can deadlock the child.
        self._context = SpawnContext()
        self._lock = Lock()
        self._waiting: list[_Process] = []
        self._working: dict[tuple[str, int], _Process] = {}
        self._closed = False

    def run(
        self,
        job: Job,
        handler: Handler,
        write: _Write,
        note: Callable[[bytes], None],
        begin: Callable[[], object],
    ) -> HandlerDone:
        """Call a handler in a process, and wait until it returns.

        Args:
            write: writes an outcome for the handler, such as a hand-over.
            note: keeps the handler's progress.
            begin: called when the process has started and loaded the handler.

        Raises:
            HandlerCrashed: the process died before the handler returned.
        """
        process = self._take(job.claimed)
        try:
            if job.stop is not None:
                process.process.kill()
            request = RunRequest(
                module=handler.fn.__module__,
                name=handler.fn.__qualname__,
                stage=job.stage,
                claimed=job.claimed,
                signal_url=job.signal_url,
            )
            process.pipe.send(request)
            while not isinstance(message := process.receive(), HandlerDone):
                match message:
                    case VerdictRequest(outcome=outcome):
                        process.pipe.send(_answer(job, outcome, write))
                    case HandlerProgress(data=data):
                        note(data)
                    case logging.LogRecord():
                        _log(message)
                    case _:  # Begun
                        begin()
        except (EOFError, OSError):
            code = process.end()
            message = f"the process of the handler of {job.kind!r} ended with {code}"
            raise HandlerCrashed(message, died=True) from None
        finally:
            with self._lock:
                self._working.pop((job.id, job.run), None)
        with self._lock:
            if not self._closed:
                self._waiting.append(process)
                return message
        process.end()
        return message

    def kill(self, claimed: Claimed) -> None:
        """Kill the process that runs this job, if there is one; its handler fails."""
        with self._lock:
            process = self._working.get((claimed.id, claimed.run))
        if process is not None:
            process.process.kill()

    def close(self) -> None:
        """Kill the working processes, and end the idle ones."""
        with self._lock:
            self._closed = True
            resting, self._waiting = self._waiting, []
            working = list(self._working.values())
        for process in working:
            process.process.kill()
        # This blocks the event loop: all are asked to end before the first is waited for, and after
        # one that did not end in time, none is waited for.
        for process in resting:
            process.pipe.close()
        wait_s = END_S
        for process in resting:
            process.end(wait_s)
            if process.process.exitcode == -signal.SIGKILL:
                wait_s = 0.0

    def _take(self, claimed: Claimed) -> _Process:
        with self._lock:
            process = self._waiting.pop() if self._waiting else None
        if process is None or not process.process.is_alive():
            process = _Process(self._context)
        with self._lock:
            self._working[claimed.id, claimed.run] = process
        return process


def _log(record: logging.LogRecord) -> None:
    logger = logging.getLogger(record.name)
    try:
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    except Exception:  # noqa: BLE001  (a filter or handler of the program's logging may raise anything)
        traceback.print_exc()


def _answer(job: Job, outcome: Outcome, write: _Write) -> VerdictReply:
    try:
        verdict = write(outcome)
        job.settled_by(outcome, verdict)
    except HeadwayError as error:
        return VerdictReply(verdict=None, error=error)
    return VerdictReply(verdict=verdict)


class _Process:
    """One process and the pipe to it."""

    __slots__ = ("pipe", "process")

    def __init__(self, context: SpawnContext) -> None:
        ours, theirs = context.Pipe()
        self.pipe = cast("Pipe", ours)
        root = logging.getLogger()
        level = root.level if root.handlers else None
        self.process: BaseProcess = context.Process(
            target=serve, args=(theirs, level), daemon=True, name="headway-handler"
        )
        self.process.start()
        # Only the child may hold its end, so that its death closes the pipe.
        theirs.close()

    def receive(self) -> Any:  # noqa: ANN401  (whatever comes through a pipe)
        """Wait for the process's next message.

        Raises:
            EOFError: the process has died.
        """
        while not self.pipe.poll(CHECK_EVERY):
            # A process that it forked may live on and keep the pipe open.
            if not self.process.is_alive() and not self.pipe.poll():
                raise EOFError
        return self.pipe.recv()

    def end(self, wait_s: float = END_S) -> str:
        """End the process, and return how it exited, such as "exit code 1" or "signal 9".

        Args:
            wait_s: how long it may take before it is killed.
        """
        self.pipe.close()
        self.process.join(wait_s)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """Sent to the process: the job to run, and its handler, by its name in its module."""

    module: str
    name: str
    stage: str
    claimed: Claimed
    signal_url: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """Sent by the process: it has loaded the handler, and calls it now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictRequest:
    """Sent by the process: the handler writes an outcome and waits for its verdict."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictReply:
    """Sent to the process: the store's verdict, or why there is none."""

    verdict: Verdict | None
    error: Exception | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HandlerProgress:
    """Sent by the process: progress of the handler."""

    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class HandlerDone:
    """Sent by the process: the handler has ended.

    Attributes:
        answer: the Snooze, Next or Unfit that it returned.
        result: any other value that it returned, as JSON; None for None.
        raised: the Retry, Dead or HeadwayError that it returned or raised.
        error: any other error that it raised, as text to record.
        unusable: why its result cannot be stored.
    """

    answer: object = None
    result: bytes | None = None
    raised: Exception | None = None
    error: str = ""
    unusable: str = ""
    then: tuple[NewJob, ...] = ()
    close: tuple[Closing, ...] = ()


# Quoted, because the class is generic for type checkers only.
Pipe: TypeAlias = "Connection[Any, Any]"


class HandlerPipe:
    """The process's end of the pipe; messages may be sent from any of its threads."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._lock = Lock()
        self.recv = pipe.recv

    def send(self, message: object) -> None:
        """Send a message to the worker."""
        with self._lock:
            self._pipe.send(message)


class _WorkersLog(QueueHandler):
    """Sends log records to the worker, whose program has configured its logging."""

    def __init__(self, pipe: HandlerPipe) -> None:
        super().__init__(cast("Any", pipe))
        self._pipe = pipe
        self._pid = os.getpid()

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send a record, or print that of a process forked by the handler: it shares the pipe."""
        if os.getpid() == self._pid:
            # A class of the handler's own may be unknown to the worker.
            fields = {
                name: one if isinstance(one, str | int | float | None) else str(one)
                for name, one in vars(record).items()
            }
            self._pipe.send(logging.makeLogRecord(fields))
        elif logging.lastResort is not None:
            logging.lastResort.handle(record)


def serve(connection: Pipe, log_level: int | None) -> None:
    """Run the jobs that arrive through the pipe until it is closed; the process's main function.

    Args:
        log_level: minimum level of log records to send to the worker; None if its program has not
            configured logging.
    """
    # Ctrl-C reaches every process of the terminal, but only the worker handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = HandlerPipe(connection)
    root = logging.getLogger()
    # A program without a guard for its main module has configured logging here, too.
    if log_level is not None and not root.handlers:
        root.addHandler(_WorkersLog(pipe))
        root.setLevel(log_level)
    while True:
        try:
            done = _do(pipe.recv(), pipe)
            try:
                pipe.send(done)
            except (PicklingError, TypeError, AttributeError) as error:
                # An error that cannot be pickled is sent as its text.
                pipe.send(HandlerDone(error=describe(done.raised or error)))
        except (EOFError, OSError):
            return


class PipeContext:
    """The `HandlerContext` in a handler's process: it writes through the worker."""

    def __init__(self, pipe: HandlerPipe, signal_url: str | None) -> None:
        self._pipe = pipe
        self._signal_url = signal_url

    def signal_url(self, ref: str) -> str | None:  # noqa: ARG002  (one run is here)
        """Return the signal URL of the process's run, which the worker has signed."""
        return self._signal_url

    async def write(self, outcome: Outcome) -> Verdict:
        """Write an outcome, blocking the event loop: nothing else runs in this process."""
        return self.write_from_thread(outcome)

    def write_from_thread(self, outcome: Outcome) -> Verdict:
        """Write an outcome through the worker, and return the store's verdict.

        Raises:
            HeadwayError: the error that the worker got.
        """
        self._pipe.send(VerdictRequest(outcome=outcome))
        reply: VerdictReply = self._pipe.recv()
        if reply.verdict is None:
            raise reply.error or InvariantBroken("the worker did not answer")
        return reply.verdict

    def note_progress(self, job: str, run: int, data: bytes) -> None:  # noqa: ARG002  (one run is here)
        """Send progress to the worker, for its next beat."""
        self._pipe.send(HandlerProgress(data=data))


def _do(order: RunRequest, pipe: HandlerPipe) -> HandlerDone:
    job = Job(order.claimed, PipeContext(pipe, order.signal_url))
    try:
        handler = _find(order)
        pipe.send(Begun())
        answer = handler.call(job, order.claimed.args)
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
            answer = job.forgotten() or answer
        if isinstance(answer, Retry | Dead):
            done = _raised(answer)
        elif isinstance(answer, Snooze | Next | Unfit):
            done = HandlerDone(answer=answer)
        else:
            done = _returned(answer)
    except (Retry, Dead, HeadwayError) as error:
        done = _raised(error)
    except BaseException as error:  # noqa: BLE001  (whatever a handler raises is its failure)
        done = HandlerDone(error=describe(error))
    # After a hand-over its follow-up jobs are still created; gates close in any case.
    then, close = job.take_follow()
    return replace(done, then=then, close=close)


def _returned(answer: object) -> HandlerDone:
    try:
        return HandlerDone(result=None if answer is None else encode("result", answer))
    except (InvalidValue, PayloadTooLarge) as error:
        return HandlerDone(unusable=str(error))


def _raised(error: Exception) -> HandlerDone:
    """Return a report of an error that survives pickling.

    A user's exception class may not take the arguments with which pickle recreates it. Its text is
    sent instead, or for a Retry or Dead a plain one with the same values.
    """
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))  # type: ignore[misc]  # a static method
    except Exception:  # noqa: BLE001  (a user's class may raise anything here)
        if not isinstance(error, Retry | Dead):
            return HandlerDone(error=describe(error))
        plain = Retry() if isinstance(error, Retry) else Dead()
        plain.__dict__.update(
            {name: vars(error).get(name, own) for name, own in vars(plain).items()}
        )
        error = plain
    return HandlerDone(raised=error)


def _find(order: RunRequest) -> Handler:
    found: Any = importlib.import_module(order.module)
    for part in order.name.split("."):
        found = getattr(found, part)
    if isinstance(found, Kind):
        return found.handlers[order.stage]
    function: Callable[..., Any] = found
    return Handler(order.claimed.kind, function, processes=True, strict=False)
