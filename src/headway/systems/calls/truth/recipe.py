"""The recipe: how a row becomes a job, told by the system whose leads they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob
from headway.systems.calls.truth.row import LeadRow


class Recipe(Protocol):
    """How a row becomes a job."""

    @property
    def deadline_ms(self) -> int:
        """How long a call may be on before the provider is asked."""
        ...

    def job(self, row: LeadRow) -> NewJob:
        """The lead's job, as intake makes it, with a key that follows from the row.

        Raises:
            CallerError: the row is no lead: its phone or zone is none.
        """
        ...

    async def dial_gates(self, row: LeadRow) -> Sequence[GateSpec]:
        """The gates that its call must pass, as they are now; all are declared.

        Raises:
            StoreError: the directory cannot tell now.
        """
        ...
