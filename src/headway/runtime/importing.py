"""Importing: what a function that reads rows may say beside "this is a job"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headway.core.job import NewJob


@dataclass(frozen=True, slots=True)
class CalledOff:
    """A job that was called off before it began: it is made, then cancelled at once.

    Attributes:
        job: from a kind's `make`.
        reason: stands on the trail.
    """

    job: NewJob
    reason: str


Importer = Callable[[Any], Iterable[NewJob | CalledOff]]
"""Makes jobs of one row of a file; raises anything to refuse the row."""
