"""Reading recipients and templates at the moment of a send: fresh, and many in one query."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from headway.systems.directory.database import Directory
from headway.systems.directory.records import R
from headway.systems.notifications.records import MessageTemplate, Recipient

MOST = 500
"""Recipients of one query."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was read for one send; None for what there is not, or was not asked for."""

    recipient: Recipient | None
    template: MessageTemplate | None


@dataclass(slots=True, eq=False)
class _Asked:
    recipient: str
    template: str | None
    answer: asyncio.Future[Found] = field(default_factory=asyncio.Future[Found])


class Reader:
    """Reads for handlers that run at once.

    A call that comes while a query runs is answered by the next one, never by the running one:
    what it gets was read after it asked.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._waiting: list[_Asked] = []
        self._task: asyncio.Task[None] | None = None

    async def read(self, recipient: str, template: str | None) -> Found:
        """Read a recipient and a template.

        Raises:
            StoreUnavailable: the directory cannot be reached.
        """
        asked = _Asked(recipient, template)
        self._waiting.append(asked)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="recipients")
        return await asked.answer

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            try:
                async with self._directory.read() as session:
                    await _answer(session, batch)
            # Whatever it is, each waiting caller gets it.
            except BaseException as error:
                for one in batch:
                    if not one.answer.done():
                        one.answer.set_exception(error)
                if not isinstance(error, Exception):
                    raise


async def _answer(session: AsyncSession, batch: Sequence[_Asked]) -> None:
    recipients = await _by_id(session, Recipient, {one.recipient for one in batch})
    named = {one.template for one in batch if one.template is not None}
    templates = await _by_id(session, MessageTemplate, named) if named else {}
    for one in batch:
        if not one.answer.done():
            found = Found(recipients.get(one.recipient), templates.get(one.template or ""))
            one.answer.set_result(found)


async def _by_id(session: AsyncSession, table: type[R], ids: set[str]) -> dict[str, R]:
    return {one.id: one for one in await session.scalars(select(table).where(table.id.in_(ids)))}
