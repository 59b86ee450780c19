"""The registry of long polls: polls for the same lanes share one wait on the store."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Iterable

from headway.contract.claims import BeatRequest
from headway.contract.store import Store
from headway.contract.views import LanesQuery
from headway.core.errors import StoreError
from headway.runtime.timing import PASSING, Timing
from headway.server.long_polling.claiming import LaneSelection, LongPoll, PollClaimer, PollReply
from headway.server.long_polling.waiters import ClaimAttempt, Waiter, Waiters

BEAT_EVERY_S = 10.0
"""Seconds between two beats; polls that wait for less time cause none."""
PRESENCE_LEASE_MS = 30_000
MOST_SERVED = 1_000
"""Maximum number of lanes in a beat."""
NAME = "long polls"

_log = logging.getLogger("headway.server")

LIST_EVERY_S = 1.0
"""Seconds between two reads of the lanes while a client waits for a pattern."""


class LaneNames:
    """A cache of the names of the store's lanes; calls `on_new` with each new one."""

    def __init__(self, store: Store, timing: Timing, on_new: Callable[[str], None]) -> None:
        self._store = store
        self._timing = timing
        self._on_new = on_new
        self._names: set[str] = set()
        self._listed_at = float("-inf")
        self._listing = asyncio.Lock()

    async def names(self) -> Collection[str]:
        """Return the names; read the store if the cache is older than a second."""
        async with self._listing:
            if self._timing.monotonic() >= self._listed_at + LIST_EVERY_S:
                await self._list()
        return self._names

    def note(self, lane: str) -> None:
        """Add a lane that a job was sent to, so that it exists now."""
        if lane not in self._names:
            self._names.add(lane)
            self._on_new(lane)

    async def keep_listing(self) -> None:
        """Read the names periodically until cancelled, because other processes create lanes too."""
        while True:
            await self._timing.pause(LIST_EVERY_S)
            try:
                await self.names()
            except PASSING:
                # A claim reports the error.
                continue

    async def _list(self) -> None:
        asked_at = self._timing.monotonic()
        lanes = await self._store.read(LanesQuery())
        self._listed_at = asked_at
        for lane in lanes:
            self.note(lane.name)


