"""The bodies of requests to this system."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from headway.runtime.worker.worker_options import LEASE_MS
from headway.server.bodies.base import (
    Body,
    FailFastList,
    Name,
    RunNumber,
    Span,
    TenantName,
    Text,
    When,
)
from headway.server.bodies.work import ClaimBody, ErrorText

AnyJobId = Annotated[
    Name,
    Field(
        description="The engine's id, or the job_id with which the job was enqueued.",
        examples=["order-17"],
    ),
]
Tenant = Annotated[
    TenantName | None,
    Field(description="Tenant of the job, if the job_id is not a UUID."),
]


class EnqueueBody(Body):
    """A job for the clients that pull from its lane."""

    lane: Name = Field(
        description="Lane that the job waits in; a new lane needs no setup.", examples=["mail"]
    )
    type: Name = Field(
        description="Type of the job; it names the handler.", examples=["send_email"]
    )
    payload: dict[str, Any] = Field(
        default={},
        description="Data for the handler; at most 1,000,000 bytes as JSON.",
        examples=[{"to": "ada@example.org"}],
    )
    job_id: Name | None = Field(
        default=None,
        description="However often this is sent, one job is created. A UUID becomes the job's id, "
        "any other text its key.",
        examples=["order-17"],
    )
    due: When | None = Field(default=None, description="When the job is due (default: now).")
    tenant: TenantName | None = Field(default=None, description="Customer that the job runs for.")


class PullBody(ClaimBody):
    """The worker, the lanes and the number of jobs; the same as a claim."""


class PulledBody(Body):
    """A pulled job: its id, run and worker."""

    worker: Name = Field(description="Name of the worker, as in the pull.")
    job_id: AnyJobId
    run: RunNumber = Field(description="Run number from the pull.")
    tenant: Tenant = None


class AckBody(PulledBody):
    """A finished job."""

    result: Any = Field(
        default=None, description="Result to record: any JSON, at most 1,000,000 bytes."
    )


class FailBody(PulledBody):
    """An attempt that failed."""

    error: ErrorText = Field(default="", description="What went wrong, as text.")
    after: Span | None = Field(
        default=None,
        description="When to retry. By default after 10 s, 80 s, 11 min and 1 h, or as little as "
        "half of that.",
    )
    dead: bool = Field(default=False, description="Whether to give up, without further attempts.")


class ExtendBody(PulledBody):
    """A job that needs more time."""

    lease: Span = Field(
        default=LEASE_MS,
        description="New lease, from now, for all jobs that the worker has pulled.",
    )
    progress: Any = Field(default=None, description="Progress, shown unchanged.")


class RetryBody(Body):
    """Dead jobs to retry."""

    job_ids: FailFastList[AnyJobId] | None = Field(
        default=None,
        min_length=1,
        max_length=1_000,
        description="Jobs to retry; alternatively, use lane and type.",
    )
    lane: Name | None = Field(default=None, description="Retry all dead jobs in this lane.")
    type: Name | None = Field(default=None, description="Retry all dead jobs of this type.")
    payload: dict[str, Any] | None = Field(
        default=None, description="New payload; only for a single job."
    )
    limit: int = Field(
        default=1_000, ge=1, le=10_000, description="Maximum number of jobs by lane and type."
    )
    reason: Text = Field(default="", description="Reason, recorded in the trail.")
    tenant: Tenant = None
