"""The fires of a cron expression, found by walking every minute: no cronsim, no bisection.

Supports numbers, names, lists, ranges and steps; days by Debian's rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from tests.core.minute_walk import Minute

MONTHS = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6}
MONTHS |= {"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12}
WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}


def values(field: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    found: set[int] = set()
    for part in field.lower().split(","):
        body, _, step = part.partition("/")
        first, dash, last = body.partition("-")
        if body == "*":
            start, end = low, high
        elif dash:
            start, end = number(first, names), number(last, names)
        else:
            start, end = number(first, names), high if step else number(first, names)
        found.update(range(start, end + 1, int(step or 1)))
    return found


def number(word: str, names: dict[str, int]) -> int:
    return names[word] if word in names else int(word)


class CronOracle:
    def __init__(self, expr: str) -> None:
        minute, hour, day, month, weekday = expr.split()
        self.wildcard = hour.startswith("*")
        self.minutes = values(minute, 0, 59, {})
        self.hours = values(hour, 0, 23, {})
        self.days = values(day, 1, 31, {})
        self.months = values(month, 1, 12, MONTHS)
        self.weekdays = {n % 7 for n in values(weekday, 0, 7, WEEKDAYS)}
        self.both = day.startswith("*") or weekday.startswith("*")
        self.known: dict[date, bool] = {}

    def on_day(self, day: date) -> bool:
        if day not in self.known:
            dom, dow = day.day in self.days, day.isoweekday() % 7 in self.weekdays
            fits = (dom and dow) if self.both else (dom or dow)
            self.known[day] = fits and day.month in self.months
        return self.known[day]

    def names(self, day: date, minute: int) -> bool:
        return minute % 60 in self.minutes and minute // 60 in self.hours and self.on_day(day)

    def fires(self, minutes: Sequence[Minute]) -> list[int]:
        """Return the fires of a walk that neither starts nor ends near a clock change."""
        if self.wildcard:
            return [each.at for each in minutes if self.names(each.day, each.minute)]
        found: list[int] = []
        latest = minutes[0].wall - timedelta(minutes=1)
        for each in minutes:
            # Every reading up to this one that the clock had not shown before is due now: one in
            # normal time, several at the end of a gap, none in the second pass of a fold.
            due = False
            while latest < each.wall:
                latest += timedelta(minutes=1)
                due |= self.names(latest.date(), latest.hour * 60 + latest.minute)
            if due:
                found.append(each.at)
        return found
