"""Batches: any number of jobs in steps that a store takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from headway.core.errors import InvalidValue
from headway.core.job import MAX_BATCH, NewJob


def batches(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    """Splits jobs into steps of 1000.

    Args:
        jobs: from a kind's `make`.

    Yields:
        Each step's jobs, in order.

    Raises:
        InvalidValue: one of them is no job; the steps before it were given.
    """
    if not isinstance(cast("object", jobs), Iterable):
        message = f"{jobs!r:.80} is no list of jobs"
        raise InvalidValue(message, hint="pass what kind.make(...) gave")
    batch: list[NewJob] = []
    for job in jobs:
        if not isinstance(cast("object", job), NewJob):
            message = f"{job!r:.80} is no job"
            raise InvalidValue(message, hint="pass what kind.make(...) gave")
        batch.append(job)
        if len(batch) == MAX_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
