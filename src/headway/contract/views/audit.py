"""What an audit finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.contract.views.query import Query


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Something that does not add up."""

    where: str
    what: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditView:
    """What an audit found: nothing, unless there is a bug.

    Attributes:
        differences: each one named.
        gates: how many gates were compared.
        permits: how many permits were compared.
        held: how many running and awaiting jobs were looked at.
        cursor: None when it went all the way.
    """

    differences: tuple[Difference, ...] = field(default=())
    gates: int = 0
    permits: int = 0
    held: int = 0
    cursor: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditQuery(Query[AuditView]):
    """Compares permits with holders and caches with permits, in one snapshot a page."""

    cursor: str | None = None
    limit: int = 10_000
