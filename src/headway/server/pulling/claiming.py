"""Claiming for somebody who may go away at any moment: then nothing stays claimed."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from headway.contract.claims import Claimed, ClaimReply, ClaimRequest
from headway.contract.outcomes import Released, SettleRequest
from headway.contract.store import Store
from headway.core.errors import OutcomeUnknown, StoreError
from headway.runtime.chores.sweep import log_dead
from headway.runtime.persist import persist
from headway.runtime.timing import Timing
from headway.server.pulling.line import Look
from headway.server.pulling.numbers import MOST_TRIES, Numbers
from headway.server.pulling.pull import Pull

MOST_LANES = 256
"""Lanes of one claim; where more fit a pull's patterns, claims follow one another."""
MOST_REMEMBERED = 10_000
"""Workers of which it is remembered which of their numbers brought jobs."""
GIVE_BACK_WITHIN = 60.0
"""Seconds for which a giving back is repeated; then the lease brings the jobs back."""

_log = logging.getLogger("headway.server")


class Claiming:
    """Claims for pulls.

    Args:
        store: to claim from.
        timing: clocks and pauses.
    """

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._numbers = Numbers(timing)
        self._turn = 0
        self._brought: OrderedDict[str, int] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def under_way(self) -> int:
        """How many givings back are not done yet."""
        return len(self._tasks)

    async def look(self, pull: Pull, known: Collection[str]) -> Look:
        """Claims once from all lanes that a pull wants.

        If it is cancelled, what was claimed is given back.

        Args:
            pull: what to claim.
            known: the store's lanes, if the pull has patterns.

        Returns:
            What was found. If nothing, its moments hold for all of the lanes.

        Raises:
            StoreError: the store could not answer.
            InvalidValue: the claim is unusable.
        """
        lanes = pull.wanted.among(known)
        if not lanes:
            nothing = ClaimReply(jobs=[], now=self._timing.wall_at(), lease_until=0, next_at=None)
            return Look(reply=nothing, lanes=(), request=pull.request or 0)
        looks: list[Look] = []
        for some in self._windows(lanes, strict=pull.wanted.order == "strict"):
            look = await self._round(pull, some)
            looks.append(look)
            if look.is_final:
                break
        return _joined(looks)

    def give_back(self, worker: str, jobs: Sequence[Claimed]) -> None:
        """Hands back jobs of which nobody has heard; at once, but the caller need not wait."""
        if jobs:
            self._spawn(self._give_back(worker, jobs))

    async def finish(self) -> None:
        """Waits until all that is to be given back is."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _windows(
        self, lanes: tuple[tuple[str, int], ...], *, strict: bool
    ) -> Sequence[tuple[tuple[str, int], ...]]:
        windows = [lanes[at : at + MOST_LANES] for at in range(0, len(lanes), MOST_LANES)]
        if strict or len(windows) == 1:
            return windows
        # Each claim begins elsewhere, so that no window lives on what others leave.
        self._turn += 1
        first = self._turn % len(windows)
        return windows[first:] + windows[:first]

    async def _round(self, pull: Pull, lanes: tuple[tuple[str, int], ...]) -> Look:
        """Claims until something is found, or all flows were looked at."""
        after = {lane: pull.after[lane] for lane, _ in lanes if lane in pull.after}
        whole = not after
        tries = 0
        while True:
            request = ClaimRequest(
                worker=pull.worker,
                request=pull.request or self._numbers.next(tries),
                lanes=lanes,
                order=pull.wanted.order,
                n=pull.n,
                free=pull.free,
                lease_ms=pull.lease_ms,
                after=after,
            )
            reply, is_repeat = await self._claim(request)
            names = tuple(name for name, _ in lanes)
            look = Look(reply=reply, lanes=names, request=request.request, is_repeat=is_repeat)
            if look.is_used_up and pull.request is None and tries < MOST_TRIES:
                tries += 1
            elif look.is_final or (whole and not reply.again):
                return look
            else:
                # A round that began in the middle has not looked at what stands before.
                whole = whole or not reply.again
                after = dict(reply.after)
                await self._timing.pause(0)

    async def _claim(self, request: ClaimRequest) -> tuple[ClaimReply, bool]:
        """Claims.

        Returns:
            The reply, and whether its number had brought jobs before.

        Raises:
            CancelledError: it was cancelled; what the claim brings is given back.
        """
        claim = asyncio.ensure_future(self._ask(request))
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            self._spawn(self._undo(request.worker, claim))
            raise

    async def _ask(self, request: ClaimRequest) -> tuple[ClaimReply, bool]:
        is_repeat = self._brought.get(request.worker, 0) >= request.request
        try:
            reply = await self._store.claim(request)
        except OutcomeUnknown:
            # A repeat of the same number brings what the first may have claimed.
            reply = await self._store.claim(request)
        if reply.jobs and not is_repeat:
            self._brought[request.worker] = request.request
            self._brought.move_to_end(request.worker)
            if len(self._brought) > MOST_REMEMBERED:
                self._brought.popitem(last=False)
        await log_dead(self._store, reply.dead)
        return reply, is_repeat

    async def _undo(self, worker: str, claim: asyncio.Future[tuple[ClaimReply, bool]]) -> None:
        try:
            reply, is_repeat = await claim
        except StoreError as error:
            _log.warning("what a claim brought is not known, and its puller is gone: %s", error)
            return
        if not is_repeat:
            await self._give_back(worker, reply.jobs)

    async def _give_back(self, worker: str, jobs: Sequence[Claimed]) -> None:
        if not jobs:
            return
        reason = "its puller was gone"
        outcomes = tuple(Released(job.id, job.run, reason=reason) for job in jobs)
        request = SettleRequest(worker=worker, outcomes=outcomes)
        end = self._timing.monotonic() + GIVE_BACK_WITHIN
        try:
            await persist(
                self._timing,
                "give back",
                lambda: self._store.settle(request),
                until=lambda: self._timing.monotonic() >= end,
            )
        except StoreError as error:
            _log.warning("%d jobs come back at the end of their lease: %s", len(jobs), error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _joined(looks: Sequence[Look]) -> Look:
    """What several claims found: the last one's jobs, else moments that hold for all of them."""
    last = looks[-1]
    if len(looks) == 1 or last.is_final:
        return last
    moments = [look.reply.next_at for look in looks]
    reply = replace(
        last.reply,
        next_at=min((at for at in moments if at is not None), default=None),
        seen=min(look.reply.seen for look in looks),
    )
    return replace(last, reply=reply, lanes=tuple(name for look in looks for name in look.lanes))
