"""The heartbeat: keeps the leases of a worker, however busy its handlers are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headway.contract.claims import BeatReply, BeatRequest
from headway.contract.store import Store
from headway.core.instant import format_instant
from headway.runtime.persist import PASSING
from headway.runtime.timing import Timing
from headway.runtime.worker.held import Held
from headway.runtime.worker.lease import Lease

SOONEST = 0.25
"""Seconds between two beats that carry progress."""
STILL = 1.0
"""Seconds between two beats after which the store's time must have moved."""

_log = logging.getLogger("headway.worker")


class Heartbeat:
    """Beats three times a lease, and says what the store answers."""

    def __init__(  # noqa: PLR0913  (the parts that it joins)
        self,
        store: Store,
        worker: str,
        *,
        name: str,
        lanes: tuple[str, ...],
        held: Held,
        lease: Lease,
        timing: Timing,
        on_reply: Callable[[BeatReply], None],
        on_lapse: Callable[[], None],
    ) -> None:
        """Makes one.

        Args:
            store: to beat in.
            worker: its random id.
            name: for people.
            lanes: what it serves.
            held: what it holds.
            lease: its lease.
            timing: for the pauses.
            on_reply: told each answer; called where the heart beats.
            on_lapse: told when the lease is about to end; called where the heart beats.
        """
        self._store = store
        self._worker = worker
        self._name = name
        self._lanes = lanes
        self._held = held
        self._lease = lease
        self._timing = timing
        self._on_reply = on_reply
        self._on_lapse = on_lapse
        self._poked = asyncio.Event()
        self._beaten_at = float("-inf")
        self._store_now = -1
        self._still = False

    def poke(self) -> None:
        """Beats soon, because there is progress to carry."""
        self._poked.set()

    async def run(self) -> None:
        """Beats until it is cancelled.

        Raises:
            StoreError: one that does not heal by itself.
        """
        lapsed = False
        while True:
            alive = await self._beat()
            if alive:
                lapsed = False
                seconds = self._lease.interval
            else:
                late = self._lease.lapsing(self._timing.monotonic())
                if late and not lapsed:
                    lapsed = True
                    _log.error("no beat reached the store: handlers are told to stop")
                    self._on_lapse()
                seconds = min(self._lease.interval / 8, 1.0)
            if await self._timing.wait(self._poked, seconds) and alive:
                rest = self._beaten_at + SOONEST - self._timing.monotonic()
                await self._timing.pause(max(rest, 0))
            self._poked.clear()

    async def leave(self) -> None:
        """Says that the worker has stopped and holds nothing more."""
        request, _ = self._held.listed()
        await self._store.beat(
            BeatRequest(
                worker=self._worker,
                request=request,
                lease_ms=self._lease.ms,
                lanes=self._lanes,
                name=self._name,
                progress=self._held.take_progress(),
                leaving=True,
            )
        )

    async def _beat(self) -> bool:
        """Beats once.

        Returns:
            Whether the store answered.
        """
        request, running = self._held.listed()
        progress = self._held.take_progress()
        sent = self._timing.monotonic()
        # A beat that hangs must not keep the heart from seeing that the lease ends.
        limit = max(self._lease.stop_by - sent, self._lease.interval / 4)
        try:
            async with self._timing.limit(min(limit, self._lease.interval * 2)):
                reply = await self._store.beat(
                    BeatRequest(
                        worker=self._worker,
                        running=running,
                        request=request,
                        lease_ms=self._lease.ms,
                        lanes=self._lanes,
                        name=self._name,
                        progress=progress,
                    )
                )
        except (*PASSING, TimeoutError) as error:
            _log.warning("beat: %s", str(error) or "the store did not answer in time")
            self._held.put_back(progress)
            return False
        self._watch_time(sent, reply.now)
        self._beaten_at = sent
        self._lease.kept(sent, reply.lease_until - reply.now)
        self._on_reply(reply)
        return True

    def _watch_time(self, sent: float, now: int) -> None:
        """Log once that the store's time stands still, because its clock was set back."""
        if now != self._store_now:
            self._store_now, self._still = now, False
        elif not self._still and sent - self._beaten_at >= STILL:
            self._still = True
            _log.error(
                "the store's time stands still at %s: its clock was set back, and nothing falls due"
                " until it is there again; `headway doctor` shows by how much",
                format_instant(now),
            )
