"""The SQLite store: the embedded default, for any number of processes on one machine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest
from headway.contract.extensions import Suspicion
from headway.contract.store import Clock, Sent
from headway.core.errors import StoreChanged, StoreUnavailable
from headway.core.job import NewJob
from headway.stores.ledger import verbs
from headway.stores.ledger.fingerprint import store_changed
from headway.stores.ledger.lane_claim import with_seen
from headway.stores.ledger.wakes import Wakes
from headway.stores.sql.store import SqlStore
from headway.stores.sqlite.call_queue import Call, CallQueue
from headway.stores.sqlite.connection import create
from headway.stores.sqlite.forking import no_fork
from headway.stores.sqlite.ledger import SqliteLedger
from headway.stores.sqlite.notifier import BackgroundThread, CommitWakes, Notifier, PollFallback
from headway.stores.sqlite.options import SqliteOptions
from headway.stores.sqlite.reader import ReadThread
from headway.stores.sqlite.timing import monotonic, system_clock
from headway.stores.sqlite.writer import Woken, Writer

Answer = TypeVar("Answer")
Given = ParamSpec("Given")


class SqliteStore(SqlStore):
    """All state in one file; several processes may open it at once. See `Store` for the promises.

    Args:
        clock: returns ms since 1970 (default: the machine's clock).

    Attributes:
        runs_inline: outside any event loop, every operation except `wait` does its work on the
            caller's thread, and ends without suspending.

    Raises:
        StoreUnavailable: the file cannot be created, opened or written.
        StoreCorrupt: it is not a database, or a damaged one; it was not changed.
        SchemaMismatch: it belongs to another program, or its schema is older or newer; it was not
            changed.

    An operation that writes raises ClockSkewed, and writes nothing, while the clock differs by more
    than ten seconds from that of the machine that has the file.
    """

    runs_inline = True
    _owner: int | None = None
    """The process that has opened the store and not yet closed it."""

    def __init__(self, options: SqliteOptions, clock: Clock | None = None) -> None:
        self._options = options
        now = clock or system_clock
        self._wakes = Wakes(now)
        self._last_wake = 0
        with no_fork:
            create(options, clock)
            self._notifier = Notifier(options.path)
            self._poll_fallback = PollFallback(options)
            self._reader = ReadThread(options, now)
            self._writer = Writer(options, now, _weak(self._announce))
        self._background = BackgroundThread(
            self._notifier,
            _weak(self._on_notification),
            _weak(self._check),
            self._poll_fallback.close,
        )
        self._owner = os.getpid()

    def __del__(self) -> None:
        """Warn that the store was not closed, and make its threads end without waiting for them."""
        if self._owner == os.getpid():
            self._writer.queue.end()
            self._reader.queue.end()
            self._background.end()
            message = f"unclosed store {self._options.path}"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    async def _ask(self, queue: CallQueue, call: Call[Answer]) -> Answer:
        if not self._background.started:
            self._background.start()
        if call.future is not None:
            queue.submit(call)
            return await call.future
        queue.serve_here(call)
        return call.result()

    async def _decide(
        self, verb: Callable[[SqliteLedger], Answer], *, adds: bool = False
    ) -> Answer:
        return await self._ask(self._writer.queue, Call(verb, takes_room=adds))

    async def _read(self, verb: Callable[[SqliteLedger], Answer]) -> Answer:
        return await self._ask(self._reader.queue, Call(verb))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        call = Call(lambda ledger: verbs.enqueue(ledger, jobs), jobs=jobs, takes_room=True)
        return await self._ask(self._writer.queue, call)

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """See `Store.claim`.

        Raises:
            StoreChanged: the file was replaced, or restored to an older state.
        """
        seen = self._wakes.count
        # The suspicion is returned and not raised, so that the step commits it.
        call = Call(lambda ledger: ledger.facts.suspicion() or verbs.claim(ledger, request))
        reply = await self._ask(self._writer.queue, call)
        if isinstance(reply, Suspicion):
            changed: StoreChanged = store_changed(reply)
            raise changed
        return with_seen(request, reply, seen)

    async def beat(self, request: BeatRequest) -> BeatReply:
        call = Call(lambda ledger: verbs.beat(ledger, request), urgent=True)
        return await self._ask(self._writer.queue, call)

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        if self._background.start_listening():
            # There may have been a commit before the socket was bound: the caller claims again.
            self._background.start()
            return
        await self._wakes.wait(lanes, until_at, seen)

    def _close(self) -> None:
        self._owner = None
        limit = self._options.patience_ms / 1000
        self._writer.queue.close(limit)
        self._reader.queue.close(limit)
        self._background.stop()

    # Called by the threads

    def _announce(self, number: int, lanes: Woken) -> None:
        self._last_wake = number
        self._wakes.wake(lanes)
        self._notifier.notify(number, lanes)

    def _on_notification(self, notification: CommitWakes) -> None:
        number, lanes = notification
        missed = number > self._last_wake + 1
        self._last_wake = max(self._last_wake, number)
        if missed:
            self._wakes.wake_all()
        else:
            self._wakes.wake(lanes)

    def _check(self) -> None:
        """Check once a second for missed notifications, a replaced file, and late calls."""
        self._writer.check_file()
        since = self._writer.write_lock.waiting_since
        patience = self._options.patience_ms / 1000
        if since is not None and monotonic() - since > patience:
            message = f"another process has held {self._options.path} for {patience:g} seconds"
            hint = "it may be suspended: find and stop it; nothing was written"
            late = StoreUnavailable(message, hint=hint)
            self._writer.queue.give_up(monotonic() - patience, late)
        if (
            self._notifier.listening
            and (number := self._poll_fallback.last_wake()) > self._last_wake
        ):
            self._last_wake = number
            self._wakes.wake_all()


def _weak(method: Callable[Given, None]) -> Callable[Given, None]:
    """Return a function that calls a method while its object is in use, and does not keep it so."""
    weak = WeakMethod(method)

    def call(*args: Given.args, **kwargs: Given.kwargs) -> None:
        if (bound := weak()) is not None:
            bound(*args, **kwargs)

    return call
