"""Job ids as callers like them: a UUID is the engine's id, any other text is the job's key."""

from __future__ import annotations

from headway.contract.views import JobsQuery, JobView
from headway.core.check import is_job_id
from headway.core.errors import UnknownJob
from headway.server.access.caller import Caller
from headway.server.service import Service
from headway.server.visibility import visible_job


def as_uuid(job_id: str) -> str | None:
    """The engine's id that a job_id is; None if it is the key of a job."""
    own = job_id.lower()
    return own if is_job_id(own) else None


async def find_id(service: Service, caller: Caller, job_id: str, tenant: str | None = None) -> str:
    """Return the engine's id of a job; if the job_id is one, without a lookup.

    Raises:
        UnknownJob: no job that the caller sees has this key.
        Forbidden: the tenant is another's.
    """
    found = as_uuid(job_id)
    return found if found is not None else (await _by_key(service, caller, job_id, tenant)).id


async def find_job(
    service: Service, caller: Caller, job_id: str, tenant: str | None = None
) -> JobView:
    """A job with its runs and trail.

    Raises:
        UnknownJob: there is none that the caller sees.
        Forbidden: the tenant is another's.
    """
    return await visible_job(service, caller, await find_id(service, caller, job_id, tenant))


async def _by_key(service: Service, caller: Caller, key: str, tenant: str | None) -> JobView:
    query = JobsQuery(key=key, tenant=caller.tenant(tenant) or "")
    rows = (await service.store.read(query)).rows if "\0" not in key else ()
    if not rows or not caller.sees(rows[0]):
        message = f"there is no job {key[:64]!r}"
        raise UnknownJob(message, hint="a key lives for seven days after the end of its job")
    return rows[0]
