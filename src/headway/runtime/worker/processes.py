"""Handlers in processes: a crash, a leak or a long computation stays there."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from threading import Lock
from typing import cast

from headway.contract.claims import Claimed
from headway.contract.outcomes import Outcome, Verdict
from headway.core.errors import HeadwayError
from headway.runtime.handler import Handler
from headway.runtime.job import Job
from headway.runtime.worker.child import Pipe, serve
from headway.runtime.worker.crash import HandlerCrashed
from headway.runtime.worker.messages import Ask, Done, Order, Progress, Told

Write = Callable[[Outcome], Verdict]


class Processes:
    """Processes for handlers, each for one at a time; they are kept for the next ones."""

    def __init__(self) -> None:
        # A fresh interpreter: forking one that has threads may lock it up for good.
        self._context = SpawnContext()
        self._lock = Lock()
        self._resting: list[_Process] = []
        self._working: dict[tuple[str, int], _Process] = {}
        self._closed = False

    def run(self, job: Job, handler: Handler, write: Write, note: Callable[[bytes], None]) -> Done:
        """Calls a handler in a process, and waits for its end.

        Args:
            job: the run.
            handler: of its stage.
            write: writes an outcome for the handler while it runs.
            note: keeps progress.

        Returns:
            How it ended.

        Raises:
            HandlerCrashed: the process ended before the handler did.
        """
        process = self._take(job.claimed)
        try:
            if job.stop is not None:
                process.process.kill()
            done = self._talk(process, job, handler, write, note)
        except (EOFError, OSError):
            code = process.end()
            message = f"the process of the handler of {job.kind!r} ended with {code}"
            raise HandlerCrashed(message, died=True) from None
        finally:
            with self._lock:
                self._working.pop((job.id, job.run), None)
        with self._lock:
            if not self._closed:
                self._resting.append(process)
                return done
        process.end()
        return done

    def kill(self, claimed: Claimed) -> None:
        """Ends the process that runs this; its handler fails."""
        with self._lock:
            process = self._working.get((claimed.id, claimed.run))
        if process is not None:
            process.process.kill()

    def close(self) -> None:
        """Ends all processes."""
        with self._lock:
            self._closed = True
            resting, self._resting = self._resting, []
            working = list(self._working.values())
        for process in working:
            process.process.kill()
        for process in resting:
            process.end()

    def _take(self, claimed: Claimed) -> _Process:
        with self._lock:
            process = self._resting.pop() if self._resting else None
        if process is None or not process.process.is_alive():
            process = _Process(self._context)
        with self._lock:
            self._working[claimed.id, claimed.run] = process
        return process

    def _talk(
        self,
        process: _Process,
        job: Job,
        handler: Handler,
        write: Write,
        note: Callable[[bytes], None],
    ) -> Done:
        pipe = process.pipe
        pipe.send(
            Order(
                module=handler.fn.__module__,
                name=handler.fn.__qualname__,
                stage=job.stage,
                claimed=job.claimed,
                signal_url=job.signal_url,
            )
        )
        while True:
            message = pipe.recv()
            match message:
                case Ask(outcome=outcome):
                    pipe.send(_answer(job, outcome, write))
                case Progress(data=data):
                    note(data)
                case _:
                    return message


def _answer(job: Job, outcome: Outcome, write: Write) -> Told:
    try:
        verdict = write(outcome)
        job.settled_by(outcome, verdict)
    except HeadwayError as error:
        return Told(verdict=None, error=error)
    return Told(verdict=verdict)


class _Process:
    """One process and the pipe to it."""

    __slots__ = ("pipe", "process")

    def __init__(self, context: SpawnContext) -> None:
        ours, theirs = context.Pipe()
        self.pipe = cast("Pipe", ours)
        self.process: BaseProcess = context.Process(
            target=serve, args=(theirs,), daemon=True, name="headway-handler"
        )
        self.process.start()
        # Only the child may hold its end: its death must close the pipe.
        theirs.close()

    def end(self) -> str:
        """Ends the process.

        Returns:
            Its exit code, in words.
        """
        self.pipe.close()
        self.process.join(1)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
