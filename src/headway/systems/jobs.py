"""Reading and changing the jobs of a system: runs, actions, queue lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import uuid4

import msgspec

from headway.contract.operate import ActReply, ActRequest, Edit, Verb
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobView, LaneView, RunView
from headway.core.check import is_job_id
from headway.core.errors import UnknownRecord
from headway.core.state import QUEUED, State
from headway.server.caller import Caller
from headway.server.finding import Fits
from headway.server.overview import Overview


def ref_of(job: JobView) -> str:
    """Return the reference of a job's last run, the key under which a signal finds it."""
    return f"{job.id}:{job.run}"


def find_run(job: JobView, number: int) -> RunView | None:
    """Return the run with this number; None if there is none, or the job was read without runs."""
    return next((one for one in job.runs if one.run == number), None)


def can_read(read: Callable[[bytes], object], job: JobView) -> bool:
    """Return whether a system can read a job's arguments.

    Its server checks them, but `headway retry --args` and other programs write to the store itself.
    """
    try:
        read(job.args)
    except msgspec.MsgspecError:
        return False
    return True


async def system_job(
    store: Store, caller: Caller, fits: Fits, job_id: str, *, noun: str, hint: str
) -> JobView:
    """Return a job of a system, with its runs and trail.

    Args:
        fits: which jobs are the system's.
        noun: name of such a job in the error message.
        hint: hint of the error.

    Raises:
        UnknownRecord: there is no such job, or the caller may not see it.
    """
    found = await store.read(JobQuery(id=job_id)) if is_job_id(job_id) else None
    if found is None or not fits(found) or not caller.sees(found):
        message = f"there is no {noun} {job_id[:64]!r}"
        raise UnknownRecord(message, hint=hint)
    return found


async def act(
    store: Store,
    verb: Verb,
    *ids: str,
    author: str,
    reason: str = "",
    edit: Edit | None = None,
    states: Iterable[State] = (),
) -> list[ActReply]:
    """Perform an operator's action on up to 1000 jobs, as a new request; see `Store.act`.

    Args:
        states: the action is refused for a job in another state; empty for any.
    """
    request = ActRequest(
        request=str(uuid4()),
        ids=ids,
        verb=verb,
        edit=edit or Edit(),
        states=tuple(states),
        author=author,
        reason=reason,
    )
    return await store.act(request)


def find_lane(overview: Overview, name: str) -> LaneView | None:
    """Return the lane with this name; None if it has never had a job."""
    return next((one for one in overview.lanes if one.name == name), None)


def count_queued(lane: LaneView | None) -> int:
    """Return the number of queued jobs in a lane; 0 if there is no lane."""
    return 0 if lane is None else sum(lane.counts.get(state, 0) for state in QUEUED)
