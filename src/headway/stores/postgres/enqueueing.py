"""Enqueues: in one trip, on assumptions that the server checks; with reads if they fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from threading import Semaphore

from headway.contract.store import Sent
from headway.core.errors import CallerError, OutcomeUnknown, StoreUnavailable
from headway.core.job import MAX_BATCH, NewJob
from headway.stores.ledger.gate_cache import GateCache, ensure_hours
from headway.stores.ledger.verbs import enqueue
from headway.stores.postgres.call_queue import AnyCall, serve_alone
from headway.stores.postgres.connection import Connection
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.link import CallerLink
from headway.stores.postgres.shared import Done, Woken
from headway.stores.postgres.statement import Mode, NeedsMore
from headway.stores.postgres.steps import Part, Steps

Replies = list[Sent]

PATIENT = 2
"""Maximum number of enqueues that wait for other transactions, each on its own connection."""


class Enqueues:
    """The enqueues of a process.

    Args:
        steps: on the connection that inserts.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._waiting_connections = Semaphore(PATIENT)

    def enqueue(
        self, jobs: Sequence[NewJob], sent: Callable[[], None] | None = None
    ) -> tuple[Replies, Done]:
        """See `Store.enqueue`, and `SendsAhead` about `sent`.

        Raises:
            CallerError: see `Store.enqueue`; nothing was written.
        """

        def verb(ledger: PostgresLedger) -> Replies:
            replies = enqueue(ledger, jobs)
            if sent is not None:
                # All but the last rows are on their way, and the server is slower than this thread.
                sent()
            return replies

        keys = [(job.tenant, job.key) for job in jobs if job.key is not None]
        # A job whose key an earlier one of the batch takes is not inserted, so no index finds that
        # its id exists.
        reads = len(set(keys)) < len(keys)
        for mode in (Mode.INSERT,) if reads else (Mode.BLIND, Mode.INSERT):
            try:
                return self._steps.run_part(mode, Part(verb))
            except NeedsMore:
                continue
            except CallerError:
                # The assumptions may be wrong, not the call.
                if mode is not Mode.BLIND:
                    raise
        return self._steps.run(Mode.EXCLUSIVE, verb)

    def enqueue_waiting(self, jobs: Sequence[NewJob]) -> tuple[Replies, Done]:
        """Enqueue while an open transaction has inserted the same key or id.

        It runs on its own connection, so that no other call waits for it.

        Raises:
            CallerError: as for `enqueue`; nothing was written.
            StoreUnavailable: the other transaction did not end in time.
        """
        with self._waiting_connections:
            own_steps = Steps(self._steps.shared, {}, self._steps.make_notice)
            own_steps.session.waits_for_keys = True
            try:
                return own_steps.run(Mode.INSERT, lambda ledger: enqueue(ledger, jobs))
            except NeedsMore:
                own_steps.session.waits_for_keys = False
                return own_steps.run(Mode.EXCLUSIVE, lambda ledger: enqueue(ledger, jobs))
            finally:
                own_steps.close()

    def serve(self, calls: list[AnyCall], done: Callable[[Done], None]) -> None:
        """Serve calls, merging as many enqueues as fit in a batch.

        Args:
            calls: enqueues, or other work for this connection.
            done: called with what each step has done.
        """
        together: list[AnyCall] = []
        jobs: list[NewJob] = []
        for call in calls:
            if call.jobs is None or len(jobs) + len(call.jobs) > MAX_BATCH:
                self._serve_together(together, jobs, done)
                together, jobs = [], []
            if call.jobs is None:
                serve_alone(call, done)
            else:
                together.append(call)
                jobs += call.jobs
        self._serve_together(together, jobs, done)

    def _serve_together(
        self, calls: list[AnyCall], jobs: list[NewJob], done: Callable[[Done], None]
    ) -> None:
        unknown: OutcomeUnknown | None = None
        if len(calls) > 1:
            try:
                replies, wrote = self.enqueue(jobs)
            except StoreUnavailable as error:
                for call in calls:
                    call.error = error
                return
            except OutcomeUnknown as error:
                unknown = error
            except Exception:  # noqa: BLE001  (one call was refused: each gets its own step)
                unknown = None
            else:
                done(wrote)
                _share_out(replies, calls)
                return
        for place, call in enumerate(calls):
            serve_alone(call, done)
            if unknown is not None and isinstance(call.error, StoreUnavailable):
                # Nothing was written now, but all of them may have been before.
                for one in calls[place:]:
                    one.error = unknown
                return

    # Within a transaction of the caller

    def insert_for_caller(
        self, connection: Connection, jobs: Sequence[NewJob]
    ) -> tuple[Replies, Woken]:
        """Insert in a savepoint of the transaction that is open on a connection.

        Returns:
            The replies, and the lanes to wake after the commit.

        Raises:
            NeedsMore: `prepare` must create hours first; nothing was written.
        """
        shared = self._steps.shared
        link = CallerLink(connection, shared.options.namespace)
        steps = Steps(shared, {}, opener=lambda: link)
        replies, done = steps.run(Mode.CALLER, lambda ledger: enqueue(ledger, jobs))
        return replies, done.woken

    def prepare(self, jobs: Sequence[NewJob]) -> tuple[None, Done]:
        """Write what jobs need outside the caller's transaction: the hours of their gates."""

        def verb(ledger: PostgresLedger) -> None:
            cache = GateCache(ledger)
            for uses in dict.fromkeys(job.gates for job in jobs):
                for use in uses:
                    if use.zone is not None and cache.spec(use.template) is not None:
                        ensure_hours(cache, use)
            cache.save()

        return self._steps.run(Mode.EXCLUSIVE, verb)

    def read_identity(self) -> tuple[None, Done]:
        """Read the store's identity."""
        return self._steps.run(Mode.READ, lambda _: None)


def _share_out(replies: Replies, calls: Sequence[AnyCall]) -> None:
    """Give each call the replies to its own jobs."""
    left = iter(replies)
    for call in calls:
        call.answer = list(islice(left, len(call.jobs or ())))
