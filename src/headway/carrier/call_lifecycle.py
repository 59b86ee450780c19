"""The life of one simulated call: it rings, is answered, and follows the application's script."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import assert_never
from urllib.parse import urljoin

from headway.carrier.application import (
    Application,
    CallStep,
    DeliveryFailed,
    Gather,
    HangUp,
    Redirect,
    ReplyMessage,
    Silence,
    SpokenText,
    Talk,
    read_twiml,
)
from headway.carrier.ledger import PlacedCall
from headway.carrier.webhook_delivery import Pace
from headway.core.errors import InvalidValue
from headway.systems.telephony.voice import CallStatus

LISTEN_MS = 2_000
"""How long a spoken text takes, in a script that asks something."""
_MOST_DOCUMENTS = 100
_SORRY = "An application error has occurred. Goodbye."


class _Over(Exception):
    """Raised when the person or a limit ends the call."""


class Conversation:
    """The part of a call after it was answered.

    A script that asks nothing lasts as long as the person talks; one that asks something lasts as
    long as its texts and the answers.

    Attributes:
        spent_ms: simulated length so far.
    """

    def __init__(self, call: PlacedCall, pace: Pace, application: Application) -> None:
        self.spent_ms = 0.0
        self._call = call
        self._pace = pace
        self._application = application
        self._left_ms = float(call.plan.limit_ms)
        if call.outcome.leaves_ms is not None:
            self._left_ms = min(self._left_ms, call.outcome.leaves_ms)
        self._think_ms = float(call.outcome.think_ms)
        self._asked = False
        self._base = call.plan.words_url

    async def follow(self, words: str | None, url: str | None, method: str) -> None:
        """Follow an application's script to its end.

        Args:
            words: TwiML; None to fetch it from `url`.
        """
        try:
            document = (
                await self._fetch(url, method) if words is None and url is not None else words
            )
            for _ in range(_MOST_DOCUMENTS):
                if document is None:
                    return
                document = await self._document(document)
            self._call.problems.append("11205 the application's documents form a loop")
        except _Over:
            return
        except (DeliveryFailed, InvalidValue) as error:
            self._call.problems.append(str(error))
            self._call.heard.append(_SORRY)

    async def _document(self, document: str) -> str | None:
        """Follow one document, and return the next one; None at the end."""
        steps = read_twiml(document)
        self._asked = self._asked or any(isinstance(one, Gather | Redirect) for one in steps)
        for one in steps:
            following = await self._step(one)
            if following is not None or isinstance(one, HangUp):
                return following
        if not self._asked:
            await self._spend(max(0, self._call.outcome.talk_ms - self.spent_ms))
        return None

    async def _step(self, one: CallStep) -> str | None:
        match one:
            case SpokenText(text=text):
                await self._say(text)
            case Silence(pause_ms=pause_ms):
                await self._spend(pause_ms)
            case Talk():
                await self._spend(self._call.outcome.talk_ms)
            case Gather():
                return await self._gather(one)
            case Redirect(url=url, method=method):
                return await self._fetch(url, method)
            case HangUp() | ReplyMessage():
                pass
            case _:
                assert_never(one)
        return None

    async def _say(self, text: str) -> None:
        self._call.heard.append(text)
        if self._asked:
            await self._spend(LISTEN_MS)

    async def _gather(self, asked: Gather) -> str | None:
        self._call.heard.extend(asked.prompts)
        window = asked.timeout_ms + LISTEN_MS * len(asked.prompts)
        digits = self._call.outcome.digits[: asked.digits]
        if digits and self._think_ms <= window:
            await self._spend(self._think_ms)
            self._think_ms = self._call.outcome.think_ms
        else:
            await self._spend(window)
            self._think_ms = max(0, self._think_ms - window)
            if not asked.reports_none:
                return None
            digits = ""
        self._call.pressed.append(digits)
        fields = [("Digits", digits), ("msg", "Gather End"), ("FinishedOnKey", "")]
        return await self._fetch(asked.action or self._base, asked.method, fields)

    async def _fetch(
        self, url: str | None, method: str, more: Sequence[tuple[str, str]] = ()
    ) -> str:
        if url is None and self._base is None:
            message = "11100 there is no URL for the next document"
            raise DeliveryFailed(message)
        try:
            self._base = urljoin(self._base or "", url or "")
        except ValueError as error:
            message = f"11100 {url!r:.200} is not a URL"
            raise DeliveryFailed(message) from error
        return await self._application.words(self._call, self._base, method, more)

    async def _spend(self, span_ms: float) -> None:
        began = self._pace.passed_ms()
        span = min(span_ms, self._left_ms)
        try:
            await self._pace.pause(span)
        except asyncio.CancelledError:
            self.spent_ms += min(span, self._pace.passed_ms() - began)
            raise
        self.spent_ms += span
        self._left_ms -= span
        if self._left_ms <= 0:
            raise _Over


SETUP_MS = 500
"""Time until a call rings or fails."""
BUSY_MS = 2_000
"""Time until a busy line is detected."""


class Life:
    """The life of one call.

    Args:
        notify: called after each change of its status.
    """

    def __init__(
        self,
        call: PlacedCall,
        pace: Pace,
        application: Application,
        notify: Callable[[PlacedCall], None],
    ) -> None:
        self.ended = asyncio.Event()
        self._call = call
        self._pace = pace
        self._application = application
        self._notify = notify
        self._hung = asyncio.Event()
        self._talking: asyncio.Task[None] | None = None
        self._words = (call.plan.words, call.plan.words_url, call.plan.words_method)
        self._is_replaced = False

    async def run(self) -> None:
        """Run the call from start to end."""
        call = self._call
        end = await self._until_end()
        call.status = end
        call.ended_at = self._pace.now_at()
        self._notify(call)
        self.ended.set()

    def hang_up(self) -> None:
        """End the call, from either side."""
        self._hung.set()
        if self._talking is not None:
            self._talking.cancel()

    def replace_script(self, words: str | None, url: str | None, method: str) -> None:
        """Replace the script; only while the call is answered."""
        self._words = (words, url, method)
        self._is_replaced = True
        if self._talking is not None:
            self._talking.cancel()

    async def _until_end(self) -> CallStatus:
        call, outcome = self._call, self._call.outcome
        if await self._pace.wait(self._hung, SETUP_MS):
            return CallStatus.CANCELED
        if outcome.end is CallStatus.FAILED:
            return CallStatus.FAILED
        call.status = CallStatus.RINGING
        self._notify(call)
        rings = call.plan.ring_ms if outcome.end is CallStatus.NO_ANSWER else outcome.ring_ms
        if outcome.end is CallStatus.BUSY:
            rings = BUSY_MS
        if await self._pace.wait(self._hung, min(rings, call.plan.ring_ms)):
            return CallStatus.CANCELED
        if outcome.end is CallStatus.BUSY:
            return CallStatus.BUSY
        if outcome.end is CallStatus.NO_ANSWER or outcome.ring_ms > call.plan.ring_ms:
            return CallStatus.NO_ANSWER
        call.status = CallStatus.IN_PROGRESS
        call.answered_at = self._pace.now_at()
        self._notify(call)
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
                if not (self._hung.is_set() or self._is_replaced):
                    raise
                following, self._is_replaced = self._is_replaced, False
        self._call.duration_s = math.ceil(conversation.spent_ms / 1000)
