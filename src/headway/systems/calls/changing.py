"""Changing the book: written, told to the store, and told to those who wait, in this order."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncSession

from headway.contract.definitions import DeclareGate, DefineRequest
from headway.server.access.caller import Caller
from headway.server.service import Service
from headway.systems.calls.book import Page
from headway.systems.calls.desk import STEP, Desk
from headway.systems.calls.gates import changed_gates, routes


@asynccontextmanager
async def changing(
    service: Service, desk: Desk, caller: Caller, reason: str
) -> AsyncGenerator[AsyncSession]:
    """A session in which numbers and templates are changed; it holds at once, or not at all.

    Args:
        service: whose store is told of the gates.
        desk: of this system.
        caller: stands on the trail.
        reason: why the gates change.

    Raises:
        StoreError: the directory or the store is away; nothing was written.
    """
    moved = False

    async def told(before: Page, after: Page) -> None:
        nonlocal moved
        moved = routes(before) != routes(after)
        # Before the commit: a number that is on record can be called from.
        specs = changed_gates(before, after)
        for start in range(0, len(specs), STEP):
            items = tuple(DeclareGate(spec=one) for one in specs[start : start + STEP])
            request = DefineRequest(items=items, author=caller.name, reason=reason)
            await service.store.define(request)

    async with desk.book.change(told) as session:
        yield session
    service.gates.forget()
    if moved:
        # Looking through a long backlog costs more than the change.
        desk.changed.set()
