"""Cron expressions: the readings of a wall clock that one names, zones aside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError

from headway.core.errors import InvalidValue
from headway.core.local_time import WEEKDAYS

_FIELDS = ("minute", "hour", "day of the month", "month", "weekday")
_MAX_LENGTH = 256
_HINT = 'five fields: minute hour day month weekday, as "*/15 9-17 * * mon-fri"'
_NEVER = "the day of the month and the month never come together"
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMBERS = {
    **{name: number for number, name in enumerate(_MONTHS, start=1)},
    **{name: (number + 1) % 7 for number, name in enumerate(WEEKDAYS)},
}
_STEPPED_RANGE = re.compile(r"([a-z]+|[0-9]+)-([a-z]+|[0-9]+)/0*[1-9][0-9]*", re.IGNORECASE)
# A leap year before most that a job can mean; every expression that ever fires does within 40
# years of any start (29 February on one weekday, across 2100).
_PROBE = datetime(2000, 1, 1)  # noqa: DTZ001  (a wall clock has no zone)


@dataclass(frozen=True, kw_only=True, slots=True)
class CronExpression:
    """What a cron expression says.

    Attributes:
        text: its five fields, as cronsim is given them.
        follows_clock: the hour field begins with `*`. Such an expression fires at each minute
            whose reading it names; any other one fires once for each reading.
        every_day: no date is left out.
        minutes: the minutes of a day on which it names, from 0 to 1439, in order.
    """

    text: str
    follows_clock: bool
    every_day: bool
    minutes: tuple[int, ...]

    def walls_after(self, wall: datetime) -> Iterator[datetime]:
        """The readings later than this one, in order, none twice; ends with datetime's years."""
        readings = CronSim(self.text, wall)
        while True:
            try:
                reading = next(readings, None)
            except (OverflowError, ValueError):
                return
            if reading is None:
                return
            yield reading


@lru_cache(maxsize=4096)
def read_cron(text: str) -> CronExpression:
    """Read a cron expression, as Debian's cron would.

    When neither day field begins with `*`, a date that fits either one counts. Beyond Debian,
    `L` (last day), `LW` (last weekday), `5L` and `5#2` are understood, `@daily` and its like stand
    for their five fields, and `5/20` goes from 5 to the field's end (`5-5/20` is 5 alone). Weekdays
    run from 0 to 7, both of them Sunday, so that `1/3` is Monday, Thursday and Sunday.

    Args:
        text: the five fields; case does not count.

    Returns:
        The expression.

    Raises:
        InvalidValue: it is none, or names a moment that never comes, such as 30 February.
    """
    fields = _MACROS.get(text.strip().lower(), text).split()
    if len(text) > _MAX_LENGTH or len(fields) != len(_FIELDS):
        message = f"the cron expression {text[:60]!r} does not have five fields"
        raise InvalidValue(message, hint=_HINT)
    fields = [",".join(map(_without_idle_step, field.split(","))) for field in fields]
    cleaned = " ".join(fields)
    try:
        readings = CronSim(cleaned, _PROBE)
    except CronSimError as error:
        message = f"the cron expression {text[:60]!r} is not understood: {error}"
        raise InvalidValue(message, hint=_hint(fields)) from None
    if next(readings, None) is None:
        message = f"the cron expression {text[:60]!r} never fires"
        raise InvalidValue(message, hint=_NEVER)
    return CronExpression(
        text=cleaned,
        follows_clock=fields[1].startswith("*"),
        every_day=_every_day(readings),
        minutes=tuple(sorted(hour * 60 + m for hour in readings.hours for m in readings.minutes)),
    )


def _without_idle_step(term: str) -> str:
    """Drop the step of a range of one value: cronsim reads `a-a/n` as `a/n`, to the field's end."""
    match = _STEPPED_RANGE.fullmatch(term)
    if match is None:
        return term
    first, last = (
        int(end) if end.isdigit() else _NUMBERS.get(end.lower()) for end in match.groups()
    )
    return match[1] if first is not None and first == last else term


def _hint(fields: list[str]) -> str:
    """Distinguish a date that never occurs from an invalid field: cronsim calls both a bad day."""
    minute, hour, day, month, weekday = fields
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", _PROBE)
        CronSim(f"0 0 1 {month} *", _PROBE)
    except CronSimError:
        return _HINT
    return _NEVER


def _every_day(sim: CronSim) -> bool:
    dates = len(sim.days) == 31 and CronSim.LAST not in sim.days
    weekdays = {day % 7 for day in sim.weekdays if isinstance(day, int)} == set(range(7))
    days = dates and weekdays if sim.day_and else dates or weekdays
    return days and len(sim.months) == 12
