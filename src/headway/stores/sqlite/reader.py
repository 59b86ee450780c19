"""The reader: serves queries from a snapshot, on its own thread and connection."""

from __future__ import annotations

import os
from contextlib import suppress

from headway.contract.store import Clock
from headway.stores.ledger.calls import deliver
from headway.stores.sqlite.call_queue import AnyCall, CallQueue
from headway.stores.sqlite.connection import connect
from headway.stores.sqlite.database import DriverError, explain, is_broken
from headway.stores.sqlite.forking import close_before_forks
from headway.stores.sqlite.ledger import SqliteLedger
from headway.stores.sqlite.options import SqliteOptions
from headway.stores.sqlite.session import Session


class ReadThread:
    """Serves calls that only read, so that a long listing does not delay claims.

    Args:
        clock: returns ms since 1970.
    """

    def __init__(self, options: SqliteOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._ledger: SqliteLedger | None = None
        self._inode = 0
        self.queue = CallQueue("headway-reader", self._serve, self.disconnect)
        self.turn = self.queue.turn
        close_before_forks(self)

    def _serve(self, _may_wait: bool) -> bool:
        for call in self.queue.take(1):
            self._answer(call)
        return True

    def _answer(self, call: AnyCall) -> None:
        try:
            call.answer = self._read(call)
        except BaseException as error:  # noqa: BLE001  (every error goes to the caller)
            call.error = error
        deliver([call])

    def _read(self, call: AnyCall) -> object:
        try:
            if self._ledger is not None and self._inode != self._inode_now():
                # The file was replaced, so the open one is no longer the store.
                self.disconnect()
            if self._ledger is None:
                self._inode = self._inode_now()
                self._ledger = SqliteLedger(Session(connect(self._options), self._clock))
            session = self._ledger.session
            try:
                session.begin(write=False)
                session.fix_time()
                answer = call.verb(self._ledger)
            except BaseException:
                session.rollback()
                raise
            session.end_reading()
        except DriverError as error:
            if is_broken(error):
                self.disconnect()
            raise explain(error, str(self._options.path), committing=False) from error
        return answer

    def _inode_now(self) -> int:
        try:
            return os.stat(self._options.path).st_ino
        except OSError:
            return 0

    def disconnect(self) -> None:
        """Close the connection; the next query opens it again."""
        if self._ledger is not None:
            with suppress(DriverError):
                self._ledger.session.db.close()
            self._ledger = None
