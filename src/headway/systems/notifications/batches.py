"""Batches: the calls of concurrent handlers, processed together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Batches(Generic[Asked, Answer]):
    """Processes calls in batches, one batch at a time.

    A call that arrives while a batch is running joins the next one, so that its result is never
    older than the call.
    """

    def __init__(
        self, do: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]], most: int
    ) -> None:
        """Start without calls.

        Args:
            do: processes a batch, and returns its results in order; each call of the batch raises
                what it raises.
            most: maximum calls per batch.
        """
        self._do = do
        self._most = most
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, asked: Asked) -> Answer:
        """Add a call to the next batch, and return its result; cancellation leaves others alone."""
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
            # Each waiting caller gets the exception, whatever it is.
            except BaseException as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                if not isinstance(error, Exception):
                    raise
