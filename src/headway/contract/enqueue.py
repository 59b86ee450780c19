"""Enqueue, and restore of what is already in flight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headway.core.job import NewJob


class Enqueued(NamedTuple):
    """The reply for one job.

    Attributes:
        id: the job that exists now: the one asked for, or the one that has its key.
        created: whether this call made it.
    """

    id: str
    created: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """A job whose work is already under way in the outside world.

    Attributes:
        job: as for enqueue; its key says whether it is known already.
        signal_key: of the signal that will report its end.
        since_at: when its work began; a job that is made was created then, if that is past.
        deadline_ms: from now; at its end the provider is asked or the deadline decides.
        members: the member it holds in each of its pools.
        newer: whether this is known to be newer than the store, which is an older state of
            itself: then a job that is queued there, or held by an earlier run, is taken up too.
    """

    job: NewJob
    signal_key: str
    since_at: int
    deadline_ms: int
    members: dict[str, str] = field(default_factory=dict[str, str])
    newer: bool = False
