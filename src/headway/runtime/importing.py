"""Importers: an app's own functions that make jobs of the rows of a foreign file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headway.core.job import NewJob


@dataclass(frozen=True, slots=True)
class CalledOff:
    """A job that is on record as cancelled: it is enqueued and cancelled at once.

    Attributes:
        job: what `kind.make(...)` returned.
        reason: why, for the trail.
    """

    job: NewJob
    reason: str


Importer = Callable[[Any], Iterable[NewJob | CalledOff]]
"""Makes the jobs of one decoded row; what it raises refuses the row."""
