"""The book: numbers and templates as they are now, read at most once a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import UnknownRecord
from headway.runtime.timing import Timing
from headway.systems.calls.number import Number
from headway.systems.calls.records import NumberRecord, RevisionRecord, TemplateRecord
from headway.systems.calls.template import DEFAULT, Template
from headway.systems.calls.template_body import TemplateBody
from headway.systems.directory.database import Directory

FRESH_S = 1.0
"""How old a page of the book may be; a change made by another process is seen after this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The book as of one revision.

    Attributes:
        revision: grows with each change.
        numbers: all, by number.
        templates: all that are stored, and `default`, by name.
    """

    revision: int
    numbers: Mapping[str, Number]
    templates: Mapping[str, Template]

    def template(self, name: str) -> Template:
        """The template of a name.

        Raises:
            UnknownRecord: there is none.
        """
        found = self.templates.get(name)
        if found is None:
            message = f"there is no template {name[:64]!r}"
            raise UnknownRecord(message, hint="PUT /templates/{name} makes one")
        return found


Told = Callable[[Page, Page], Awaitable[None]]
"""Tells the store what another page means; the change holds only if that succeeds."""


class Book:
    """Numbers and templates, in the directory."""

    def __init__(self, directory: Directory, default: Template, timing: Timing) -> None:
        """Reads nothing yet.

        Args:
            directory: where they are.
            default: the template of this name, until one is stored.
            timing: says how old a page is.
        """
        self._directory = directory
        self._default = default
        self._timing = timing
        self._page: Page | None = None
        self._read_at = 0.0
        self._turn = asyncio.Lock()

    async def read(self) -> Page:
        """The book, as it is now or was a second ago.

        Raises:
            StoreUnavailable: the directory cannot be reached.
        """
        if (page := self._fresh()) is not None:
            return page
        async with self._turn:
            if (page := self._fresh()) is not None:
                return page
            begun = self._timing.monotonic()
            async with self._directory.read() as session:
                page = await self._load(session)
            self._keep(page, begun)
            return page

    @asynccontextmanager
    async def change(self, told: Told) -> AsyncGenerator[AsyncSession]:
        """A session in which the book is changed; others who change it wait.

        Args:
            told: is awaited with the pages before and after, and before the change is committed.

        Raises:
            StoreUnavailable: the directory cannot be reached; nothing was written.
            HeadwayError: whatever `told` raises; nothing was written.
        """
        async with self._directory.change() as session:
            # The first statement: who comes second waits here, and then reads what the first wrote.
            await session.execute(
                update(RevisionRecord).values(revision=RevisionRecord.revision + 1)
            )
            before = await self._whole(session)
            yield session
            await session.flush()
            after = await self._whole(session)
            await told(before, after)
        self._keep(after, self._timing.monotonic())

    @asynccontextmanager
    async def still(self) -> AsyncGenerator[Page]:
        """The book, which nobody changes until the block ends.

        Raises:
            StoreUnavailable: the directory cannot be reached.
        """
        async with self._directory.change() as session:
            await session.execute(update(RevisionRecord).values(revision=RevisionRecord.revision))
            yield await self._whole(session)

    async def newest(self) -> Page:
        """The book as it is now; whoever changes it just then is waited for.

        What a change means for the store is told to it before the change is committed, so that
        who comes from there may know more than the book says.

        Raises:
            StoreUnavailable: the directory cannot be reached.
        """
        begun = self._timing.monotonic()
        async with self.still() as page:
            pass
        self._keep(page, begun)
        return page

    def _fresh(self) -> Page | None:
        age = self._timing.monotonic() - self._read_at
        return self._page if self._page is not None and age <= FRESH_S else None

    def _keep(self, page: Page, at: float) -> None:
        if self._page is None or page.revision >= self._page.revision:
            self._page, self._read_at = page, at

    async def _load(self, session: AsyncSession) -> Page:
        revision = await session.scalar(select(RevisionRecord.revision))
        if self._page is not None and self._page.revision == revision:
            return self._page
        return await self._whole(session)

    async def _whole(self, session: AsyncSession) -> Page:
        revision = await session.scalar(select(RevisionRecord.revision))
        numbers = await session.scalars(select(NumberRecord).order_by(NumberRecord.number))
        templates = await session.scalars(select(TemplateRecord).order_by(TemplateRecord.name))
        stored = {
            one.name: replace(
                TemplateBody.model_validate(one.body).read(one.name), checks_at=one.checks_at
            )
            for one in templates
        }
        return Page(
            revision=revision or 0,
            numbers={one.number: one.read() for one in numbers},
            templates={DEFAULT: self._default, **stored},
        )
