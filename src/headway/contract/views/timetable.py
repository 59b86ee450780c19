"""Views of the timetable."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.definitions import EntrySpec
from headway.contract.views.query import Query


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryView:
    """A timetable entry, its revision, the last moment fired, and counts."""

    spec: EntrySpec
    revision: int
    last_fired: int | None
    ahead_until: int | None
    folded: int
    first_seen_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TimetableQuery(Query[tuple[EntryView, ...]]):
    """All entries, by name."""
