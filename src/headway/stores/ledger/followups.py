"""Jobs that follow from another's end or doubt, made in the same step."""

from __future__ import annotations

import json

from headway.core.job import FollowUp, JobPolicy, NewJob, derived_id
from headway.core.retry import RetryPolicy
from headway.stores.ledger.rows import JobRow

# It asks until the deadline decides: giving up sooner would leave the permits taken till then.
_RECONCILE_POLICY = JobPolicy(retry=RetryPolicy(attempts=100_000, base_ms=1_000, cap_ms=30_000))


def follow_up(row: JobRow, follow: FollowUp) -> NewJob:
    """The job that a final one brings about; the same life gives the same job.

    Args:
        row: the cause, already final.
        follow: what its kind says.

    Returns:
        The job; its id is derived, and gives way to the next of its series where it is taken.
    """
    body = {"job": row.id, "state": str(row.state), "reason": row.reason}
    return NewJob(
        id=derived_id("on_final", row.id, row.life),
        kind=follow.kind,
        lane=follow.lane or row.lane,
        tenant=row.tenant,
        subject=row.subject,
        args=json.dumps(body, separators=(",", ":")).encode(),
    )


def accepted_job(row: JobRow, follow: FollowUp) -> NewJob:
    """The job that an acceptance brings about; the same run gives the same job.

    Args:
        row: the cause; it awaits its end.
        follow: what its kind says.

    Returns:
        The job; its id is derived, as of `follow_up`.
    """
    body = {"job": row.id, "state": "accepted", "candidate": row.candidate, "run": row.run}
    return NewJob(
        id=derived_id("on_accepted", row.id, row.run),
        kind=follow.kind,
        lane=follow.lane or row.lane,
        tenant=row.tenant,
        subject=row.subject,
        args=json.dumps(body, separators=(",", ":")).encode(),
    )


def reconcile_job(row: JobRow, kind: str) -> NewJob:
    """The job that asks the provider what became of a run.

    Args:
        row: awaiting.
        kind: the reconcile kind.

    Returns:
        The job; its id is derived from the run and how often it was asked about.
    """
    body = {"job": row.id, "run": row.run, "asked": row.reconciles}
    return NewJob(
        id=derived_id("reconcile", row.id, row.run, row.reconciles),
        kind=kind,
        lane=row.lane,
        tenant=row.tenant,
        subject=row.subject,
        args=json.dumps(body, separators=(",", ":")).encode(),
        policy=_RECONCILE_POLICY,
    )
