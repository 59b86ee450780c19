"""The state of a store at a bounded cost: an overview, and a feed of its changes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

import msgspec

from headway.contract.store import Store
from headway.contract.views import (
    GatesQuery,
    GateState,
    LanesQuery,
    LaneView,
    StatsQuery,
    StatsView,
    WorkersQuery,
    WorkerView,
)
from headway.core.errors import HeadwayError, InvariantBroken, TooManyRequests
from headway.runtime.records import Record, record
from headway.runtime.timing import Timing

MOST_GATES = 500
"""Maximum number of gates read: keyed templates may have millions."""
PAGE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """An overview of a store; its parts are read one after another.

    Attributes:
        lanes: all lanes, by name.
        gates: the first 500 gates, by name.
        more_gates: whether there are more gates.
        workers: workers that are live, or died less than an hour ago.
    """

    stats: StatsView
    lanes: tuple[LaneView, ...]
    gates: tuple[GateState, ...]
    more_gates: bool
    workers: tuple[WorkerView, ...]

    @property
    def targets(self) -> list[str]:
        """The names of the lanes that have a latency target."""
        return [lane.name for lane in self.lanes if lane.spec.target_ms is not None]


async def read_overview(store: Store) -> Overview:
    """Read an overview, at a cost that does not depend on the number of jobs."""
    lanes = await store.read(LanesQuery())
    gates: list[GateState] = []
    page = await store.read(GatesQuery(limit=PAGE))
    gates += page.rows
    while page.cursor is not None and len(gates) < MOST_GATES:
        page = await store.read(GatesQuery(cursor=page.cursor, limit=PAGE))
        gates += page.rows
    workers = await store.read(WorkersQuery())
    return Overview(
        # Read last, so that its time is not before anything else that was read.
        stats=await store.read(StatsQuery()),
        lanes=lanes,
        gates=tuple(gates),
        more_gates=page.cursor is not None,
        workers=workers,
    )


_Rows = Mapping[str, Record]
_Snapshot = Mapping[str, _Rows]
"""The record of each row, by part (`stats`, `lanes`, `gates`, `workers`) and name."""

ALL = "all"
"""The name of the only row of `stats`."""
_PASSING = ("now", "clock_ahead_ms")
"""Fields that differ in every snapshot, and so are not compared; `now` is sent separately."""


def snapshot(overview: Overview) -> _Snapshot:
    """Convert an overview to the records that are compared and sent."""
    stats = record(overview.stats)
    for name in _PASSING:
        del stats[name]
    return {
        "stats": {ALL: stats},
        "lanes": {lane.name: record(lane) for lane in overview.lanes},
        "gates": {gate.name: record(gate) for gate in overview.gates},
        "workers": {worker.id: record(worker) for worker in overview.workers},
    }


def difference(before: _Snapshot, after: _Snapshot) -> dict[str, dict[str, Record | None]]:
    """Return the changed rows by part and name, without parts that have none.

    A row is the new record, or None if it no longer exists.
    """
    found: dict[str, dict[str, Record | None]] = {}
    for part, rows in after.items():
        old = before[part]
        changed: dict[str, Record | None] = {
            name: row for name, row in rows.items() if old.get(name) != row
        }
        changed |= dict.fromkeys(old.keys() - rows.keys())
        if changed:
            found[part] = changed
    return found


MOST_WAITING = 32
"""Maximum number of messages queued for a subscriber; one more replaces all with a `whole`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedMessage:
    """A message of the feed.

    Attributes:
        id: increases with each message.
        event: "whole" replaces all earlier messages, "change" adds to them; "away" reports that
            the store does not respond.
        data: JSON.
    """

    id: str
    event: Literal["whole", "change", "away"]
    data: str


class Subscriber:
    """The queue of messages that a stream has not sent yet."""

    def __init__(self, whole: FeedMessage) -> None:
        self._waiting = deque([whole])
        self._changed = asyncio.Event()
        self._is_closed = False

    def put(self, message: FeedMessage, whole: FeedMessage) -> None:
        """Queue a message.

        Args:
            whole: the state after this message; replaces the queue if it is full.
        """
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.clear()
            message = whole
        self._waiting.append(message)
        self._changed.set()

    def close(self) -> None:
        """End the stream, and discard its queue."""
        self._is_closed = True
        self._changed.set()

    async def next(self) -> FeedMessage | None:
        """Wait for the next message and return it; None at the end."""
        while not self._is_closed:
            if self._waiting:
                return self._waiting.popleft()
            self._changed.clear()
            await self._changed.wait()
        return None


