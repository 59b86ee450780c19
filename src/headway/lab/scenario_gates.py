"""What a scenario file says of gates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headway.core.gates.spec import Strategy
from headway.lab.scenario_values import Span, Table


class SlotsTable(Table):
    """A counting semaphore."""

    kind: Literal["slots"]
    capacity: int
    shared: bool | None = None


class RateTable(Table):
    """At most `limit` starts in any window."""

    kind: Literal["rate"]
    limit: int
    per: Span
    shared: bool | None = None


class HoursTable(Table):
    """Open at these local times; an exception is a date with spans of its own, or "closed"."""

    kind: Literal["hours"]
    open: str
    days: str = "daily"
    tz: str = "UTC"
    exceptions: dict[str, str] = Field(default_factory=dict[str, str])


class PoolTable(Table):
    """One of several Slots."""

    kind: Literal["pool"]
    members: dict[str, int]
    strategy: Strategy = "least_used"
    shared: bool | None = None


GateTable = Annotated[SlotsTable | RateTable | HoursTable | PoolTable, Field(discriminator="kind")]
