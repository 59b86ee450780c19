"""What a bridge has counted since it started, and how far behind it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts by topic, and lag by topic and partition; each is written by one task."""

    consumed: Counter[str] = field(default_factory=Counter[str])
    enqueued: Counter[str] = field(default_factory=Counter[str])
    dead_lettered: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    published: Counter[str] = field(default_factory=Counter[str])
    failed: Counter[str] = field(default_factory=Counter[str])
    lag: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    paused: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
