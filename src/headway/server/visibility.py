"""Visibility: which jobs a caller sees, and hiding the ids of other jobs in replies and errors."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from dataclasses import replace

from headway.contract.views import GateState, JobQuery, JobView, WhyQuery, WhyView
from headway.core.check import is_job_id
from headway.core.errors import CallerError, IdConflict, InvalidValue, UnknownJob
from headway.server.caller import Caller
from headway.server.finding import jobs_by_id
from headway.server.service import Service

_OTHER = "another's job"
_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


async def visible_job(service: Service, caller: Caller, id: str) -> JobView:
    """Return a job with its runs and trail, in which ids of jobs outside the scope are hidden.

    Raises:
        UnknownJob: there is no such job, or the caller does not see it.
    """
    found = await service.store.read(JobQuery(id=id)) if is_job_id(id) else None
    if found is None or not caller.sees(found):
        message = f"there is no job {id[:64]!r}"
        raise UnknownJob(message, hint="GET /v1/jobs lists them; final ones are kept for a while")
    if caller.sees_all:
        return found
    ids = [one for line in found.trail for one in _ID.findall(line.what)]
    # Only ids of jobs: a note may contain any other id.
    hidden = {job.id async for job in _jobs(service, ids) if not caller.sees(job)}
    trail = tuple(replace(line, what=_without_ids(line.what, hidden)) for line in found.trail)
    return replace(found, trail=trail)


async def visible_ids(service: Service, caller: Caller, ids: Sequence[str]) -> Collection[str]:
    """Return the ids of jobs that the caller sees; a caller without scopes needs no read."""
    if caller.sees_all:
        return frozenset(filter(is_job_id, ids))
    return {job.id async for job in _jobs(service, ids) if caller.sees(job)}


def _jobs(service: Service, ids: Sequence[str]) -> AsyncGenerator[JobView]:
    """Yield the jobs with these ids; ids that are malformed or unknown are ignored."""
    return jobs_by_id(service.store, filter(is_job_id, dict.fromkeys(ids)))


async def hide_conflict(service: Service, caller: Caller, error: CallerError) -> CallerError:
    """Hide the job's id in the error of a conflict, unless the caller sees the job."""
    ids = _ID.findall(error.message)
    seen = await visible_ids(service, caller, ids)
    for hidden in set(ids).difference(seen):
        if isinstance(error, IdConflict):
            message = f"the id {hidden} cannot be used"
            return InvalidValue(message, hint="generate a new UUID for each job, or omit the id")
        error = type(error)(error.message.replace(hidden, _OTHER), hint=error.hint)
    return error


async def visible_why(service: Service, caller: Caller, id: str) -> tuple[JobView, WhyView]:
    """Return a job, and why it is not running.

    Holders and reservations of gates are hidden if the caller does not see their jobs.

    Raises:
        UnknownJob: there is no such job, or the caller does not see it.
    """
    job = await visible_job(service, caller, id)
    why = await service.store.read(WhyQuery(id=id))
    if why is None:
        message = f"the job {id[:64]!r} no longer exists"
        raise UnknownJob(message, hint="final jobs are kept for a while")
    named = [job for gate in why.closed for job in _named(gate)]
    hidden = set(named).difference(await visible_ids(service, caller, named))
    if not hidden:
        return job, why
    closed = tuple(_without(gate, hidden) for gate in why.closed)
    return job, replace(why, sentence=_without_ids(why.sentence, hidden), closed=closed)


def _without_ids(text: str, hidden: Collection[str]) -> str:
    for one in hidden:
        text = text.replace(one, _OTHER)
    return text


def _named(gate: GateState) -> Iterator[str]:
    """Yield the jobs that a gate's state contains, including those of a pool's members."""
    yield from (one.job for one in gate.holders)
    if gate.reserved_for:
        yield gate.reserved_for
    for member in gate.members:
        yield from _named(member)


def _without(gate: GateState, hidden: Collection[str]) -> GateState:
    return replace(
        gate,
        reserved_for=None if gate.reserved_for in hidden else gate.reserved_for,
        holders=tuple(one for one in gate.holders if one.job not in hidden),
        members=tuple(_without(one, hidden) for one in gate.members),
    )
