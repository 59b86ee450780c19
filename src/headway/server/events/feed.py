"""The feed: looks at the store each second for all subscribers, and only while there are any."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal
from uuid import uuid4

import msgspec

from headway.contract.store import Store
from headway.core.errors import HeadwayError, InvariantBroken, TooManyRequests
from headway.runtime.timing import Timing
from headway.server.events.snapshot import Snapshot, difference, snapshot
from headway.server.events.subscriber import Message, Subscriber
from headway.server.overview import Overview, look_over

MOST_SUBSCRIBERS = 500

Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("headway.server")


class Feed:
    """What changes in a store, told to whoever subscribes."""

    def __init__(self, store: Store, timing: Timing, *, each_s: float, spawn: Spawn) -> None:
        """Looks at nothing yet.

        Args:
            store: what is looked at.
            timing: for the rests between.
            each_s: from one look to the next.
            spawn: runs the looking.
        """
        self._store = store
        self._timing = timing
        self._each_s = each_s
        self._spawn = spawn
        self._subscribers: set[Subscriber] = set()
        self._looking: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._seen: Snapshot = {}
        self._whole: Message | None = None
        self._is_away = False
        self._is_closed = False
        # A client that comes back must not take the numbers of another start for its own.
        self._start = uuid4().hex[:8]
        self._number = 0

    def __len__(self) -> int:
        """How many subscribers there are."""
        return len(self._subscribers)

    async def join(self) -> Subscriber:
        """Adds a subscriber, whose first message is the whole.

        Raises:
            TooManyRequests: there are 500 already.
            StoreError: the store cannot tell now.
        """
        if len(self._subscribers) >= MOST_SUBSCRIBERS:
            message = f"this server feeds {MOST_SUBSCRIBERS} event streams already"
            raise TooManyRequests(message, hint="close one, or ask for snapshots")
        async with self._beginning:
            if not self._is_looking:
                self._begin(await look_over(self._store))
        subscriber = Subscriber(self._newest())
        self._subscribers.add(subscriber)
        if self._is_closed:
            subscriber.close()
        elif not self._is_looking:
            self._looking = self._spawn(self._look_on(), "events")
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """Takes a subscriber away; with the last one the looking ends."""
        self._subscribers.discard(subscriber)
        if not self._subscribers and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def close(self) -> None:
        """Ends all streams, and those that begin from now on."""
        self._is_closed = True
        for subscriber in self._subscribers:
            subscriber.close()

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and not self._looking.done()

    async def _look_on(self) -> None:
        while True:
            await self._timing.pause(self._each_s)
            try:
                overview = await look_over(self._store)
            except HeadwayError as error:
                self._tell_away(error)
                continue
            if self._is_away:
                self._is_away = False
                self._begin(overview)
                self._send(self._newest())
            else:
                self._tell_changes(overview)

    def _begin(self, overview: Overview) -> None:
        self._seen = snapshot(overview)
        self._whole = self._message("whole", {"now": overview.stats.now, **self._seen})

    def _tell_changes(self, overview: Overview) -> None:
        after = snapshot(overview)
        changes = difference(self._seen, after)
        if not changes:
            return
        self._seen = after
        now = overview.stats.now
        change = self._message("change", {"now": now, **changes})
        self._whole = Message(id=change.id, event="whole", data=_text({"now": now, **after}))
        self._send(change)

    def _tell_away(self, error: HeadwayError) -> None:
        if not self._is_away:
            self._is_away = True
            _log.warning("events: the store does not answer: %s", error)
            self._send(self._message("away", {"code": error.code}))

    def _send(self, message: Message) -> None:
        whole = self._newest()
        for subscriber in self._subscribers:
            subscriber.put(message, whole)

    def _message(self, event: Literal["whole", "change", "away"], data: object) -> Message:
        self._number += 1
        return Message(id=f"{self._start}-{self._number}", event=event, data=_text(data))

    def _newest(self) -> Message:
        if self._whole is None:
            message = "the feed has looked at nothing yet"
            raise InvariantBroken(message)
        return self._whole


def _text(data: object) -> str:
    return _encode(data).decode()
