"""Your own table as the truth, as far as the rest of this system asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fastapi import APIRouter

from headway.contract.store import Store
from headway.core.job import NewJob
from headway.core.state import State
from headway.runtime.app import App
from headway.runtime.kind import Kind
from headway.systems.calls.truth.recipe import Recipe
from headway.systems.calls.truth.row import LeadRow


class OwnTable(Protocol):
    """A table of yours that is the truth about leads."""

    @property
    def routers(self) -> Sequence[APIRouter]:
        """The routes that come with it."""
        ...

    def declare(self, app: App, lead: Kind, recipe: Recipe) -> None:
        """Adds what brings the store in line with it."""
        ...

    async def intake(self, rows: Sequence[LeadRow]) -> Sequence[tuple[LeadRow, bool]]:
        """Writes leads, all or none.

        Returns:
            For each, the row as it stands now, and whether this call wrote it.

        Raises:
            KeyConflict: a key names a row with another body; nothing was written.
            StoreUnavailable: the table cannot be reached; nothing was written.
        """
        ...

    async def follow(self, store: Store, jobs: Sequence[NewJob]) -> bool:
        """Makes the jobs of rows that were taken in, if the store can do it at once."""
        ...

    async def before_dial(self, row_id: str, *, ref: str, number: str) -> None:
        """Says that a call begins; awaited before the provider is touched.

        Raises:
            Dead: the row is not ours or not pending; do not dial.
            StoreError: it cannot be written; do not dial.
        """
        ...

    async def again(self, row_id: str, *, ref: str, due_at: int | None = None) -> bool:
        """Says that a call is over and another is to be made.

        Raises:
            StoreUnavailable: the table cannot be reached.
        """
        ...

    async def finished(self, row_id: str, outcome: str, state: State, reason: str) -> bool:
        """Says what became of a lead; said again, it changes nothing.

        Raises:
            StoreUnavailable: the table cannot be reached.
        """
        ...
