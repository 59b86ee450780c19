"""What is under way: a job whose work has begun in the outside world, as its source tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from headway.contract.enqueue import InFlight
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import parse_instant
from headway.core.job import NewJob


def in_flight(
    job: NewJob,
    *,
    known_as: str,
    since: object,
    timeout: object,
    members: Mapping[str, str] | None = None,
) -> InFlight:
    """Says that a job's work is under way: it awaits a signal, and holds its permits.

    Args:
        job: from a kind's `make`, with a key.
        known_as: the key under which its end will be signalled.
        since: when the work began; an aware datetime, or ISO 8601 with an offset.
        timeout: from now; at its end the provider is asked, or the deadline decides.
        members: of each pool that it holds a member of: the pool's name and the member's.

    Returns:
        What a source of work in flight yields.

    Raises:
        InvalidValue: the job has no key, or a value is not understood.
    """
    if not isinstance(cast("object", job), NewJob):
        message = f"{job!r:.80} is no job"
        raise InvalidValue(message, hint="pass what kind.make(...) gave")
    check_key(job)
    if not known_as:
        message = f"the work of {job.key!r} is known as nothing"
        raise InvalidValue(message, hint="say under which key its end will be signalled")
    return InFlight(
        job=job,
        signal_key=known_as,
        since_at=parse_instant(since),
        deadline_ms=parse_duration(timeout),
        members=dict(members or {}),
    )


def check_key(job: NewJob) -> None:
    """Lets a job with a key pass.

    Raises:
        InvalidValue: it has none, so nobody could tell whether it exists already.
    """
    if job.key is None:
        message = f"a source gave a job of kind {job.kind!r} without a key"
        raise InvalidValue(message, hint="give make(key=...), so that it is not made a second time")
