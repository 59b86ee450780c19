"""The writer: one thread, one connection, and one commit for all calls that queued up."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from headway.contract.store import Clock
from headway.core.errors import OutcomeUnknown, StoreError, StoreFull
from headway.core.job import MAX_BATCH, NewJob
from headway.stores.ledger.calls import deliver
from headway.stores.ledger.verbs import enqueue
from headway.stores.sql.store import mark_if_changed
from headway.stores.sqlite.caches import FREE_CLOCK, READ, WAKES
from headway.stores.sqlite.call_queue import AnyCall, CallQueue
from headway.stores.sqlite.connection import connect
from headway.stores.sqlite.database import DriverError, explain, is_broken
from headway.stores.sqlite.disk import Checkpoints, DiskSpace, WriteLock
from headway.stores.sqlite.forking import close_before_forks
from headway.stores.sqlite.ledger import SqliteLedger
from headway.stores.sqlite.options import SqliteOptions
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.timing import CheckedClock, monotonic

GROUP_CALLS = 256
"""Most calls in one commit: this many urgent and as many normal ones, or this many bulk ones."""
GROUP_SECONDS = 0.015
"""A step ends after this time, so that other processes get the lock."""

Woken = dict[tuple[str | None, int | None], None]
Announce = Callable[[int, Woken], None]
"""Called after a commit with its number and the lanes to wake (None: all), each with the time from
which there may be work (None: now)."""


class Writer:
    """Serves calls that write.

    Args:
        clock: returns ms since 1970.
        announce: called after each commit that may have made something claimable.
    """

    def __init__(self, options: SqliteOptions, clock: Clock, announce: Announce) -> None:
        self._options = options
        self._clock = clock
        self._announce = announce
        self._disk_space = DiskSpace(options.path, options.reserve_bytes)
        self._inode = -1
        self._was_replaced = False
        self._done: list[AnyCall] = []
        self._woken: list[tuple[int, Woken]] = []
        self._last_session: Session | None = None
        self._ledger: SqliteLedger | None = None
        self.write_lock = WriteLock(options.path)
        try:
            self._ledger = self._open()
        except BaseException:
            self.write_lock.close()
            raise
        self.queue = CallQueue("headway-writer", self._serve, self._leave)
        self.turn = self.queue.turn
        close_before_forks(self)

    # The connection

    def _open(self) -> SqliteLedger:
        if self._ledger is not None and not self._was_replaced:
            return self._ledger
        self.disconnect()
        self._inode = os.stat(self._options.path).st_ino if self._options.path.exists() else -1
        db = connect(self._options)
        self._checkpoints = Checkpoints(db)
        try:
            free = db.execute(READ, (FREE_CLOCK,)).get
        except DriverError as error:
            raise explain(error, str(self._options.path), committing=False) from error
        clock = self._clock if free else CheckedClock(self._clock, self.write_lock.file)
        session = Session(db, clock)
        if self._last_session is not None:
            session.take_over(self._last_session)
        self._last_session = session
        self._was_replaced = False
        self._ledger = SqliteLedger(session)
        return self._ledger

    def disconnect(self) -> None:
        """Close the connection; the next step opens it again."""
        if self._ledger is not None:
            with suppress(DriverError):
                self._ledger.session.db.close()
            self._ledger = None

    def check_file(self) -> None:
        """Check whether the open file was replaced; if so, the next step opens the new one."""
        try:
            self._was_replaced = os.stat(self._options.path).st_ino != self._inode
        except OSError:
            self._was_replaced = True

    def _leave(self) -> None:
        self.disconnect()
        self.write_lock.close()

    # Groups

    def _serve(self, may_wait: bool) -> bool:
        """Serve a group of queued calls; see `CallQueue`."""
        group: list[AnyCall] = []
        left: list[AnyCall] = []
        try:
            if may_wait:
                self.write_lock.acquire()
            elif not self.write_lock.try_to_acquire():
                return False
            try:
                group = self.queue.take(GROUP_CALLS)
                left = self._run_group(group)
            finally:
                self.write_lock.release()
        except Exception as error:  # noqa: BLE001  (bugs go to the callers, not to the thread)
            # If the lock itself failed, no call has been taken yet.
            group = group or self.queue.take(1)
            self._refuse([call for call in group if call not in self._done], error)
        except BaseException:
            self._fail_interrupted(group)
            raise
        self._report(left)
        self._checkpoint_if_due()
        return True

    def _checkpoint_if_due(self) -> None:
        if self._ledger is None:
            return
        try:
            self._checkpoints.run_if_due()
        except DriverError:
            # The next step opens the file again, and reports the error to its callers.
            self.disconnect()

    def _fail_interrupted(self, group: list[AnyCall]) -> None:
        """Fail the calls of a group whose serving thread was interrupted."""
        message = "the thread that served this call was interrupted"
        unknown = OutcomeUnknown(message, hint="repeat the call")
        self._refuse([call for call in group if call not in self._done], unknown)
        self._report([])

    def _report(self, left: list[AnyCall]) -> None:
        done, self._done = self._done, []
        woken, self._woken = self._woken, []
        for number, lanes in woken:
            self._announce(number, lanes)
        deliver(done)
        if left:
            # Calls that did not fit into the step's time come first in the next step.
            self.queue.put_back(left)

    def _run_group(self, group: list[AnyCall]) -> list[AnyCall]:
        """Run a group in one step, or in several if a call fails; return the calls not started."""
        group = self._refuse_if_disk_is_full(group)
        if not group:
            return []
        try:
            return self._step(group, self._run_together)
        except StoreFull as error:
            if len(group) > 1:
                # Smaller ones may still fit on their own.
                for call in group:
                    self._run_group([call])
            else:
                self._refuse(group, error)
        except StoreError as error:
            self._refuse(group, error)
        except Exception as error:  # noqa: BLE001  (every error of a verb goes to its caller)
            if len(group) == 1:
                self._refuse(group, error)
            else:
                # At least one call failed, but the others must not.
                return self._run_separately(group)
        return []

    def _run_separately(self, group: list[AnyCall]) -> list[AnyCall]:
        """Run a group in one step in which each call can fail alone; return those not started."""
        try:
            return self._step(group, self._run_each_in_savepoint)
        except Exception as error:  # noqa: BLE001  (as above)
            self._refuse(group, error)
        return []

    def _refuse(self, group: list[AnyCall], error: BaseException) -> None:
        for call in group:
            call.error = error
        self._done += group

    def _refuse_if_disk_is_full(self, group: list[AnyCall]) -> list[AnyCall]:
        larger = [call for call in group if call.takes_room]
        shortage = self._disk_space.shortage() if larger else None
        if shortage is None:
            return group
        self._refuse(larger, shortage)
        return [call for call in group if not call.takes_room]

    # A step

    def _step(
        self, group: list[AnyCall], run: Callable[[SqliteLedger, list[AnyCall]], list[AnyCall]]
    ) -> list[AnyCall]:
        """Run calls in one step and commit it.

        Returns:
            The calls for which there was no time.

        Raises:
            StoreError: SQLite failed; nothing was written, unless the error is OutcomeUnknown.
            Exception: raised by a verb; nothing was written.
        """
        ledger = self._open()
        session = ledger.session
        committing = False
        try:
            session.begin(write=True)
            if session.watch.reason:
                session.fix_time()
                mark_if_changed(ledger)
            left = run(ledger, group)
            woken = _number_wakes(session) if session.wakes else None
            committing = True
            session.commit()
        except DriverError as error:
            self._give_up(session, broken=is_broken(error))
            raised = explain(error, str(self._options.path), committing=committing)
            raise raised from error
        except BaseException:
            self._give_up(session, broken=False)
            raise
        if left:
            waiting = set(map(id, left))
            group = [call for call in group if id(call) not in waiting]
        self._done += group
        if woken is not None:
            self._woken.append(woken)
        return left

    def _give_up(self, session: Session, *, broken: bool) -> None:
        try:
            session.rollback()
        except DriverError:
            broken = True
        if broken:
            self.disconnect()

    def _run_together(self, ledger: SqliteLedger, group: list[AnyCall]) -> list[AnyCall]:
        """Run calls together, and return those not started. A call that raises fails all."""
        session, end = ledger.session, monotonic() + GROUP_SECONDS
        merged = _insert_together(ledger, group) if len(group) > 1 else frozenset[int]()
        for place, call in enumerate(group):
            if place in merged:
                continue
            if place and monotonic() > end:
                rest = enumerate(group[place:], start=place)
                return [one for later, one in rest if later not in merged]
            session.fix_time()
            call.answer = call.verb(ledger)
        return []

    def _run_each_in_savepoint(self, ledger: SqliteLedger, group: list[AnyCall]) -> list[AnyCall]:
        """Run each call in its own savepoint, so that failures are independent.

        Returns:
            The calls for which there was no time.

        Raises:
            DriverError: SQLite failed, which ends the whole step.
        """
        session, end = ledger.session, monotonic() + GROUP_SECONDS
        for place, call in enumerate(group):
            if place and monotonic() > end:
                return group[place:]
            mark = session.begin_part()
            session.fix_time()
            try:
                call.answer = call.verb(ledger)
            except DriverError:
                raise
            except Exception as error:  # noqa: BLE001  (every error of a verb goes to its caller)
                session.undo_part(mark)
                call.error = error
            else:
                session.keep_part()
        return []


def _insert_together(ledger: SqliteLedger, group: list[AnyCall]) -> frozenset[int]:
    """Run enqueues of a group as one, as many as fit in a batch; return their indexes."""
    together: list[int] = []
    jobs: list[NewJob] = []
    for place, call in enumerate(group):
        if call.jobs is not None and len(jobs) + len(call.jobs) <= MAX_BATCH:
            together.append(place)
            jobs += call.jobs
    if len(together) < 2:
        return frozenset()
    ledger.session.fix_time()
    replies = enqueue(ledger, jobs)
    taken = 0
    for place in together:
        size = len(group[place].jobs or ())
        group[place].answer = replies[taken : taken + size]
        taken += size
    return frozenset(together)


def _number_wakes(session: Session) -> tuple[int, Woken]:
    woken: Woken = dict.fromkeys(session.wakes)
    session.wakes.clear()
    return session.numbers.add(WAKES, 1), woken
