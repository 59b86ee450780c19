"""A subscriber: one stream's messages, and never many of them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Literal

MOST_WAITING = 32
"""Messages that wait for a slow subscriber; with one more it gets the newest whole instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One event.

    Attributes:
        id: grows with each.
        event: "whole" replaces all that was said, "change" adds to it; "away" says that the
            store does not answer.
        data: JSON.
    """

    id: str
    event: Literal["whole", "change", "away"]
    data: str


class Subscriber:
    """The messages that one stream has not sent yet."""

    def __init__(self, whole: Message) -> None:
        """Begins with a whole.

        Args:
            whole: the newest.
        """
        self._waiting = deque([whole])
        self._changed = asyncio.Event()
        self._is_closed = False

    def put(self, message: Message, whole: Message) -> None:
        """Adds a message.

        Args:
            message: the next.
            whole: what it and all before it amount to; takes the place of too many of them.
        """
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.clear()
            message = whole
        self._waiting.append(message)
        self._changed.set()

    def close(self) -> None:
        """Ends the stream, whatever still waits."""
        self._is_closed = True
        self._changed.set()

    async def next(self) -> Message | None:
        """The next message, when there is one; None at the end."""
        while not self._is_closed:
            if self._waiting:
                return self._waiting.popleft()
            self._changed.clear()
            await self._changed.wait()
        return None
