"""A lead as a row of your own table, and how it becomes a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol
from uuid import UUID, uuid5

from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob

_ROWS = UUID("5d0f0a5e-6d0b-5a6c-9f0e-9f6f0f1b8a41")
"""The namespace of leads whose rows have ids that are no UUIDs."""
SHARES = 10_000
"""How fine a percentage is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeadRow:
    """A lead as intake knows it, and as the table keeps it.

    Attributes:
        id: of the row; empty for one that is not written yet.
        phone: E.164.
        template: by which it is called.
        due_at: ms UTC.
        key: the caller's own; None for none.
        payload: any JSON; None for none.
        reporting_webhook_url: receives the result; None for no report.
    """

    id: str = ""
    phone: str
    tz: str
    reseller: str
    template: str = "default"
    due_at: int
    key: str | None = None
    payload: object = None
    reporting_webhook_url: str | None = None

    @property
    def lead(self) -> str:
        """The id of the lead, which is that of its job."""
        return lead_of(self.id)

    def named(self, row_id: str) -> LeadRow:
        """The same lead under a row's id."""
        return replace(self, id=row_id)

    def same_as(self, other: LeadRow) -> bool:
        """Return whether both ask for the same call: under one key they must."""
        return self._body() == other._body()

    def _body(self) -> tuple[str | None, ...]:
        payload = json.dumps(self.payload, sort_keys=True)
        return (self.phone, self.tz, self.template, payload, self.reporting_webhook_url)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where a row stands.

    Attributes:
        status: as the table says it.
        ours: whether the row is ours; True where the table names no owners.
        ref: of the run that called last; None for none.
        since_at: when that call began, ms UTC.
    """

    row: LeadRow
    status: object
    ours: bool
    ref: str | None = None
    number: str | None = None
    since_at: int | None = None


def lead_of(row_id: str) -> str:
    """The id of a row's lead: the row's own if that is a UUID, else one that follows from it."""
    try:
        return str(UUID(row_id))
    except ValueError:
        return str(uuid5(_ROWS, row_id))


def share_of(row_id: str) -> int:
    """A row's place in 0 to 9999: the same forever, so that a percentage grows and never flaps."""
    return int.from_bytes(sha256(row_id.encode()).digest()[:8]) % SHARES


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
            StoreError: the directory cannot be read now.
        """
        ...
