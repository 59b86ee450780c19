"""Two stores that get the same calls, and must reply the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.store import Clock, Store
from headway.contract.views import JobView, Page, StatsView, TrailView
from headway.core.errors import HeadwayError, InvariantBroken
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.dump import Dump, compare, differences, dump, unnumbered

Reply = TypeVar("Reply")


class Pair:
    """A memory store and another store under one clock."""

    def __init__(self, other: str, open_other: Callable[[Clock], Store]) -> None:
        self.other = other
        self.clock = FakeClock()
        self.loop = asyncio.new_event_loop()
        self.stores: tuple[Store, Store] = (
            MemoryStore(clock=self.clock),
            open_other(self.clock),
        )
        self.after: dict[str, list[ClaimReply]] = {}
        self.parted = False
        self.woken = [Woken(store, self.clock) for store in self.stores]

    def ask(self, question: Callable[[Store], Awaitable[Reply]]) -> Reply | HeadwayError:
        """Call both; return the reply, or the error that both raise, which must be the same."""
        one, two = (self._reply_or_error(question(store)) for store in self.stores)
        self._same(plain(one), plain(two))
        self._same_wakes()
        return one

    def claim(self, request: ClaimRequest, *, go_on: bool) -> ClaimReply | HeadwayError:
        """Claim from both, each with its own cursor."""
        last = self.after.get(request.worker) if go_on else None
        replies = [
            self._reply_or_error(
                store.claim(replace(request, after=last[n].after) if last else request)
            )
            for n, store in enumerate(self.stores)
        ]
        self._same(plain(replies[0]), plain(replies[1]))
        self._same_wakes()
        if isinstance(replies[0], ClaimReply):
            self.after[request.worker] = [
                reply for reply in replies if isinstance(reply, ClaimReply)
            ]
        return replies[0]

    def compare(self) -> None:
        """Check that everything readable is equal in both, and that the audits are clean."""
        if self.parted:
            return
        one, two = (self._dumped(store) for store in self.stores)
        self._same(compare(one, two), [])
        for store in self.stores:
            self._same(self.loop.run_until_complete(differences(store)), [])

    def _dumped(self, store: Store) -> Dump:
        return unnumbered(self.loop.run_until_complete(dump(store)))

    def _same_wakes(self) -> None:
        one, two = (woken.take() for woken in self.woken)
        self._same(one, two)

    def _same(self, one: object, two: object) -> None:
        self.parted = self.parted or one != two
        assert one == two, f"memory: {one}\n{self.other}: {two}"

    def close(self) -> None:
        for store in self.stores:
            self.loop.run_until_complete(store.close())
        self.loop.close()

    def _reply_or_error(self, answer: Awaitable[Reply]) -> Reply | HeadwayError:
        async def wait() -> Reply:
            return await answer

        try:
            return self.loop.run_until_complete(wait())
        except InvariantBroken:
            self.parted = True
            raise
        except HeadwayError as error:
            return error


class Woken:
    """Lanes that a store has woken since the last `take`, with the earliest time; None: now."""

    def __init__(self, store: Any, clock: FakeClock) -> None:
        self._clock = clock
        self._lanes: dict[str | None, int | None] = {}
        wakes = store._wakes
        wake = wakes.wake

        def record(lanes: Iterable[tuple[str | None, int | None]]) -> None:
            given = list(lanes)
            for lane, at in given:
                self._note(lane, at)
            wake(given)

        wakes.wake = record

    def _note(self, lane: str | None, at: int | None) -> None:
        if at is not None and at <= self._clock():
            at = None
        known = self._lanes.get(lane, at)
        self._lanes[lane] = None if at is None or known is None else min(at, known)

    def take(self) -> dict[str | None, int | None]:
        """Return what was woken since the last call, and clear it."""
        taken, self._lanes = self._lanes, {}
        return taken


def plain(reply: object) -> object:
    """Return a reply without what may differ: cursors, wake and row numbers, store identity."""
    if isinstance(reply, HeadwayError):
        return type(reply), str(reply)
    if isinstance(reply, ClaimReply):
        return replace(reply, after={}, seen=0)
    if isinstance(reply, Page):
        return tuple(_unnumbered(row) for row in reply.rows), reply.cursor is None
    if isinstance(reply, StatsView):
        return replace(reply, identity="")
    return _unnumbered(reply)


def _unnumbered(record: Any) -> Any:
    """See `headway.testing.dump.unnumbered`."""
    return replace(record, seq=0) if isinstance(record, JobView | TrailView) else record
