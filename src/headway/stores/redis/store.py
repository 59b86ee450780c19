"""The Redis store: for many processes on many machines, as durable as its server is set to be."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest
from headway.contract.clock import Clock
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.enqueue import Enqueued, InFlight
from headway.contract.mending import Suspicion
from headway.contract.moving import Parcel
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.sweeps import SweepReply
from headway.contract.views import Query
from headway.core.errors import (
    HeadwayError,
    InvariantBroken,
    OutcomeUnknown,
    StoreChanged,
    StoreUnavailable,
)
from headway.core.job import TRAIL_KEPT_MS, NewJob
from headway.stores.ledger.calls import running_loop
from headway.stores.ledger.rounds import with_seen
from headway.stores.ledger.sights import process_name, store_changed
from headway.stores.ledger.wakes import Wakes
from headway.stores.redis import replies, requests, views
from headway.stores.redis.calls import Calls
from headway.stores.redis.checks import (
    check_act,
    check_author,
    check_claim,
    check_fire,
    check_signal,
)
from headway.stores.redis.failures import explain, unreachable
from headway.stores.redis.link import NotSentError, ReplyError
from headway.stores.redis.listener import Listener
from headway.stores.redis.options import RedisOptions
from headway.stores.redis.replies import Told
from headway.stores.redis.requests import Request
from headway.stores.redis.scripts import Script, script
from headway.stores.redis.sight import Sight
from headway.stores.redis.store_clock import StoreClock
from headway.stores.redis.untyped import decode_untyped
from headway.stores.redis.values import encode

Answer = TypeVar("Answer")

_ASKED_AGAIN = 8
"""How often one request may be sent again: with hours that a script asks for, or over new links."""
_STRICT = (b"", b"1")
"""Whether a call is refused in a store that is suspect, as the scripts read it."""
_MARK = b"2"
"""The call marks a store that is not the one that was seen."""


class RedisStore:
    """All state under one namespace of a Redis or Valkey. See `Store` for the promises.

    Args:
        options: how to reach it.
        clock: tells ms since 1970 in place of the server's clock, for tests.

    Attributes:
        runs_inline: an operation that is driven outside any event loop does its work on the
            caller's thread and ends without suspending; all but `wait`.

    Raises:
        StoreUnavailable: the server cannot be reached, does not let us in, or evicts keys.
        SchemaMismatch: it is older than 6.2.
    """

    runs_inline = True

    def __init__(self, options: RedisOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = StoreClock(clock)
        self._wakes = Wakes(self._clock)
        self._sight = Sight()
        self._origin = secrets.token_hex(8)
        self._own = self._origin.encode()
        self._calls = Calls(options)
        self._listener = Listener(
            self._calls.pool,
            self._calls.key("wakes"),
            self._calls.key("waiters"),
            self._origin,
            self._wakes.wake,
        )
        self._look_at_server()

    def _look_at_server(self) -> None:
        pool = self._calls.pool
        try:
            pool.give_back(pool.connect())
            # A store has its identity from now on.
            run = script("verbs.sight")
            packed = self._calls.packed(run, self._arguments({}, b""))
            _is_done(self._learn(pool.run(run, packed)))
        except NotSentError as error:
            raise unreachable(error, str(self._options)) from error
        except ReplyError as error:
            raise explain(str(error), str(self._options)) from error
        except BaseException:
            pool.close()
            raise

    # Producing

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """See `Store.enqueue`."""
        batch = requests.enqueue_request(jobs)
        if not jobs:
            return []
        if batch.plain:
            told = await self._do("verbs.enqueue_plain", batch.request)
            if replies.read(told.value, bool):
                return [Enqueued(job.id, created=True) for job in jobs]
        told = await self._do("verbs.enqueue", batch.request)
        return replies.enqueued(told.value, jobs)

    async def restore(self, jobs: Sequence[InFlight]) -> list[Enqueued]:
        """See `Store.restore`."""
        request = requests.restore_request(jobs)
        told = await self._do("verbs.restore", request)
        return replies.restored(told.value)

    async def fire(self, request: FireRequest) -> FireReply:
        """See `Store.fire`."""
        check_fire(request)
        told = await self._do("verbs.fire", requests.as_request(request))
        return replies.fire_reply(told.value)

    # Working

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """See `Store.claim`.

        Raises:
            StoreChanged: the store is another one, or an older state of the one seen before.
        """
        check_claim(request)
        seen = self._wakes.count
        told = await self._do("verbs.claim", requests.claim_request(request), strict=True)
        return with_seen(request, replies.claim_reply(told.value, told.now), seen)

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        """See `Store.settle`."""
        sent = requests.settle_request(request)
        told = await self._do("verbs.settle", sent)
        return replies.verdicts(told.value, sent, len(request.outcomes))

    async def beat(self, request: BeatRequest) -> BeatReply:
        """See `Store.beat`."""
        told = await self._do("verbs.beat", requests.beat_request(request), urgent=True)
        return replies.beat_reply(told.value, told.now)

    async def signal(self, signal: Signal) -> SignalReply:
        """See `Store.signal`."""
        check_signal(signal)
        told = await self._do("verbs.hear", requests.as_request(signal))
        return replies.signal_reply(told.value)

    # Operating

    async def act(self, request: ActRequest) -> list[ActReply]:
        """See `Store.act`."""
        check_act(request)
        told = await self._do("verbs.act", requests.as_request(request))
        return replies.acted(told.value)

    async def define(self, request: DefineRequest) -> int:
        """See `Store.define`."""
        check_author(request.author)
        told = await self._do("verbs.define", requests.define_request(request))
        return replies.read(told.value, int)

    async def release_permit(self, gate: str, job: str, author: str, reason: str) -> bool:
        """See `Store.release_permit`."""
        check_author(author)
        request = {**_words(author, reason), "gate": gate, "job": job}
        told = await self._do("verbs.release_permit", request)
        return replies.read(told.value, bool)

    async def suspicion(self) -> Suspicion | None:
        """See `Mendable`."""
        told = await self._ask(script("verbs.sight"), {}, strict=True)
        if told.status == replies.CHANGED:
            return replies.suspicion(decode_untyped(told.value))
        _is_done(told)
        return None

    async def new_epoch(self, author: str, reason: str) -> int:
        """See `Mendable`."""
        told = await self._do("verbs.new_epoch", _words(author, reason))
        return replies.read(told.value, int)

    async def reset_clock(self, author: str, reason: str) -> int:
        """See `Mendable`."""
        told = await self._do("verbs.reset_clock", _words(author, reason))
        return replies.read(told.value, int)

    # Time and chores

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        """See `Store.sweep`."""
        told = await self._do("verbs.sweep", {"n": n, "keep_trail_ms": keep_trail_ms})
        return replies.sweep_reply(told.value)

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        """See `Store.lead`."""
        request: Request = {"role": role, "holder": holder, "lease_ms": lease_ms}
        return replies.term((await self._do("verbs.lead", request)).value)

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """See `Store.wait`."""
        self._listener.attend()
        await self._wakes.wait(lanes, until_at, seen)

    async def read(self, query: Query[Answer]) -> Answer:
        """See `Store.read`."""
        query = views.bounded(query)
        asked = views.request_of(query)
        told = await self._do(asked.script, asked.request)
        return views.answer(query, replies.untyped(told.value))

    # Moving

    async def take_out(self, cursor: str | None) -> Parcel:
        """See `Movable.take_out`."""
        asked = views.parcel_request(cursor)
        told = await self._do(asked.script, asked.request)
        return views.parcel(cursor, replies.untyped(told.value))

    async def put_in(self, parcel: Parcel) -> None:
        """See `Movable.put_in`."""
        await self._do("verbs.put_in", requests.put_in_request(parcel))

    async def close(self) -> None:
        """Lets go of everything; running operations end first."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._listener.close()
        else:
            await asyncio.to_thread(self._listener.close)
        await self._calls.close()

    # A call

    async def _do(
        self, name: str, request: Request, *, strict: bool = False, urgent: bool = False
    ) -> Told:
        """Runs a verb or a read until it is done.

        Args:
            name: of its module.
            request: what it gets.
            strict: refuse if the store is not the one that was seen.
            urgent: it waits for no other calls.

        Returns:
            The reply of one that is done.

        Raises:
            HeadwayError: it refused, or could not be asked.
            InvariantBroken: it asks for hours without an end; nothing was written.
        """
        run = script(name)
        for _ in range(_ASKED_AGAIN):
            told = await self._ask(run, request, strict=strict, urgent=urgent)
            if _is_done(told):
                return told
            given: dict[str, Any] = request.get("opens", {})
            request = {**request, "opens": given | replies.hours_asked(told.value, told.now)}
        message = f"{name} asks for hours again and again"
        raise InvariantBroken(message)

    async def _ask(
        self, run: Script, request: Request, *, strict: bool, urgent: bool = False
    ) -> Told:
        for _ in range(_ASKED_AGAIN):
            try:
                arguments = self._arguments(request, _STRICT[strict])
                reply = await self._calls.run(run, arguments, urgent=urgent)
            except (OutcomeUnknown, asyncio.CancelledError):
                # What it woke is told to other processes, but nobody tells this one.
                self._wakes.wake_all()
                raise
            told = self._learn(reply)
            if told.status != replies.DOUBTED:
                return told
            if running_loop() is None:
                self._confirm(told)
            else:
                await asyncio.to_thread(self._confirm, told)
        message = "old connections lead to another server than new ones do, again and again"
        raise StoreUnavailable(message, hint="wait for the failover to end; nothing was written")

    def _confirm(self, doubted: Told) -> None:
        """Marks the store as suspect if a new link finds it so; else leaves the old ones.

        After a failover an old link may still lead to the server that was replaced. What it says
        proves nothing about the store.
        """
        run = script("verbs.suspect")
        request: Request = {"by": process_name(), "reason": self._sight.contradiction(doubted)}
        packed = self._calls.packed(run, self._arguments(request, _MARK))
        if not self._learn(self._calls.pool.run_anew(run, packed)).doubted:
            self._calls.leave_links()

    def _arguments(self, request: Request, asks: bytes) -> tuple[bytes, ...]:
        return (
            encode(request),
            self._clock.override(),
            self._sight.packed,
            self._own,
            asks,
        )

    def _learn(self, reply: bytes) -> Told:
        """Takes in what every reply tells.

        Raises:
            InvariantBroken: it cannot be read.
        """
        try:
            told = replies.told_of(reply)
        except msgspec.DecodeError as error:
            message = f"a reply cannot be read: {error}"
            raise InvariantBroken(message) from error
        self._clock.hear(told.now)
        self._sight.learn(told)
        if told.wakes:
            self._wakes.wake(replies.woken(told.wakes))
        return told


def _is_done(told: Told) -> bool:
    """Whether a script did what it was asked; it asks for hours where it did not.

    Raises:
        HeadwayError: it refused; nothing was written.
        StoreChanged: the store is not the one that was seen; nothing was written.
    """
    if told.status == replies.REFUSED:
        refused: HeadwayError = replies.refusal(told.value)
        raise refused
    if told.status == replies.CHANGED:
        changed: StoreChanged = store_changed(replies.suspicion(decode_untyped(told.value)))
        raise changed
    return told.status == replies.DONE


def _words(author: str, reason: str) -> Request:
    return {"author": author, "reason": reason}
