"""The trail: who did what, when and why."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.views.query import Page, Query


@dataclass(frozen=True, kw_only=True, slots=True)
class TrailView:
    """One move of an operator or of code."""

    seq: int
    at: int
    author: str
    reason: str
    verb: str
    target: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TrailQuery(Query[Page[TrailView]]):
    """The trail, newest first; or of one target."""

    target: str | None = None
    cursor: str | None = None
    limit: int = 100
