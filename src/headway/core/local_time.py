"""The words of local time: `09:00`, `24:00`, `mon-fri`, `daily`."""

from __future__ import annotations

import re

from headway.core.errors import InvalidValue

DAY_MINUTES = 1440
EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""Names of the weekdays 0 to 6, as `date.weekday` numbers them."""

_LONG = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBER = {name: number for names in (WEEKDAYS, _LONG) for number, name in enumerate(names)}
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_DAYS_HINT = 'write days as "mon-fri", "mon,wed,sat-sun" or "daily"'


def parse_minute(text: str) -> int:
    """Read a time of day, such as "09:00".

    Args:
        text: hours and minutes, from "00:00" to "24:00".

    Returns:
        Minutes since midnight, 0 to 1440.

    Raises:
        InvalidValue: it is none.
    """
    match = _CLOCK.fullmatch(text.strip())
    minute = int(match[1]) * 60 + int(match[2]) if match else -1
    if not match or minute > DAY_MINUTES or int(match[2]) > 59:
        message = f"{text[:60]!r} is not a time of day"
        raise InvalidValue(message, hint='write it as "09:00", from 00:00 to 24:00')
    return minute


def format_minute(minute: int) -> str:
    """Write minutes since midnight as "09:00"; a minute of the next day as that day's time."""
    if minute > DAY_MINUTES:
        minute -= DAY_MINUTES
    return f"{minute // 60:02}:{minute % 60:02}"


def parse_days(text: object) -> tuple[int, ...]:
    """Read weekdays, such as "mon-fri".

    Args:
        text: names (the first three letters or the whole) and ranges of names, with commas
            between; a range may go over the end of the week ("fri-mon"). Or "daily".

    Returns:
        Numbers from 0 for Monday to 6 for Sunday, each once, in their order.

    Raises:
        InvalidValue: it is no such text.
    """
    if not isinstance(text, str):
        message = f"days must be text, not {type(text).__name__}"
        raise InvalidValue(message, hint=_DAYS_HINT)
    words = text.strip().lower()
    if words == "daily":
        return EVERY_DAY
    days: set[int] = set()
    for word in words.split(","):
        first, dash, last = (part.strip() for part in word.partition("-"))
        start = _weekday(first, text)
        length = (_weekday(last, text) - start) % 7 if dash else 0
        days.update((start + step) % 7 for step in range(length + 1))
    return tuple(sorted(days))


def format_days(days: tuple[int, ...]) -> str:
    """Write weekdays in order as "mon-fri,sun", so that `parse_days` reads the same again."""
    if days == EVERY_DAY:
        return "daily"
    runs: list[list[int]] = []
    for day in days:
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return ",".join(
        "-".join(dict.fromkeys(WEEKDAYS[end] for end in (run[0], run[-1]))) for run in runs
    )


def _weekday(name: str, text: str) -> int:
    if name not in _NUMBER:
        message = f"the days {text[:60]!r} name no weekday at {name[:20]!r}"
        raise InvalidValue(message, hint=_DAYS_HINT)
    return _NUMBER[name]
