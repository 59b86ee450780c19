"""Jobs made when another ends, is accepted or is in doubt, in the same step."""

from __future__ import annotations

import json

from headway.core.job import FollowUp, JobPolicy, NewJob, derived_id
from headway.core.retry import RetryPolicy
from headway.stores.ledger.rows import JobRow

# It retries until the deadline: giving up sooner would keep the permits taken until then.
_RECONCILE_POLICY = JobPolicy(retry=RetryPolicy(attempts=100_000, base_ms=1_000, cap_ms=30_000))


def follow_up(row: JobRow, follow: FollowUp) -> NewJob:
    """Return the `on_final` job of a job that ended; the same life gives the same job.

    Args:
        follow: as its kind declares it.

    Returns:
        The job; its id is derived. If that is taken, the next id of the series is used.
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
    """Return the `on_accepted` job of a job that was accepted; the same run gives the same job.

    Args:
        row: the accepted job; it awaits its end.
        follow: as its kind declares it.

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
    """Return the job that asks the provider about a run.

    Returns:
        The job; its id is derived from the run and the number of times it was asked about.
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
