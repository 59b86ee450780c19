"""The feed of the live page: one look a second for all who watch, and only while anybody does."""

from __future__ import annotations

import asyncio
import logging
from uuid import uuid4

import msgspec

from headway.core.errors import HeadwayError, TooManyRequests
from headway.server.events.subscriber import Message, Subscriber
from headway.server.service import Service
from headway.systems.directory.database import Directory
from headway.systems.field_service.live.board import Board, look_at_board
from headway.systems.field_service.live.rendering import fragment

EACH_S = 1.0
MOST_WATCHERS = 500
_log = logging.getLogger("headway.field_service")


class LiveFeed:
    """The board, sent to whoever watches whenever it changes."""

    def __init__(self, service: Service, directory: Directory) -> None:
        """Looks at nothing yet.

        Args:
            service: whose store is looked at, and that runs the looking.
            directory: of the technicians' names.
        """
        self._service = service
        self._directory = directory
        self._watchers: set[Subscriber] = set()
        self._looking: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._shown: tuple[object, ...] | None = None
        self._newest: Message | None = None
        self._start = uuid4().hex[:8]
        self._number = 0
        service.spawn(self._end(), "live page's end")

    async def join(self) -> Subscriber:
        """Adds a watcher, whose first message is the whole board.

        Raises:
            TooManyRequests: there are 500 already.
            StoreError: the store cannot tell now.
        """
        if len(self._watchers) >= MOST_WATCHERS:
            message = f"{MOST_WATCHERS} watch the live page already"
            raise TooManyRequests(message, hint="close one")
        async with self._beginning:
            if self._newest is None or self._looking is None or self._looking.done():
                self._newest = self._message(await self._look())
                self._looking = self._service.spawn(self._look_on(), "live page")
            watcher = Subscriber(self._newest)
            self._watchers.add(watcher)
            return watcher

    def leave(self, watcher: Subscriber) -> None:
        """Lets a watcher go; with the last one the looking ends."""
        self._watchers.discard(watcher)
        if not self._watchers and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> Board:
        board = await look_at_board(self._service.store, self._directory)
        self._shown = _content(board)
        return board

    async def _look_on(self) -> None:
        while True:
            await self._service.timing.pause(EACH_S)
            before = self._shown
            try:
                board = await self._look()
            except HeadwayError as error:
                if self._shown is not None:
                    _log.warning("live page: the store does not answer: %s", error)
                    self._shown = None
                    self._send(self._away(error))
                continue
            if self._shown != before:
                self._newest = self._message(board)
                self._send(self._newest)

    def _send(self, message: Message) -> None:
        for one in self._watchers:
            one.put(message, self._newest or message)

    def _message(self, board: Board) -> Message:
        data = msgspec.json.encode({"now": board.now, "html": fragment(board)}).decode()
        return Message(id=self._next_id(), event="whole", data=data)

    def _away(self, error: HeadwayError) -> Message:
        data = msgspec.json.encode({"code": error.code}).decode()
        return Message(id=self._next_id(), event="away", data=data)

    def _next_id(self) -> str:
        self._number += 1
        return f"{self._start}-{self._number}"

    async def _end(self) -> None:
        await self._service.stopping.wait()
        for one in self._watchers:
            one.close()


def _content(board: Board) -> tuple[object, ...]:
    """What a look shows besides the time that passes."""
    return (
        tuple(
            (
                one.id,
                one.status,
                one.asked,
                one.left,
                one.technician,
                one.dispatched,
                None if one.offer is None else (one.offer.technician, one.offer.until),
            )
            for one in board.requests
        ),
        tuple(sorted(board.names.items())),
    )