class LongPollRegistry:
    """The long polls of one server."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._claiming = PollClaimer(store, timing)
        self._lane_names = LaneNames(store, timing, self._wake_matching)
        self._groups: dict[object, tuple[LaneSelection, Waiters]] = {}
        self._waiter_by_worker: dict[str, tuple[Waiters, Waiter]] = {}
        self._listing_task: asyncio.Task[None] | None = None
        self._patterns_waiting = 0
        # The worker that represents the polls in the store.
        self._worker = f"polls.{secrets.token_hex(6)}"
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of waiting polls, without those that are claiming now."""
        return sum(len(waiters) for _, waiters in self._groups.values())

    @property
    def giving_back(self) -> int:
        """Number of claims of disconnected clients that have not been released yet."""
        return self._claiming.releasing

    def waiting_for(self, lane: str) -> int:
        """Return the number of polls for a lane by name, including those that are claiming now."""
        entries = self._groups.values()
        return sum(waiters.present for wanted, waiters in entries if lane in dict(wanted.lanes))

    def note_lanes(self, lanes: Iterable[str]) -> None:
        """Add lanes that jobs were sent to; wake the polls whose patterns match a new one."""
        for lane in lanes:
            self._lane_names.note(lane)

    async def expand(self, wanted: LaneSelection) -> tuple[str, ...]:
        """Return the names of the selected lanes, with patterns expanded."""
        return tuple(name for name, _ in wanted.expand(await self._known(wanted)))

    async def pull(self, poll: LongPoll, seconds: float = 0.0) -> PollReply:
        """Claim jobs; if there are none, wait.

        Polls for the same lanes are served in order of arrival. A worker that numbers its polls
        has one at a time: a later one cancels the earlier one. If this call is cancelled, the jobs
        that it claimed are released.

        Args:
            seconds: maximum time to wait.

        Returns:
            The jobs; none if the time is up or the registry was closed.

        Raises:
            InvalidValue: the claim is invalid.
        """
        if poll.request is not None:
            self._cancel_earlier(poll.worker)
        if seconds <= 0 or self._is_closed:
            return _reply(poll, await self._attempt(poll))
        group = (poll.wanted.group, poll.free > 0)
        waiters = self._waiters_of(group, poll.wanted)
        waiter = waiters.add()
        if poll.request is not None:
            self._waiter_by_worker[poll.worker] = (waiters, waiter)
        try:
            attempt = await waiters.serve(waiter, lambda: self._attempt(poll), seconds)
            if attempt is not None:
                return _reply(poll, attempt)
            return await self._empty_reply(poll, waiters, again=waiter.is_cancelled)
        finally:
            if self._waiter_by_worker.get(poll.worker) == (waiters, waiter):
                del self._waiter_by_worker[poll.worker]
            self._leave(group, waiters)

    def give_back(self, reply: PollReply) -> None:
        """Release the jobs of a reply that was not delivered.

        Jobs of a repeated claim are kept: their first reply may have been delivered.
        """
        if not reply.is_repeat:
            self._claiming.give_back(reply.worker, reply.jobs)

    def close(self) -> None:
        """Cancel all waits; later polls return at once."""
        self._is_closed = True
        for _, waiters in list(self._groups.values()):
            waiters.cancel_all()

    async def finish(self) -> None:
        """Wait until all undelivered jobs are released."""
        await self._claiming.finish()

    async def _attempt(self, poll: LongPoll) -> ClaimAttempt:
        return await self._claiming.attempt(poll, await self._known(poll.wanted))

    async def _known(self, wanted: LaneSelection) -> Collection[str]:
        return await self._lane_names.names() if wanted.patterns else ()

    async def _empty_reply(self, poll: LongPoll, waiters: Waiters, *, again: bool) -> PollReply:
        """Return the reply to an empty poll from the group's last empty claim, or claim again."""
        last = waiters.last_empty
        if last is None and not again:
            return _reply(poll, await self._attempt(poll))
        now = self._timing.wall_at()
        if last is not None:
            now = last.reply.now + int(1000 * (self._timing.monotonic() - waiters.last_empty_at))
        return PollReply(
            worker=poll.worker,
            request=poll.request or 0,
            jobs=(),
            now=now,
            lease_until=None,
            next_at=last.reply.next_at if last is not None else None,
            again=again,
        )

    async def _sleep(self, attempt: ClaimAttempt) -> None:
        # Not before, so that a poll that finds jobs at once starts no tasks.
        self._update_tasks()
        if attempt.lanes:
            await self._store.wait(attempt.lanes, attempt.reply.next_at, attempt.reply.seen)
        else:
            await asyncio.Event().wait()

    def _wake_matching(self, lane: str) -> None:
        for wanted, waiters in list(self._groups.values()):
            if wanted.matches(lane):
                waiters.wake()

    def _cancel_earlier(self, worker: str) -> None:
        """Cancel the earlier wait of a worker that polls again."""
        waiting = self._waiter_by_worker.pop(worker, None)
        if waiting is not None:
            waiters, waiter = waiting
            waiters.cancel(waiter)

    def _waiters_of(self, group: object, wanted: LaneSelection) -> Waiters:
        """Return the waiters of a group; create them if there are none."""
        entry = self._groups.get(group)
        if entry is not None:
            return entry[1]
        waiters = Waiters(self._sleep, self._timing)
        self._groups[group] = (wanted, waiters)
        self._patterns_waiting += bool(wanted.patterns)
        return waiters

    def _leave(self, group: object, waiters: Waiters) -> None:
        """Remove a group without waiters."""
        entry = self._groups.get(group)
        if entry is not None and entry[1] is waiters and waiters.is_idle:
            del self._groups[group]
            self._patterns_waiting -= bool(entry[0].patterns)
            self._update_tasks()

    def _awaited_lanes(self) -> Iterable[str]:
        for wanted, waiters in self._groups.values():
            if waiters.last_empty is not None:
                yield from waiters.last_empty.lanes
            else:
                yield from (name for name, _ in wanted.expand(()))

    async def _keep_beating(self) -> None:
        """Send beats until cancelled; the lease expires soon after."""
        while True:
            await self._timing.pause(BEAT_EVERY_S)
            lanes = sorted(set(self._awaited_lanes()))[:MOST_SERVED]
            request = BeatRequest(
                worker=self._worker, lanes=tuple(lanes), name=NAME, lease_ms=PRESENCE_LEASE_MS
            )
            try:
                await self._store.beat(request)
            except StoreError as error:
                # A claim reports the error; here it only means that the lanes show fewer workers.
                _log.debug("beat of long polls failed: %s", error)

    def _update_tasks(self) -> None:
        """Run the heartbeat while there are waiters, and the listing while any has a pattern."""
        loop = asyncio.get_running_loop()
        if self._groups and self._heartbeat_task is None:
            self._heartbeat_task = loop.create_task(self._keep_beating(), name="long polls")
        elif not self._groups and self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            self._heartbeat_task = None
        if self._patterns_waiting and self._listing_task is None:
            self._listing_task = loop.create_task(
                self._lane_names.keep_listing(), name="lanes of long polls"
            )
        elif not self._patterns_waiting and self._listing_task is not None:
            self._listing_task.cancel()
            self._listing_task = None


def _reply(poll: LongPoll, attempt: ClaimAttempt) -> PollReply:
    reply = attempt.reply
    return PollReply(
        worker=poll.worker,
        request=attempt.request,
        jobs=reply.jobs,
        now=reply.now,
        lease_until=reply.lease_until if attempt.lanes else None,
        next_at=reply.next_at,
        again=reply.again,
        # The empty lane is the store's mark of when the round started; other claims cannot use it.
        after={lane: at for lane, at in reply.after.items() if lane},
        is_repeat=attempt.is_repeat,
    )
