"""What requests to this system say."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

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
from headway.server.long_polling.claiming import LEASE_MS

AnyJobId = Annotated[
    Name,
    Field(
        description="The engine's id, or the job_id that it was enqueued with.",
        examples=["order-17"],
    ),
]
Tenant = Annotated[
    TenantName | None,
    Field(description="Whose job it is, where a job_id that is no UUID is looked for."),
]


class EnqueueBody(Body):
    """A job for the clients that pull from its lane."""

    lane: Name = Field(description="Where it waits; a new lane needs nothing.", examples=["mail"])
    type: Name = Field(description="Names the handler.", examples=["send_email"])
    payload: dict[str, Any] = Field(
        default={},
        description="For the handler; at most 1,000,000 bytes as JSON.",
        examples=[{"to": "ada@example.org"}],
    )
    job_id: Name | None = Field(
        default=None,
        description="However often this is sent, one job is made of it. A UUID becomes the job's "
        "id, any other text its key.",
        examples=["order-17"],
    )
    due: When | None = Field(default=None, description="When it is due; now if not given.")
    tenant: TenantName | None = Field(default=None, description="The customer it runs for.")


class PullBody(ClaimBody):
    """The worker, the lanes and the number of jobs: a claim by another name."""


class PulledBody(Body):
    """A pulled job: its id, run and worker."""

    worker: Name = Field(description="As the pull named it.")
    job_id: AnyJobId
    run: RunNumber = Field(description="From the pull.")
    tenant: Tenant = None


class AckBody(PulledBody):
    """A job that is done."""

    result: Any = Field(default=None, description="Anything, for the record; at most 1,000,000 B.")


class FailBody(PulledBody):
    """An attempt that failed."""

    error: ErrorText = Field(default="", description="What went wrong, as text.")
    after: Span | None = Field(
        default=None,
        description="When to try again; else after 10 s, 80 s, 11 min, 1 h, or half of that.",
    )
    dead: bool = Field(default=False, description="No further attempt is wanted.")


class ExtendBody(PulledBody):
    """A job that takes longer."""

    lease: Span = Field(
        default=LEASE_MS, description="From now; for all that the worker has pulled."
    )
    progress: Any = Field(default=None, description="How far it is, shown as it is.")


class RetryBody(Body):
    """Dead jobs that get a new life."""

    job_ids: FailFastList[AnyJobId] | None = Field(
        default=None, min_length=1, max_length=1_000, description="These; or by lane and type."
    )
    lane: Name | None = Field(default=None, description="All dead ones of this lane.")
    type: Name | None = Field(default=None, description="All dead ones of this type.")
    payload: dict[str, Any] | None = Field(
        default=None, description="In place of the old one; for one job."
    )
    limit: int = Field(default=1_000, ge=1, le=10_000, description="Of those by lane and type.")
    reason: Text = Field(default="", description="Why; on the trail.")
    tenant: Tenant = None
