"""The registry of long polls: one wait on the store for all polls of the same lanes."""

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

EVERY = 10.0
"""Seconds between two beats; who waits for less costs none."""
PRESENCE_LEASE_MS = 30_000
MOST_SERVED = 1_000
"""Lanes that are reported."""
NAME = "long polls"

_log = logging.getLogger("headway.server")


class PollerHeartbeat:
    """The worker under which a registry's polls are listed in the store.

    Args:
        lanes: returns the lanes that clients wait for now.
    """

    def __init__(self, store: Store, timing: Timing, lanes: Callable[[], Iterable[str]]) -> None:
        self._store = store
        self._timing = timing
        self._lanes = lanes
        self._worker = f"lobby.{secrets.token_hex(6)}"

    async def keep(self) -> None:
        """Beat until it is cancelled; its lease ends by itself soon after."""
        while True:
            await self._timing.pause(EVERY)
            lanes = sorted(set(self._lanes()))[:MOST_SERVED]
            request = BeatRequest(
                worker=self._worker, lanes=tuple(lanes), name=NAME, lease_ms=PRESENCE_LEASE_MS
            )
            try:
                await self._store.beat(request)
            except StoreError as error:
                # A claim reports it; here it only means that fewer workers are listed.
                _log.debug("waiting clients are not reported: %s", error)


LIST_EVERY = 1.0
"""Seconds between two lists of lanes, while a client waits for a pattern."""


