"""What the limits were at each moment, as the scenario and its moves say: nothing of the engine.

The checker and the reports take every number from here, so that a limit that the engine forgot is
seen as a limit that was broken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from headway.lab.history import Changed
from headway.lab.scenario import Scenario
from headway.lab.scenario_gates import HoursTable, PoolTable, RateTable, SlotsTable

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Rulebook:
    """The limits of a scenario.

    Args:
        changes: what operators changed, in order.
    """

    def __init__(self, scenario: Scenario, changes: list[Changed]) -> None:
        self.tables = scenario.gates
        self._lanes = {f"lane:{name}": lane.concurrency for name, lane in scenario.lanes.items()}
        self._changed: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for change in changes:
            self._changed[change.gate].append((change.at, change.to))

    def table(self, template: str) -> object:
        """What the scenario says of a gate; None for an implicit one."""
        return self.tables.get(template)

    def capacity(self, gate: str, template: str, at: int, *, member: str = "") -> int | None:
        """How many permits may be out, or how many starts a window may hold.

        Args:
            template: under which it is declared.
            at: when. At the very moment of a change the larger value counts.

        Returns:
            The number; None where there is no limit.
        """
        name = f"{gate}/{member}" if member else gate
        values: list[int | None] = [self.declared(gate, template, member=member)]
        steps = self._changed.get(name) or self._changed.get(template) or []
        index = bisect_right(steps, (at, 2**62))
        if index:
            values = [steps[index - 1][1]]
            before = (
                steps[index - 2][1] if index > 1 else self.declared(gate, template, member=member)
            )
            if steps[index - 1][0] == at:
                values.append(before)
        return None if None in values else max(value for value in values if value is not None)

    def declared(self, gate: str, template: str, *, member: str = "") -> int | None:
        """The limit that the scenario's tables give, without its moves."""
        table = self.tables.get(template)
        if isinstance(table, SlotsTable):
            return table.capacity
        if isinstance(table, RateTable):
            return table.limit
        if isinstance(table, PoolTable):
            return table.members.get(member, 0) if member else sum(table.members.values())
        return self._lanes.get(gate)

    def window_ms(self, template: str) -> int | None:
        """The window of a rate; None for other gates."""
        table = self.tables.get(template)
        return table.per if isinstance(table, RateTable) else None


def shows_open(table: HoursTable, zone: str, at: int) -> bool:
    """Return whether the clock on the wall shows an open time.

    Args:
        table: the hours.
        at: the instant, ms UTC.

    Returns:
        From the wall clock alone: a span of today, or one of yesterday that has not ended.
    """
    wall = (_EPOCH + timedelta(milliseconds=at)).astimezone(ZoneInfo(zone))
    minute = wall.hour * 60 + wall.minute
    today = any(a <= minute < b for a, b in _spans(table, wall))
    yesterday = _spans(table, wall - timedelta(days=1))
    return today or any(minute < b - 1440 for _, b in yesterday)


def _spans(table: HoursTable, wall: datetime) -> list[tuple[int, int]]:
    text = table.open if _WEEKDAYS[wall.weekday()] in _days(table.days) else "closed"
    text = table.exceptions.get(wall.date().isoformat(), text)
    spans: list[tuple[int, int]] = []
    for part in text.split(",") if text != "closed" else ():
        opening, closing = (_minute(one) for one in part.split("-"))
        spans.append((opening, closing if closing > opening else closing + 1440))
    return spans


def _minute(text: str) -> int:
    hours, minutes = text.strip().split(":")
    return int(hours) * 60 + int(minutes)


def _days(text: str) -> set[str]:
    if text == "daily":
        return set(_WEEKDAYS)
    found: set[str] = set()
    for part in text.lower().replace(" ", "").split(","):
        first, _, last = part.partition("-")
        begin, end = _WEEKDAYS.index(first[:3]), _WEEKDAYS.index((last or first)[:3])
        found.update(_WEEKDAYS[day % 7] for day in range(begin, end + 1 + 7 * (end < begin)))
    return found
