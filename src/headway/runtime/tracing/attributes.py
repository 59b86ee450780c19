"""What spans say, in the words of the semantic conventions for messaging where they have one.

Never what a job carries: neither its arguments nor its result, nor its subject.
"""

from __future__ import annotations

from enum import StrEnum

from opentelemetry.util.types import AttributeValue

from headway.contract.claims import Claimed
from headway.contract.outcomes import (
    Died,
    Failed,
    FoundUnfit,
    GaveBack,
    HandedOver,
    KnownAs,
    NextStage,
    Outcome,
    Released,
    Returned,
    Snoozed,
    Succeeded,
)
from headway.core.job import NewJob

Attributes = dict[str, AttributeValue]

WORDS: dict[type[Outcome], str] = {
    Succeeded: "succeeded",
    Failed: "failed",
    Died: "dead",
    Snoozed: "snoozed",
    NextStage: "next_stage",
    Released: "released",
    HandedOver: "handed_over",
    KnownAs: "known_as",
    Returned: "returned",
    GaveBack: "gave_back",
    FoundUnfit: "unfit",
}


class Operation(StrEnum):
    """What a span is of."""

    ENQUEUE = "enqueue"
    CLAIM = "claim"
    RUN = "run"
    SETTLE = "settle"
    SIGNAL = "signal"


_TYPES = {
    Operation.ENQUEUE: "send",
    Operation.CLAIM: "receive",
    Operation.RUN: "process",
    Operation.SETTLE: "settle",
}


def of_operation(operation: Operation, job: str) -> Attributes:
    """What every span says."""
    attributes: Attributes = {
        "messaging.system": "headway",
        "messaging.operation.name": operation.value,
        "messaging.message.id": job,
    }
    if operation in _TYPES:
        attributes["messaging.operation.type"] = _TYPES[operation]
    return attributes


def of_new(job: NewJob, made: str) -> Attributes:
    """What is said of a job that is enqueued.

    Args:
        job: as it was asked for.
        made: the id of the job that exists now.
    """
    attributes = of_operation(Operation.ENQUEUE, made) | {
        "messaging.destination.name": job.lane,
        "messaging.message.body.size": len(job.args),
        "headway.kind": job.kind,
        "headway.priority": job.priority,
    }
    if job.tenant:
        attributes["headway.tenant"] = job.tenant
    return attributes


def of_claimed(operation: Operation, claimed: Claimed, worker: str) -> Attributes:
    """What is said of a run."""
    attributes = of_operation(operation, claimed.id) | {
        "messaging.destination.name": claimed.lane,
        "messaging.message.body.size": len(claimed.args),
        "headway.kind": claimed.kind,
        "headway.run": claimed.run,
        "headway.attempt": claimed.attempt,
        "headway.gated": claimed.gated,
    }
    if worker:
        attributes["messaging.client.id"] = worker
    if claimed.tenant:
        attributes["headway.tenant"] = claimed.tenant
    if claimed.stage:
        attributes["headway.stage"] = claimed.stage
    return attributes
