"""The clock and the tasks of the simulated network, and the delivery of its webhooks.

Some webhooks are lost, late, repeated or out of order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog

from headway.carrier.application import DeliveryFailed, DeliveryRefused
from headway.carrier.script import Rates
from headway.core.retry import draw
from headway.runtime.timing import Timing


class Pace:
    """The clock of one network.

    Attributes:
        speed: how many times faster than real time it runs.
    """

    def __init__(self, timing: Timing, speed: float) -> None:
        self.timing = timing
        self.speed = speed

    def now_at(self) -> int:
        """Return the current time, ms UTC, which does not depend on the speed."""
        return self.timing.wall_at()

    def passed_ms(self) -> float:
        """Return the simulated monotonic time."""
        return self.timing.monotonic() * 1000 * self.speed

    async def pause(self, span_ms: float) -> None:
        """Wait for a simulated duration."""
        await self.timing.pause(span_ms / 1000 / self.speed)

    async def wait(self, event: asyncio.Event, span_ms: float) -> bool:
        """Wait for an event for up to a simulated duration; return whether it is set."""
        return await self.timing.wait(event, span_ms / 1000 / self.speed)


log = structlog.stdlib.get_logger("headway.telephony.simulated")


class Tasks:
    """The background tasks of one network."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background; an error that it raises is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def idle(self) -> None:
        """Wait until no task is running."""
        while self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """Cancel all tasks, including those that they start meanwhile."""
        while self._running:
            for one in self._running:
                one.cancel()
            await asyncio.wait(self._running)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("simulated network failed", exc_info=error)


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """The simulated delivery of a webhook.

    Attributes:
        lost: whether it never arrives.
        late_ms: delay; 0 for none.
        twice: whether it arrives twice.
        waits: whether it arrives after the next one.
    """

    lost: bool = False
    late_ms: int = 0
    twice: bool = False
    waits: bool = False

    @property
    def prompt(self) -> bool:
        """Whether the next one waits for it."""
        return not (self.lost or self.late_ms or self.waits)


def delivery_of(rates: Rates, seed: int, purpose: str) -> Delivery:
    """Draw the delivery of a webhook; the purpose must be unique to it."""

    def unit(what: str) -> float:
        return draw(f"{seed}:{purpose}:{what}")

    late, least, most = unit("late") < rates.post_late, *rates.late
    return Delivery(
        lost=unit("lost") < rates.post_lost,
        late_ms=least + round(unit("late by") * (most - least)) if late else 0,
        twice=unit("twice") < rates.post_twice,
        waits=unit("disordered") < rates.post_disordered,
    )


AGAIN_MS = 1_000
"""Delay of the repetition of a webhook, and of the first retry."""

Deliver = Callable[[], Awaitable[None]]


@dataclass(kw_only=True, slots=True)
class _Chain:
    """The undelivered webhooks of one call or message; prompt ones are delivered in order."""

    before: asyncio.Task[None] | None = None
    held: list[Deliver] = field(default_factory=list[Deliver])


class WebhookSender:
    """Delivers the webhooks of one network.

    Args:
        posts: counter of their results: sent, lost, late, twice, disordered, refused (by the
            application), undelivered (all tries failed).
    """

    def __init__(self, pace: Pace, tasks: Tasks, posts: Counter[str]) -> None:
        self._pace = pace
        self._tasks = tasks
        self._posts = posts
        self._chains: dict[str, _Chain] = {}

    def send(
        self, sid: str, delivery: Delivery, deliver: Deliver, *, tries: int = 1, last: bool = False
    ) -> None:
        """Send a webhook of a call or message in the background.

        Args:
            tries: maximum number of tries.
            last: whether it is the last one of its call or message.
        """
        chain = self._chains.setdefault(sid, _Chain())
        if last:
            del self._chains[sid]
        if delivery.waits and not last:
            self._posts["disordered"] += 1
            chain.held.append(deliver)
            return
        work = self._deliver(chain, chain.before, delivery, deliver, tries)
        task = self._tasks.spawn(work)
        if delivery.prompt:
            chain.before = task

    async def _deliver(
        self,
        chain: _Chain,
        before: asyncio.Task[None] | None,
        delivery: Delivery,
        deliver: Deliver,
        tries: int,
    ) -> None:
        if before is not None and delivery.prompt:
            await asyncio.wait([before])
        if delivery.late_ms:
            self._posts["late"] += 1
            await self._pace.pause(delivery.late_ms)
        if delivery.lost:
            self._posts["lost"] += 1
        else:
            await self._try(deliver, tries)
        while chain.held:
            await self._try(chain.held.pop(0), tries)
        if delivery.twice and not delivery.lost:
            self._posts["twice"] += 1
            await self._pace.pause(AGAIN_MS)
            await self._try(deliver, tries)

    async def _try(self, deliver: Deliver, tries: int) -> None:
        for nth in range(tries):
            if nth:
                await self._pace.pause(AGAIN_MS * 2 ** (nth - 1))
            try:
                await deliver()
            except DeliveryRefused:
                self._posts["refused"] += 1
                return
            except DeliveryFailed:
                continue
            self._posts["sent"] += 1
            return
        self._posts["undelivered"] += 1
