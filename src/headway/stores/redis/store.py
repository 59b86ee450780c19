"""The Redis store, for many processes on many machines, as durable as its server is configured."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.extensions import ExportChunk, Suspicion
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import Clock, InFlight, Sent
from headway.contract.views import JobQuery, Query, WhyQuery
from headway.core.check import is_job_id
from headway.core.errors import (
    HeadwayError,
    InvariantBroken,
    OutcomeUnknown,
    StoreChanged,
    StoreUnavailable,
)
from headway.core.job import TRAIL_KEPT_MS, NewJob
from headway.stores.ledger.calls import in_thread, running_loop
from headway.stores.ledger.fingerprint import process_name, store_changed
from headway.stores.ledger.lane_claim import with_seen
from headway.stores.ledger.verbs.act import check_act, check_release
from headway.stores.ledger.verbs.claim import check_claim
from headway.stores.ledger.verbs.enqueue import check_batch
from headway.stores.ledger.verbs.signal import check_signal
from headway.stores.ledger.wakes import Wakes
from headway.stores.redis import replies, requests, views
from headway.stores.redis.calls import Calls
from headway.stores.redis.failures import explained
from headway.stores.redis.last_seen import LastSeen
from headway.stores.redis.listener import WakeListener
from headway.stores.redis.options import RedisOptions
from headway.stores.redis.replies import ScriptReply
from headway.stores.redis.requests import PackedRequest
from headway.stores.redis.scripts import Script, script
from headway.stores.redis.timing import StoreClock
from headway.stores.redis.values import decode_untyped, encode, named

Answer = TypeVar("Answer")

_MAX_SENDS = 8
"""Maximum number of sends of a request, with hours that the script requests or on new links."""
_STRICT = (b"", b"1")
"""Whether a suspect store refuses the call, as the scripts read it."""
_MARK = b"2"
"""The call marks a store whose fingerprint does not match."""


class RedisStore:
    """A store in one namespace of a Redis or Valkey. See `Store` for the promises.

    Args:
        clock: returns ms since 1970 in place of the server's clock, for tests.

    Attributes:
        runs_inline: True: an operation that is driven outside any event loop runs on the caller's
            thread and completes without suspending, except `wait`.

    Raises:
        StoreUnavailable: the server is unreachable, refuses the login, or evicts keys.
        SchemaMismatch: the server is older than 6.2.
    """

    runs_inline = True

    def __init__(self, options: RedisOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = StoreClock(clock)
        self._wakes = Wakes(self._clock)
        self._last_seen = LastSeen()
        self._origin = secrets.token_hex(8)
        self._calls = Calls(options)
        self._listener = WakeListener(
            self._calls.pool,
            self._calls.key("wakes"),
            self._calls.key("waiters"),
            lambda: self._origin,
            self._wakes.wake,
        )
        self._check_server()

    def _check_server(self) -> None:
        pool = self._calls.pool
        try:
            with explained(str(self._options)):
                pool.give_back(pool.connect())
            # This gives a new store its identity.
            run = script("verbs.store.fingerprint")
            packed = self._calls.packed(run, self._arguments({}, b""))
            _is_done(self._learn(pool.run(run, packed)))
        except BaseException:
            pool.close()
            raise

    # Producing

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        batch = requests.enqueue_request(jobs)
        if not jobs:
            return []
        if batch.plain:
            reply = await self._do("verbs.enqueue_plain", batch.request)
            if replies.read(reply.value, bool):
                return [Sent(job.id, created=True) for job in jobs]
        reply = await self._do("verbs.enqueue", batch.request)
        return replies.enqueued(reply.value, jobs)

    async def restore(self, jobs: Sequence[InFlight]) -> list[Sent]:
        request = requests.restore_request(jobs)
        reply = await self._do("verbs.restore", request)
        return replies.restored(reply.value)

    async def fire(self, request: FireRequest) -> FireReply:
        check_batch("fire", len(request.moments))
        reply = await self._do("verbs.chores.fire", named(request))
        return replies.read(reply.value, FireReply)

    # Working

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """See `Store.claim`.

        Raises:
            StoreChanged: the store was replaced, or restored to an older state.
        """
        check_claim(request)
        seen = self._wakes.count
        reply = await self._do("verbs.claim", requests.claim_request(request), strict=True)
        return with_seen(request, replies.claim_reply(reply.value, reply.now), seen)

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        sent = requests.settle_request(request)
        reply = await self._do("verbs.settle", sent)
        return replies.verdicts(reply.value, sent, len(request.outcomes))

    async def beat(self, request: BeatRequest) -> BeatReply:
        reply = await self._do("verbs.beat", requests.beat_request(request), urgent=True)
        return replies.beat_reply(reply.value, reply.now)

    async def signal(self, signal: Signal) -> SignalReply:
        check_signal(signal)
        reply = await self._do("verbs.signal", named(signal))
        return replies.signal_reply(reply.value)

    # Operating

    async def act(self, request: ActRequest) -> list[ActReply]:
        check_act(request)
        reply = await self._do("verbs.act", named(request))
        return replies.acted(reply.value)

    async def define(self, request: DefineRequest) -> int:
        reply = await self._do("verbs.define", requests.define_request(request))
        return replies.read(reply.value, int)

    async def release_permit(
        self, gate: str, job: str, author: str, reason: str, *, request: str = ""
    ) -> bool:
        check_release(gate, job, author, reason, request)
        fields = {**_authored(author, reason), "gate": gate, "job": job, "request": request}
        reply = await self._do("verbs.act.release_permit", fields)
        return replies.read(reply.value, bool)

    async def suspicion(self) -> Suspicion | None:
        """See `Repairable`."""
        reply = await self._ask(script("verbs.store.fingerprint"), {}, strict=True)
        if reply.status == replies.CHANGED:
            return replies.suspicion(decode_untyped(reply.value))
        _is_done(reply)
        return None

    async def new_epoch(self, author: str, reason: str) -> int:
        """See `Repairable`."""
        reply = await self._do("verbs.store.new_epoch", _authored(author, reason))
        return replies.read(reply.value, int)

    async def reset_clock(self, author: str, reason: str) -> int:
        """See `Repairable`."""
        reply = await self._do("verbs.store.reset_clock", _authored(author, reason))
        return replies.read(reply.value, int)

    # Time and chores

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        reply = await self._do("verbs.chores.sweep", {"n": n, "keep_trail_ms": keep_trail_ms})
        return replies.read(reply.value, SweepReply)

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        request: PackedRequest = {"role": role, "holder": holder, "lease_ms": lease_ms}
        return replies.term((await self._do("verbs.store.lead", request)).value)

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        self._listener.ensure_listening()
        await self._wakes.wait(lanes, until_at, seen)

    async def read(self, query: Query[Answer]) -> Answer:
        if _names_no_job(query):
            return None  # pyright: ignore[reportReturnType]  (the query's answer may be None)
        query = views.bounded(query)
        wanted = views.request_of(query)
        reply = await self._do(wanted.script, wanted.request)
        return views.answer(query, replies.untyped(reply.value))

    # Moving

    async def export_chunk(self, cursor: str | None) -> ExportChunk:
        wanted = views.chunk_request(cursor)
        reply = await self._do(wanted.script, wanted.request)
        return views.chunk(cursor, replies.untyped(reply.value))

    async def import_chunk(self, chunk: ExportChunk) -> None:
        await self._do("verbs.import_chunk", requests.import_chunk_request(chunk))

    async def close(self) -> None:
        """Close all connections after running operations have finished."""
        try:
            if running_loop() is None:
                self._listener.close()
            else:
                await in_thread(self._listener.close)
        finally:
            await self._calls.close()

    # A call

    async def _do(
        self, name: str, request: PackedRequest, *, strict: bool = False, urgent: bool = False
    ) -> ScriptReply:
        """Run a verb or a read until it is done, and return its reply.

        Args:
            strict: refuse if the store is suspect.
            urgent: do not wait for other calls.

        Raises:
            HeadwayError: the verb refused, or the call failed.
            InvariantBroken: the script requests hours endlessly; nothing was written.
        """
        run = script(name)
        for _ in range(_MAX_SENDS):
            reply = await self._ask(run, request, strict=strict, urgent=urgent)
            if _is_done(reply):
                return reply
            given: dict[str, Any] = request.get("opens", {})
            request = {**request, "opens": given | replies.hours_asked(reply.value, reply.now)}
        message = f"{name} asked for hours too many times"
        raise InvariantBroken(message)

    async def _ask(
        self, run: Script, request: PackedRequest, *, strict: bool, urgent: bool = False
    ) -> ScriptReply:
        for _ in range(_MAX_SENDS):
            try:
                arguments = self._arguments(request, _STRICT[strict])
                raw = await self._calls.run(run, arguments, urgent=urgent)
            except (OutcomeUnknown, asyncio.CancelledError):
                # Other processes get the wakes by message, this one only by the lost reply. The
                # server may execute the call later: then it is heard as that of another process.
                self._origin = secrets.token_hex(8)
                self._wakes.wake_all()
                raise
            reply = self._learn(raw)
            if reply.status != replies.MISMATCH:
                return reply
            if running_loop() is None:
                self._confirm(reply)
            else:
                await asyncio.to_thread(self._confirm, reply)
        message = "old connections keep leading to a different server than new ones"
        raise StoreUnavailable(message, hint="wait for the failover to end; nothing was written")

    def _confirm(self, mismatch: ScriptReply) -> None:
        """Mark the store as suspect if a new link finds the mismatch, too; else drop the old links.

        After a failover, an old link may still lead to the former master, whose replies prove
        nothing about the store.
        """
        run = script("verbs.store.suspect")
        request: PackedRequest = {
            "by": process_name(),
            "reason": self._last_seen.contradiction(mismatch),
        }
        packed = self._calls.packed(run, self._arguments(request, _MARK))
        if not self._learn(self._calls.pool.run_on_new_link(run, packed)).mismatch:
            self._calls.drop_links()

    def _arguments(self, request: PackedRequest, asks: bytes) -> tuple[bytes, ...]:
        return (
            encode(request),
            self._clock.override(),
            self._last_seen.packed,
            self._origin.encode(),
            asks,
        )

    def _learn(self, raw: bytes) -> ScriptReply:
        """Decode a reply, and process the part that all replies share.

        Raises:
            InvariantBroken: the reply cannot be decoded.
        """
        try:
            reply = replies.decode_reply(raw)
        except msgspec.DecodeError as error:
            message = f"a reply cannot be read: {error}"
            raise InvariantBroken(message) from error
        self._clock.observe(reply.now)
        self._last_seen.learn(reply)
        if reply.wakes:
            self._wakes.wake(replies.woken(reply.wakes))
        return reply


def _is_done(reply: ScriptReply) -> bool:
    """Return whether a script is done; if not, it requests hours.

    Raises:
        HeadwayError: the script refused; nothing was written.
        StoreChanged: the store is suspect; nothing was written.
        StoreChanged: the store is not the one that was seen; nothing was written.
    """
    if reply.status == replies.REFUSED:
        refused: HeadwayError = replies.refusal(reply.value)
        raise refused
    if reply.status == replies.CHANGED:
        changed: StoreChanged = store_changed(replies.suspicion(decode_untyped(reply.value)))
        raise changed
    return reply.status == replies.DONE


def _authored(author: str, reason: str) -> PackedRequest:
    return {"author": author, "reason": reason}


def _names_no_job(query: object) -> bool:
    """Return whether a query is about an id that no job has, and that a request may not hold."""
    return isinstance(query, JobQuery | WhyQuery) and not is_job_id(query.id)