class LaneNames:
    """The names of the store's lanes, as they were a moment ago.

    Args:
        store: has the lanes.
        timing: the clock that measures how long ago that was.
        met: called with each new lane.
    """

    def __init__(self, store: Store, timing: Timing, met: Callable[[str], None]) -> None:
        self._store = store
        self._timing = timing
        self._met = met
        self._names: set[str] = set()
        self._listed_at = float("-inf")
        self._listing = asyncio.Lock()

    async def names(self) -> Collection[str]:
        """Return the names; read from the store if the last list is older than a second.

        Raises:
            StoreError: it cannot be read.
        """
        async with self._listing:
            if self._timing.monotonic() >= self._listed_at + LIST_EVERY:
                await self._list()
        return self._names

    def note(self, lane: str) -> None:
        """Note that a job was sent to a lane: the lane exists now."""
        if lane not in self._names:
            self._names.add(lane)
            self._met(lane)

    async def keep_listing(self) -> None:
        """List again and again, until it is cancelled; other processes make lanes too."""
        while True:
            await self._timing.pause(LIST_EVERY)
            try:
                await self.names()
            except PASSING:
                # A claim reports the reason.
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
        self._known = LaneNames(store, timing, self._wake_matching)
        self._groups: dict[object, tuple[LaneSelection, Waiters]] = {}
        self._waiter_by_worker: dict[str, tuple[Waiters, Waiter]] = {}
        self._listing_task: asyncio.Task[None] | None = None
        self._patterned = 0
        self._heartbeat = PollerHeartbeat(store, timing, self._waited_for)
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many wait, and do not look just now."""
        return sum(len(waiters) for _, waiters in self._groups.values())

    @property
    def giving_back(self) -> int:
        """How many claims whose puller has gone are not given back yet."""
        return self._claiming.under_way

    def waiting_for(self, lane: str) -> int:
        """Return how many polls ask for a lane by name, those that look just now included."""
        entries = self._groups.values()
        return sum(waiters.present for wanted, waiters in entries if lane in dict(wanted.lanes))

    def note_lanes(self, lanes: Iterable[str]) -> None:
        """Note lanes that jobs were sent to; polls for a matching pattern look again."""
        for lane in lanes:
            self._known.note(lane)

    async def among(self, wanted: LaneSelection) -> tuple[str, ...]:
        """Return the names of the lanes that are wanted, those that fit a pattern among them."""
        known = await self._known.names() if wanted.patterns else ()
        return tuple(name for name, _ in wanted.among(known))

    async def pull(self, pull: LongPoll, seconds: float = 0.0) -> PollReply:
        """Claims; while there is nothing, waits.

        Who waits for the same lanes is served in the order of coming. A worker that numbers its
        pulls has one at a time: a later one sends the earlier home. If it is cancelled, nothing
        stays claimed.

        Args:
            pull: what to claim.
            seconds: how long it may wait.

        Returns:
            The jobs; none when the time is up or the registry was closed.

        Raises:
            InvalidValue: the claim is unusable.
        """
        if pull.request is not None:
            self._cancel_earlier(pull.worker)
        if seconds <= 0 or self._is_closed:
            return _pulled(pull, await self._look(pull))
        group = (pull.wanted.group, pull.free > 0)
        waiters = self._waiters_of(group, pull.wanted)
        waiter = waiters.add()
        if pull.request is not None:
            self._waiter_by_worker[pull.worker] = (waiters, waiter)
        try:
            look = await waiters.serve(waiter, lambda: self._look(pull), seconds)
            if look is not None:
                return _pulled(pull, look)
            return await self._nothing(pull, waiters, again=waiter.is_cancelled)
        finally:
            if self._waiter_by_worker.get(pull.worker) == (waiters, waiter):
                del self._waiter_by_worker[pull.worker]
            self._leave(group, waiters)

    def give_back(self, pulled: PollReply) -> None:
        """Hand back the jobs of a pull that were not delivered.

        Not those of a repeat: the first answer may have been last.
        """
        if not pulled.is_repeat:
            self._claiming.give_back(pulled.worker, pulled.jobs)

    def close(self) -> None:
        """Cancel all waits; later ones return at once."""
        self._is_closed = True
        for _, waiters in list(self._groups.values()):
            waiters.cancel_all()

    async def finish(self) -> None:
        """Wait until all that is to be given back is."""
        await self._claiming.finish()

    async def _look(self, pull: LongPoll) -> ClaimAttempt:
        known: Collection[str] = ()
        if pull.wanted.patterns:
            known = await self._known.names()
        return await self._claiming.look(pull, known)

    async def _nothing(self, pull: LongPoll, waiters: Waiters, *, again: bool) -> PollReply:
        """Return the reply to an empty poll, which may still have to ask the store."""
        last = waiters.last_empty
        if last is None and not again:
            return _pulled(pull, await self._look(pull))
        now = self._timing.wall_at()
        if last is not None:
            now = last.reply.now + int(1000 * (self._timing.monotonic() - waiters.last_empty_at))
        return PollReply(
            worker=pull.worker,
            request=pull.request or 0,
            jobs=(),
            now=now,
            lease_until=None,
            next_at=last.reply.next_at if last is not None else None,
            again=again,
        )

    async def _sleep(self, look: ClaimAttempt) -> None:
        # Only now, so that a pull which finds something at once starts nothing beside it.
        self._update_tasks()
        if look.lanes:
            await self._store.wait(look.lanes, look.reply.next_at, look.reply.seen)
        else:
            await asyncio.Event().wait()

    def _wake_matching(self, lane: str) -> None:
        for wanted, waiters in list(self._groups.values()):
            if wanted.meets(lane):
                waiters.wake()

    def _cancel_earlier(self, worker: str) -> None:
        """End the earlier wait of a worker that polls again."""
        waiting = self._waiter_by_worker.pop(worker, None)
        if waiting is not None:
            waiters, waiter = waiting
            waiters.cancel(waiter)

    def _waiters_of(self, group: object, wanted: LaneSelection) -> Waiters:
        """Return the waiters of a group, created if there are none."""
        entry = self._groups.get(group)
        if entry is not None:
            return entry[1]
        waiters = Waiters(self._sleep, self._timing)
        self._groups[group] = (wanted, waiters)
        self._patterned += bool(wanted.patterns)
        return waiters

    def _leave(self, group: object, waiters: Waiters) -> None:
        """Forget a group without waiters."""
        entry = self._groups.get(group)
        if entry is not None and entry[1] is waiters and waiters.is_idle:
            del self._groups[group]
            self._patterned -= bool(entry[0].patterns)
            self._update_tasks()

    def _waited_for(self) -> Iterable[str]:
        for wanted, waiters in self._groups.values():
            if waiters.last_empty is not None:
                yield from waiters.last_empty.lanes
            else:
                yield from (name for name, _ in wanted.among(()))

    def _update_tasks(self) -> None:
        """Run the heartbeat while there are waiters, the listing while any has a pattern."""
        loop = asyncio.get_running_loop()
        if self._groups and self._heartbeat_task is None:
            self._heartbeat_task = loop.create_task(self._heartbeat.keep(), name="long polls")
        elif not self._groups and self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            self._heartbeat_task = None
        if self._patterned and self._listing_task is None:
            self._listing_task = loop.create_task(
                self._known.keep_listing(), name="lanes of long polls"
            )
        elif not self._patterned and self._listing_task is not None:
            self._listing_task.cancel()
            self._listing_task = None


def _pulled(pull: LongPoll, look: ClaimAttempt) -> PollReply:
    reply = look.reply
    return PollReply(
        worker=pull.worker,
        request=look.request,
        jobs=reply.jobs,
        now=reply.now,
        lease_until=reply.lease_until if look.lanes else None,
        next_at=reply.next_at,
        again=reply.again,
        # The store's own note of when a round began means nothing to another claim.
        after={lane: at for lane, at in reply.after.items() if lane},
        is_repeat=look.is_repeat,
    )
