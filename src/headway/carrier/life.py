"""The life of one simulated call, from the request to the end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from headway.carrier.application import Application
from headway.carrier.conversation import Conversation
from headway.carrier.ledger import Call
from headway.carrier.pace import Pace
from headway.systems.telephony.voice import CallStatus

SETUP_MS = 500
"""How long it takes until it rings, or a call fails."""
BUSY_MS = 2_000
"""How long it takes until a busy line is found out."""


class Life:
    """The life of one call.

    Args:
        call: is written on.
        pace: of the world.
        application: placed it.
        tell: called at each change of its status, after it.
    """

    def __init__(
        self, call: Call, pace: Pace, application: Application, tell: Callable[[Call], None]
    ) -> None:
        self.ended = asyncio.Event()
        self._call = call
        self._pace = pace
        self._application = application
        self._tell = tell
        self._hung = asyncio.Event()
        self._talking: asyncio.Task[None] | None = None
        self._words = (call.plan.words, call.plan.words_url, call.plan.words_method)
        self._is_led_on = False

    async def run(self) -> None:
        """Lives the whole life."""
        call = self._call
        end = await self._until_end()
        call.status = end
        call.ended_at = self._pace.now_at()
        self._tell(call)
        self.ended.set()

    def hang_up(self) -> None:
        """Ends the call, from either side."""
        self._hung.set()
        if self._talking is not None:
            self._talking.cancel()

    def lead_on(self, words: str | None, url: str | None, method: str) -> None:
        """Has other words followed from now on; only while somebody listens."""
        self._words = (words, url, method)
        self._is_led_on = True
        if self._talking is not None:
            self._talking.cancel()

    async def _until_end(self) -> CallStatus:
        call, fate = self._call, self._call.fate
        if await self._pace.wait(self._hung, SETUP_MS):
            return CallStatus.CANCELED
        if fate.end is CallStatus.FAILED:
            return CallStatus.FAILED
        call.status = CallStatus.RINGING
        self._tell(call)
        rings = call.plan.ring_ms if fate.end is CallStatus.NO_ANSWER else fate.ring_ms
        if fate.end is CallStatus.BUSY:
            rings = BUSY_MS
        if await self._pace.wait(self._hung, min(rings, call.plan.ring_ms)):
            return CallStatus.CANCELED
        if fate.end is CallStatus.BUSY:
            return CallStatus.BUSY
        if fate.end is CallStatus.NO_ANSWER or fate.ring_ms > call.plan.ring_ms:
            return CallStatus.NO_ANSWER
        call.status = CallStatus.IN_PROGRESS
        call.answered_at = self._pace.now_at()
        self._tell(call)
        await self._talk()
        return CallStatus.COMPLETED

    async def _talk(self) -> None:
        conversation = Conversation(self._call, self._pace, self._application)
        following = True
        while following and not self._hung.is_set():
            following = False
            self._talking = asyncio.create_task(conversation.follow(*self._words))
            try:
                await self._talking
            except asyncio.CancelledError:
                if not (self._hung.is_set() or self._is_led_on):
                    raise
                following, self._is_led_on = self._is_led_on, False
        self._call.duration_s = math.ceil(conversation.spent_ms / 1000)
