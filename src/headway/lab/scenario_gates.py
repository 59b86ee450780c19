"""The tables of a scenario's gates: what each declares, and its hours without the engine's code."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from headway.core.gates.opening import Hours
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec, Strategy
from headway.lab.scenario_values import Span, Table

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class AlwaysOpen(Table):
    """A gate without hours."""

    def closed_by(self, _zone: str | None, _at: int) -> str:
        """See `HoursTable.closed_by`."""
        return ""


class SlotsTable(AlwaysOpen):
    """A `Slots` gate."""

    kind: Literal["slots"]
    capacity: int
    shared: bool | None = None

    def spec(self, name: str) -> GateSpec:
        """Return the gate that this declares."""
        return Slots(name, self.capacity, shared=self.shared)


class RateTable(AlwaysOpen):
    """A `Rate` gate: at most `limit` starts in any window of `per` ms."""

    kind: Literal["rate"]
    limit: int
    per: Span
    shared: bool | None = None

    def spec(self, name: str) -> GateSpec:
        """Return the gate that this declares."""
        return Rate(name, self.limit, timedelta(milliseconds=self.per), shared=self.shared)


class HoursTable(Table):
    """An `Hours` gate; `exceptions` maps dates to other opening hours, or to "closed"."""

    kind: Literal["hours"]
    open: str
    days: str = "daily"
    tz: str = "UTC"
    exceptions: dict[str, str] = Field(default_factory=dict[str, str])

    def spec(self, name: str) -> GateSpec:
        """Return the gate that this declares."""
        exceptions = {
            day: None if spans == "closed" else spans for day, spans in self.exceptions.items()
        }
        return Hours(name, self.open, days=self.days, tz=self.tz, exceptions=exceptions)

    def closed_by(self, zone: str | None, at: int) -> str:
        """Return the hours if they exclude a time by the clock of a zone; "" if they do not."""
        wall = (_EPOCH + timedelta(milliseconds=at)).astimezone(ZoneInfo(zone or self.tz))
        minute = wall.hour * 60 + wall.minute
        # Within a span of today, or one of yesterday that ends after midnight.
        today = any(a <= minute < b for a, b in self._spans(wall))
        yesterday = self._spans(wall - timedelta(days=1))
        return "" if today or any(minute < b - 1440 for _, b in yesterday) else self.open

    def _spans(self, wall: datetime) -> list[tuple[int, int]]:
        text = self.open if _WEEKDAYS[wall.weekday()] in _days(self.days) else "closed"
        for day, spans in self.exceptions.items():
            text = spans if date.fromisoformat(day) == wall.date() else text
        pairs: list[tuple[int, int]] = []
        for part in text.split(",") if text != "closed" else ():
            opening, closing = (_minute(one) for one in part.split("-"))
            pairs.append((opening, closing if closing > opening else closing + 1440))
        return pairs


class PoolTable(AlwaysOpen):
    """A `Pool` gate; `members` maps names to capacities."""

    kind: Literal["pool"]
    members: dict[str, int]
    strategy: Strategy = "least_used"
    shared: bool | None = None

    def spec(self, name: str) -> GateSpec:
        """Return the gate that this declares."""
        return Pool(name, self.members, strategy=self.strategy, shared=self.shared)


ScenarioGate = Annotated[
    SlotsTable | RateTable | HoursTable | PoolTable, Field(discriminator="kind")
]


def _minute(text: str) -> int:
    hours, minutes = text.strip().split(":")
    return int(hours) * 60 + int(minutes)


def _days(text: str) -> set[str]:
    found: set[str] = set()
    for part in "".join(text.lower().split()).replace("daily", "mon-sun").split(","):
        first, _, last = part.partition("-")
        begin, end = _WEEKDAYS.index(first[:3]), _WEEKDAYS.index((last or first)[:3])
        found.update(_WEEKDAYS[day % 7] for day in range(begin, end + 1 + 7 * (end < begin)))
    return found
