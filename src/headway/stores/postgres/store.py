"""The PostgreSQL store, for any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.extensions import Suspicion
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import Clock, Sent
from headway.core.errors import (
    OutcomeUnknown,
    StoreChanged,
    StoreUnavailable,
)
from headway.core.job import TRAIL_KEPT_MS, NewJob
from headway.stores.ledger.calls import running_loop
from headway.stores.ledger.fingerprint import store_changed
from headway.stores.ledger.lane_claim import with_seen
from headway.stores.ledger.rows import ClosedPeriod
from headway.stores.ledger.verbs.signal import check_signal
from headway.stores.postgres.call_queue import TOGETHER, AnyCall, Call, CallQueue, serve, share
from headway.stores.postgres.caller_transactions import Inserting
from headway.stores.postgres.connection import Connection, plain_connection
from headway.stores.postgres.enqueueing import Enqueues, Woken
from headway.stores.postgres.failures import explain
from headway.stores.postgres.link import open_link
from headway.stores.postgres.operations import (
    Beats,
    ClaimsAndSweeps,
    Operation,
    Settles,
    Turns,
    joins_turn,
    run_beat,
)
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.plain_claims import PlainClaims
from headway.stores.postgres.registry import Registry
from headway.stores.postgres.schema import ensure_schema
from headway.stores.postgres.shared import Done, Shared
from headway.stores.postgres.statement import KeyHeld, Mode, NeedsMore
from headway.stores.postgres.steps import LedgerVerb, Steps
from headway.stores.postgres.timing import StoreTime, monotonic
from headway.stores.postgres.wakes import NotifyingWakes
from headway.stores.sql.store import SqlStore

Answer = TypeVar("Answer")


class PostgresStore(SqlStore):
    """A store in one schema of a database. See `Store` for the promises.

    Six connections: for inserts, exclusive steps, claims from plain lanes, settlements, beats, and
    reads.

    Args:
        clock: returns ms since 1970; None for the server's.

    Attributes:
        runs_inline: True: an operation that is driven outside any event loop runs on the caller's
            thread and completes without suspending, except `wait`.

    Raises:
        StoreUnavailable: the server is unreachable or refuses.
        SchemaMismatch: the schema belongs to something else, or is older or newer; it was not
            changed.
    """

    runs_inline = True

    def __init__(self, options: PostgresOptions, clock: Clock | None = None) -> None:
        self._options = options
        prepare(options)
        time = StoreTime(clock)
        self._wakes = NotifyingWakes(options, time.about)
        self._registry = Registry(
            lambda: open_link(options),
            lambda error: explain(error, options),
        )
        self._shared = shared = Shared(options, self._registry, time)
        periods: dict[int, ClosedPeriod] = {}
        inserts, turns, claims, shares, beats = (
            Steps(shared, periods, self._wakes.make_notice) for _ in range(5)
        )
        self._reads = Steps(shared, periods)
        self._turns = turns
        self._plain = PlainClaims(claims, periods)
        self._claims = ClaimsAndSweeps(turns, self._plain)
        self._settles = Settles(shares)
        self._turns_together = Turns(turns, self._claims, self._settles).run
        self._beats = Beats(beats)
        self._enqueues = Enqueues(inserts)
        self._inserting = Inserting(options, self._insert_for_caller, self._wakes.announce)
        queue = partial(CallQueue, patience=options.patience_ms / 1000)
        self._insert_queue = queue("headway-insert", 256, self._insert, inserts.close)
        self._turn_queue = queue("headway-turn", TOGETHER, self._work, turns.close, joins_turn)
        self._claim_queue = queue("headway-claim", 1, self._work, claims.close)
        self._beat_queue = queue("headway-beat", 1, self._work, beats.close)
        self._share_queue = queue("headway-settle", TOGETHER, self._work, shares.close, share)
        self._read_queue = queue("headway-read", 1, self._work, self._reads.close)

    # Producing

    async def enqueue(
        self, jobs: Sequence[NewJob], sent: Callable[[], None] | None = None
    ) -> list[Sent]:
        call = Call(lambda: self._enqueues.enqueue(jobs, sent), jobs)
        try:
            return await _ask(self._insert_queue, call)
        except KeyHeld:
            if running_loop() is None:
                return self._enqueue_waiting(jobs)
            return await asyncio.to_thread(self._enqueue_waiting, jobs)

    enqueue_ahead = enqueue  # see `SendsAhead`

    def _enqueue_waiting(self, jobs: Sequence[NewJob]) -> list[Sent]:
        replies, done = self._enqueues.enqueue_waiting(jobs)
        # In the same thread: the jobs are written even if the caller was cancelled while it waited.
        self._notify(done)
        return replies

    def enqueue_within(self, connection: object, jobs: Sequence[NewJob]) -> list[Sent]:
        return self._inserting.enqueue(connection, jobs)

    async def enqueue_within_async(self, connection: object, jobs: Sequence[NewJob]) -> list[Sent]:
        return await self._inserting.enqueue_async(connection, jobs)

    def wake(self, lanes: Sequence[str]) -> None:
        self._wakes.announce([(lane, None) for lane in lanes] or [(None, None)])

    # Working

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """See `Store.claim`.

        Raises:
            StoreChanged: the store was replaced, or restored to an older state.
            StoreUnavailable: nothing was written.
            OutcomeUnknown: repeat the claim; it finds what it may have started.
        """
        seen = self._wakes.count
        reply = with_seen(request, await self._claim(request), seen)
        self._wakes.follow(request, reply)
        return reply

    async def _claim(self, request: ClaimRequest) -> ClaimReply:
        unknown: OutcomeUnknown | None = None
        if self._plain.may_claim(request):
            try:
                plain = await _ask(self._claim_queue, Call(lambda: self._plain.claim(request)))
            except OutcomeUnknown as error:
                # The same claim in an exclusive step finds whatever this one started.
                unknown = error
            else:
                if plain is not None:
                    return plain
        try:
            reply = await self._take_turn(request)
        except StoreUnavailable as error:
            if unknown is not None:
                raise unknown from error
            raise
        if isinstance(reply, Suspicion):
            changed: StoreChanged = store_changed(reply)
            raise changed
        return reply

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        if not self._settles.beside(request):
            return await self._take_turn(request)
        call: Call[list[Verdict]] = Call(item=request, together=self._settles.settle)
        return await _ask(self._share_queue, call)

    async def beat(self, request: BeatRequest) -> BeatReply:
        reply = await _ask(self._beat_queue, Call(lambda: self._beats.beat(request)))
        if reply is not None:
            return reply
        # A beat that changes jobs needs an exclusive step; it goes before all other calls of this
        # process.
        turn = Call(lambda: run_beat(self._turns, Mode.EXCLUSIVE, request))
        return await _ask(self._turn_queue, turn, urgent=True)

    async def signal(self, signal: Signal) -> SignalReply:
        # Its keys are read before the verb runs, which would check them.
        check_signal(signal)
        return await self._take_turn(signal)

    # Time and chores

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        return await _ask(self._turn_queue, Call(lambda: self._claims.sweep(n, keep_trail_ms)))

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        await self._wakes.wait(lanes, until_at, seen)

    def _close(self) -> None:
        # One limit for all: with a server that does not reply, each of them could use it up.
        until = monotonic() + self._options.patience_ms / 1000
        writing = (self._insert_queue, self._beat_queue, self._turn_queue)
        others = (self._claim_queue, self._share_queue, self._read_queue)
        for part in (*writing, *others, self._wakes, self._registry):
            part.close(max(0.0, until - monotonic()))

    # On the queues' threads

    async def _decide(self, verb: LedgerVerb[Answer], *, adds: bool = False) -> Answer:  # noqa: ARG002  (the server itself refuses writes when full)
        call = Call(lambda: self._turns.run(Mode.EXCLUSIVE, verb))
        return await _ask(self._turn_queue, call)

    async def _read(self, verb: LedgerVerb[Answer]) -> Answer:
        call = Call(lambda: self._reads.run(Mode.READ, verb))
        return await _ask(self._read_queue, call)

    async def _take_turn(self, item: Operation) -> Any:  # noqa: ANN401  (depends on the item)
        call: AnyCall = Call(item=item, together=self._turns_together)
        return await _ask(self._turn_queue, call)

    def _work(self, calls: list[AnyCall]) -> None:
        serve(calls, self._notify)

    def _insert(self, calls: list[AnyCall]) -> None:
        self._enqueues.serve(calls, self._notify)

    def _notify(self, done: Done) -> None:
        if done.woken:
            self._wakes.announce(done.woken, notified=done.notified)

    def _insert_for_caller(
        self, connection: Connection, jobs: Sequence[NewJob]
    ) -> tuple[list[Sent], Woken]:
        if not self._shared.identity:
            self._ask_inserts(self._enqueues.read_identity)
        try:
            return self._enqueues.insert_for_caller(connection, jobs)
        except NeedsMore:
            self._ask_inserts(lambda: self._enqueues.prepare(jobs))
        return self._enqueues.insert_for_caller(connection, jobs)

    def _ask_inserts(self, work: Callable[[], tuple[None, Done]]) -> None:
        call = Call(work, own_thread=True)
        self._insert_queue.serve_here(call)
        call.result()


def prepare(options: PostgresOptions) -> None:
    """Check that this program supports the namespace's schema; create it if it is missing.

    Raises:
        StoreError: it is unsupported, or the server failed; nothing was written.
        InvariantBroken: the server's refusal means a bug.
    """
    with plain_connection(options) as connection:
        ensure_schema(connection, options)


async def _ask(queue: CallQueue, call: Call[Answer], *, urgent: bool = False) -> Answer:
    if call.future is not None:
        queue.submit(call, urgent=urgent)
        return await call.future
    queue.serve_here(call, urgent=urgent)
    return call.result()
