"""Adopting: rows become ours, and go back, one conditional change of the row each.

The row alone says whose it is, so that at no moment both systems or none have it. Jobs only follow:
one that is missing is made by the next look, and one too many ends before it dials.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

from headway.core.job import NewJob
from headway.runtime.app import App
from headway.systems.calls.truth.chosen import Chosen, Mode
from headway.systems.calls.truth.following import Following
from headway.systems.calls.truth.lead_table import LeadTable
from headway.systems.calls.truth.migration import Migration
from headway.systems.calls.truth.row import LeadRow

NAME = "calls.migration"

_log = logging.getLogger("headway.calls")


class Adopting:
    """Moves rows between the older system and us.

    Args:
        table: of both.
        migration: says which rows.
        following: brings the jobs in line.
    """

    def __init__(self, table: LeadTable, migration: Migration, following: Following) -> None:
        self._table = table
        self._migration = migration
        self._following = following

    async def step(self) -> None:
        """Moves what is on the wrong side of what is chosen now, as far as it has not started.

        Raises:
            StoreError: the table or the store cannot be reached; each row is on one side.
        """
        chosen = (await self._migration.choice()).chosen
        if chosen.mode in {Mode.ADOPT, Mode.RELEASE}:
            await self._let_go(chosen)
        if chosen.mode is Mode.ADOPT:
            await self._take(chosen)

    async def _let_go(self, chosen: Chosen) -> None:
        async for page in self._table.pending(ours=True):
            for some in self._batches([row for row in page if not chosen.has(row)]):
                gone = await self._table.let_go(some)
                if gone:
                    _log.info("%d rows are the older system's again", len(gone))
                    await self._following.call_off(gone)

    async def _take(self, chosen: Chosen) -> None:
        async for page in self._table.pending(ours=False):
            # A row that makes no job stays with those who know what to do with it.
            wanted = [
                row for row in page if chosen.has(row) and self._following.job(row) is not None
            ]
            for some in self._batches(wanted):
                taken = await self._table.take(some)
                if taken:
                    _log.info("%d rows are ours", len(taken))
                    await self._following.make(taken)

    def _batches(self, rows: list[LeadRow]) -> list[list[str]]:
        size = self._migration.settings.batch
        ids = [row.id for row in rows]
        return [ids[begin : begin + size] for begin in range(0, len(ids), size)]


def declare_adopting(app: App, adopting: Adopting, migration: Migration) -> None:
    """Lets one of an app's workers move rows, again and again."""

    @app.source(name=NAME, every=migration.settings.every)
    async def rows() -> AsyncGenerator[NewJob]:
        await adopting.step()
        # Nothing is left for the source to make: jobs are made as their rows become ours.
        for job in ():
            yield job
