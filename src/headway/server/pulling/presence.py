"""Presence: whether the client of a request is still there, as far as anybody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client went away before it was answered; nobody reads what follows."""


class Presence:
    """Watches a client; to be closed with the request, unless `during` raised.

    Args:
        receive: of the request, whose body has been read.
    """

    def __init__(self, receive: Receive) -> None:
        self._watch = asyncio.ensure_future(_until_gone(receive))

    @property
    def is_gone(self) -> bool:
        """Whether it went away."""
        return self._watch.done()

    async def during(
        self, work: Coroutine[Any, Any, Result], undo: Callable[[Result], None]
    ) -> Result:
        """Does something for as long as the client is there.

        Args:
            work: cancelled when the client goes.
            undo: given what the work brought, where nobody can be told of it.

        Returns:
            What the work brought.

        Raises:
            ClientGone: it went away first.
        """
        task = asyncio.ensure_future(work)
        is_answered = False
        try:
            await asyncio.wait((task, self._watch), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                result = task.result()
                is_answered = True
                return result
        finally:
            if not is_answered:
                self.close()
                await _end(task, undo)
        raise ClientGone

    def close(self) -> None:
        """Ends the watch."""
        self._watch.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _end(task: asyncio.Future[Result], undo: Callable[[Result], None]) -> None:
    """Cancels work; what it brought all the same is undone."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and task.exception() is None:
        undo(task.result())
