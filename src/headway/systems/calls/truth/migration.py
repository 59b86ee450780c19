"""What is chosen of a migration: kept in the directory, changed at run time."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from headway.core.errors import InvalidValue
from headway.runtime.timing import Timing
from headway.systems.calls.truth.chosen import Chosen, Mode
from headway.systems.calls.truth.lead_table import LeadTable
from headway.systems.calls.truth.settings import MigrationSettings
from headway.systems.calls.truth.tables import MIGRATION
from headway.systems.directory.database import Directory


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What is chosen, and by whom.

    Attributes:
        chosen: which rows, and what becomes of them.
        changed_at: when it was chosen at run time, ms UTC; None while the settings hold.
        changed_by: who did.
    """

    chosen: Chosen
    changed_at: int | None = None
    changed_by: str = "settings"


class Migration:
    """What becomes of an older system's rows.

    Attributes:
        settings: what holds until somebody chooses otherwise.
        table: the older system's, which is the truth.
        directory: where the choice and the shadow's decisions are kept.
    """

    def __init__(
        self,
        settings: MigrationSettings,
        table: LeadTable,
        directory: Directory,
        timing: Timing,
    ) -> None:
        """Reads nothing yet.

        Raises:
            InvalidValue: rows are to be moved, but the table does not say whose they are.
        """
        self.settings = settings
        self.table = table
        self.directory = directory
        self.timing = timing
        self._check(settings.chosen)

    async def choice(self) -> Choice:
        """What is chosen now.

        Raises:
            StoreUnavailable: the directory cannot be reached.
        """
        async with self.directory.read() as session:
            row = (await session.execute(select(MIGRATION))).mappings().first()
        if row is None:
            return Choice(chosen=self.settings.chosen)
        chosen = Chosen(
            mode=Mode(row["mode"]),
            percent=row["percent"],
            resellers=tuple(json.loads(row["resellers"])),
        )
        return Choice(chosen=chosen, changed_at=row["changed_at"], changed_by=row["changed_by"])

    async def choose(self, chosen: Chosen, author: str) -> Choice:
        """Chooses otherwise; it holds for the next look, in every process, and after restarts.

        Raises:
            InvalidValue: the table does not say whose its rows are; nothing was written.
            StoreUnavailable: the directory cannot be reached; nothing was written.
        """
        self._check(chosen)
        at = self.timing.wall_at()
        values = {
            "id": 1,
            "mode": str(chosen.mode),
            "percent": chosen.percent,
            "resellers": json.dumps(chosen.resellers),
            "changed_at": at,
            "changed_by": author,
        }
        async with self.directory.change() as session:
            await session.execute(delete(MIGRATION))
            await session.execute(insert(MIGRATION).values(values))
        return Choice(chosen=chosen, changed_at=at, changed_by=author)

    def _check(self, chosen: Chosen) -> None:
        if chosen.mode is not Mode.OFF and not self.table.has_owners:
            message = f"the migration's mode is {chosen.mode}, but no column says whose a row is"
            raise InvalidValue(message, hint="name it in calls.table.columns.owner")
