"""Batches: what handlers that run at once ask for, asked together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Batches(Generic[Asked, Answer]):
    """Answers calls by batches, one after another.

    A call that comes while a batch runs is answered by the next one, never by the running one:
    what it gets was done after it asked.
    """

    def __init__(
        self, do: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]], most: int
    ) -> None:
        """Have nothing to do yet.

        Args:
            do: answers a batch, in its order; what it raises is raised by each of these calls.
            most: calls of one batch.
        """
        self._do = do
        self._most = most
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, asked: Asked) -> Answer:
        """Ask for one; a caller that no longer waits takes nothing from the others."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((asked, answer))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="batches")
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            batch = self._waiting[: self._most]
            self._waiting = self._waiting[self._most :]
            try:
                answers = await self._do([asked for asked, _ in batch])
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
            # Whatever it is, each waiting caller gets it.
            except BaseException as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                if not isinstance(error, Exception):
                    raise
