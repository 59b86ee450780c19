"""The table [alerts] of the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from headway.core.duration import parse_duration
from headway.core.errors import HeadwayError, InvalidValue, located
from headway.core.naming import did_you_mean

_SPANS = {
    "each": "each_ms",
    "lane_latency_for": "lane_latency_for_ms",
    "dead_jobs_within": "dead_jobs_within_ms",
    "no_worker_for": "no_worker_for_ms",
    "store_away_for": "store_away_for_ms",
    "horizon_within": "horizon_within_ms",
}
_KNOWN = ("urls", "off", "runbooks", "dead_jobs_more_than", *_SPANS)
_LEAST_EACH_MS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertSettings:
    """Recipients, rules and thresholds of alerts.

    Attributes:
        urls: of apprise; where alerts go besides the log.
        off: names of rules that do not hold.
        runbooks: what stands before `#` and the rule's name in the link of an alert.
        each_ms: from one look to the next.
        lane_latency_for_ms: how long a lane must miss its target.
        dead_jobs_more_than: so many new dead jobs of a lane are borne.
        dead_jobs_within_ms: how long a dead job is new.
        no_worker_for_ms: how long a lane with due jobs may be without a worker.
        store_away_for_ms: how long the store may be away.
        horizon_within_ms: for how long hours must be known.
    """

    urls: tuple[str, ...] = field(default=(), repr=False)
    off: frozenset[str] = frozenset()
    runbooks: str = "docs/how-to/observe.md"
    each_ms: int = 10_000
    lane_latency_for_ms: int = 60_000
    dead_jobs_more_than: int = 0
    dead_jobs_within_ms: int = 900_000
    no_worker_for_ms: int = 60_000
    store_away_for_ms: int = 15_000
    horizon_within_ms: int = 3 * 86_400_000


def read_alert_settings(given: Mapping[str, object]) -> AlertSettings:
    """Read the table.

    Args:
        given: as written: `urls` and `off` are lists of texts, `dead_jobs_more_than` is a number,
            `runbooks` a text, and the others are spans such as "1m".

    Returns:
        The settings with their defaults.

    Raises:
        InvalidValue: there is no such key, or a value is unusable; the message never contains a
            URL.
    """
    values: dict[str, object] = {}
    for key, value in given.items():
        if key not in _KNOWN:
            message = f"alerts: there is no setting {key!r:.80}"
            hint = did_you_mean(key, _KNOWN, f"known: {', '.join(_KNOWN)}")
            raise InvalidValue(message, hint=hint)
        values[_SPANS.get(key, key)] = _read(key, value)
    settings = AlertSettings(**values)  # type: ignore[arg-type]  (each was read by its key)
    if settings.each_ms < _LEAST_EACH_MS:
        message = f"alerts.each is {settings.each_ms} ms"
        raise InvalidValue(message, hint="at least 100ms")
    return settings


def _read(key: str, value: object) -> object:
    if key in _SPANS:
        with located(f"alerts.{key}: ", HeadwayError):
            return parse_duration(value)
    if key in {"urls", "off"}:
        texts = cast("list[object]", value) if isinstance(value, list | tuple) else [None]
        if not all(isinstance(one, str) for one in texts):
            message = f"alerts.{key} is not a list of texts"
            raise InvalidValue(message, hint=f'write {key} = ["..."]')
        return tuple(texts) if key == "urls" else frozenset(texts)
    if key == "runbooks":
        if not isinstance(value, str):
            message = "alerts.runbooks is not a text"
            raise InvalidValue(message, hint="the address of a page")
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        message = f"alerts.{key} is {value!r:.40}"
        raise InvalidValue(message, hint="a whole number from 0")
    return value
