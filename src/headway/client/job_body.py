"""A job as a server is asked for it: all that its kind made of it, the gates resolved."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headway.client.fields import Fields
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateUse
from headway.core.job import DEFAULT_POLICY, DEFAULT_PRIORITY, JobPolicy, NewJob
from headway.core.retry import RetryPolicy

_UNSAID = {"tenant": "", "stage": ""}
"""Where the empty word says nothing."""


def job_body(job: NewJob, now: int) -> Fields:
    """The body that asks for a job.

    Args:
        job: from a kind's `make`, or made by hand.
        now: the caller's own time in ms UTC, for what expires without being due.

    Returns:
        What is not the default.

    Raises:
        InvalidValue: it is a fire of a timetable, which only a store lays.
    """
    if job.entry is not None:
        message = f"the job {job.id} is a fire of the entry {job.entry!r}"
        raise InvalidValue(message, hint="the server lays the fires of its timetable itself")
    said: Fields = {
        "id": job.id,
        "kind": job.kind,
        "lane": job.lane,
        "args": msgspec.Raw(job.args),
        "tenant": job.tenant,
        "subject": job.subject,
        "stage": job.stage,
        "due": job.due_at,
        "key": job.key,
        "candidates": list(job.candidates) or None,
        "gates": gate_bodies(job.gates) or None,
    }
    body = {
        name: value
        for name, value in said.items()
        if value is not None and value != _UNSAID.get(name)
    }
    if job.priority != DEFAULT_PRIORITY:
        body["priority"] = job.priority
    if job.expires_at is not None:
        body["expires"] = max(job.expires_at - (now if job.due_at is None else job.due_at), 0)
    if job.policy is not DEFAULT_POLICY:
        body |= _policy_fields(job.policy)
    return body


def gate_bodies(gates: Iterable[GateUse]) -> list[Fields]:
    """What a job asks for at its gates: the name as declared, and as resolved."""
    return [_gate(use) for use in gates]


def _gate(use: GateUse) -> Fields:
    body: Fields = {"gate": use.template}
    if use.name != use.template:
        body["name"] = use.name
    if use.zone is not None:
        body["zone"] = use.zone
    if use.amount != 1:
        body["amount"] = use.amount
    if use.hold != "settled":
        body["hold"] = use.hold
    return body


def _policy_fields(policy: JobPolicy) -> Fields:
    """What differs from the policy of a job of which nothing is said."""
    plain = DEFAULT_POLICY
    spans = {
        "timeout": (policy.timeout_ms, plain.timeout_ms),
        "start_within": (policy.start_within_ms, plain.start_within_ms),
        "reconcile_within": (policy.reconcile_within_ms, plain.reconcile_within_ms),
        "keep": (policy.keep_ms, plain.keep_ms),
        "key_for": (policy.key_for_ms, plain.key_for_ms),
        "on_deadline": (policy.on_deadline, plain.on_deadline),
        "reconcile": (policy.reconcile, plain.reconcile),
    }
    body: Fields = {name: value for name, (value, usual) in spans.items() if value != usual}
    if policy.retry != plain.retry:
        body["retry"] = _retry(policy.retry)
    if policy.on_final is not None:
        follow = policy.on_final
        body["on_final"] = {
            "kind": follow.kind,
            "lane": follow.lane,
            "states": [str(state) for state in follow.states],
        }
    if policy.cascade:
        body["cascade"] = True
    if policy.on_accepted is not None:
        body["on_accepted"] = {"kind": policy.on_accepted.kind, "lane": policy.on_accepted.lane}
    return body


def _retry(retry: RetryPolicy) -> Fields:
    return {
        "attempts": retry.attempts,
        "base": retry.base_ms,
        "factor": retry.factor,
        "cap": retry.cap_ms,
        "jitter": retry.jitter,
    }