MOST_SUBSCRIBERS = 500

Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("headway.server")


class EventFeed:
    """Sends the changes in a store to all subscribers."""

    def __init__(self, store: Store, timing: Timing, *, each_s: float, spawn: Spawn) -> None:
        self._store = store
        self._timing = timing
        self._each_s = each_s
        self._spawn = spawn
        self._subscribers: set[Subscriber] = set()
        self._reader: asyncio.Task[None] | None = None
        self._start_lock = asyncio.Lock()
        self._seen: _Snapshot = {}
        self._whole: FeedMessage | None = None
        self._away: FeedMessage | None = None
        self._is_closed = False
        # Distinguishes message ids from those before a restart, for clients that reconnect.
        self._start = uuid4().hex[:8]
        self._number = 0

    def __len__(self) -> int:
        """Return the number of subscribers."""
        return len(self._subscribers)

    async def join(self) -> Subscriber:
        """Add a subscriber, whose first message is a `whole`.

        Raises:
            TooManyRequests: there are 500 subscribers already.
        """
        if len(self._subscribers) >= MOST_SUBSCRIBERS:
            message = f"this server already has {MOST_SUBSCRIBERS} event streams"
            raise TooManyRequests(message, hint="close one, or request snapshots")
        async with self._start_lock:
            if not self._is_reading:
                self._reset(await read_overview(self._store))
        subscriber = Subscriber(self._newest())
        if self._away is not None:
            subscriber.put(self._away, self._away)
        self._subscribers.add(subscriber)
        if self._is_closed:
            subscriber.close()
        elif not self._is_reading:
            self._reader = self._spawn(self._read_periodically(), "events")
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber; stop reading the store if it was the last one."""
        self._subscribers.discard(subscriber)
        if not self._subscribers and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def close(self) -> None:
        """End all streams; streams that start later end at once."""
        self._is_closed = True
        for subscriber in self._subscribers:
            subscriber.close()

    @property
    def _is_reading(self) -> bool:
        return self._reader is not None and not self._reader.done()

    async def _read_periodically(self) -> None:
        while True:
            await self._timing.pause(self._each_s)
            try:
                overview = await read_overview(self._store)
            except HeadwayError as error:
                self._publish_away(error)
                continue
            if self._away is not None:
                self._reset(overview)
                self._send(self._newest())
            else:
                self._publish_changes(overview)

    def _reset(self, overview: Overview) -> None:
        self._away = None
        self._seen = snapshot(overview)
        self._whole = self._message("whole", {"now": overview.stats.now, **self._seen})

    def _publish_changes(self, overview: Overview) -> None:
        after = snapshot(overview)
        changes = difference(self._seen, after)
        if not changes:
            return
        self._seen = after
        now = overview.stats.now
        change = self._message("change", {"now": now, **changes})
        self._whole = FeedMessage(id=change.id, event="whole", data=_text({"now": now, **after}))
        self._send(change)

    def _publish_away(self, error: HeadwayError) -> None:
        if self._away is None:
            _log.warning("events: the store did not respond: %s", error)
            self._away = self._message("away", {"code": error.code})
            self._send(self._away)

    def _send(self, message: FeedMessage) -> None:
        whole = self._away or self._newest()
        for subscriber in self._subscribers:
            subscriber.put(message, whole)

    def _message(self, event: Literal["whole", "change", "away"], data: object) -> FeedMessage:
        self._number += 1
        return FeedMessage(id=f"{self._start}-{self._number}", event=event, data=_text(data))

    def _newest(self) -> FeedMessage:
        if self._whole is None:
            message = "the feed has not read the store yet"
            raise InvariantBroken(message)
        return self._whole


def _text(data: object) -> str:
    return _encode(data).decode()
