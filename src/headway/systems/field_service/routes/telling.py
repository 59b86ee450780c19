"""Replies of this system's routes: a request as it stands."""

from __future__ import annotations

from fastapi import Response

from headway.contract.views import JobQuery, JobView
from headway.core.errors import UnknownRecord
from headway.server.access.caller import Caller
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply_model
from headway.server.service import Service
from headway.systems.field_service.names import OFFER
from headway.systems.field_service.told import ServiceRequest, service_request

REQUEST = reply_model(ServiceRequest)


async def find_request(service: Service, caller: Caller, request: str) -> JobView:
    """The job of a request that the caller sees.

    Raises:
        UnknownRecord: there is none.
    """
    job = await service.store.read(JobQuery(id=request))
    if job is None or job.kind != OFFER or not caller.sees(job):
        message = f"there is no service request {request[:64]!r}"
        raise UnknownRecord(message, hint="GET /service-requests lists them")
    return job


async def tell(service: Service, job: JobView, status: int = 200) -> Response:
    """The reply that says how a request stands."""
    return answer(service_request(job, await service.now()), status)
