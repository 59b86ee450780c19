"""Situations that several groups begin with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from headway.contract.outcomes import HandedOver
from headway.core.gates.spec import GateUse
from headway.core.job import FollowUp, JobPolicy
from headway.core.retry import RetryPolicy
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.jobs import POLICY


class PolicyFields(TypedDict, total=False):
    """The fields of a policy that a test may set."""

    retry: RetryPolicy
    timeout_ms: int | None
    on_deadline: str
    reconcile: str | None
    reconcile_within_ms: int
    on_final: FollowUp | None
    keep_ms: int
    key_for_ms: int
    cascade: bool
    on_accepted: FollowUp | None


def policy_with(**changes: Unpack[PolicyFields]) -> JobPolicy:
    """The policy of the job factory, with some fields changed."""
    return replace(POLICY, **changes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A run that has handed over.

    Attributes:
        key: under which it awaits its signal.
    """

    id: str
    run: int
    key: str
    worker: PlayedWorker


async def take_ids(rig: Rig, *ids: str) -> None:
    """Enqueue jobs of an unused kind and lane, with ids that other jobs would derive."""
    for taken in ids:
        await rig.add(id=taken, kind="other", lane="others", key=None)


async def dial(
    rig: Rig,
    *,
    key: str = "call-1",
    gates: tuple[GateUse, ...] = (),
    policy: JobPolicy = POLICY,
    timeout_ms: int = 1_800_000,
) -> Call:
    """A new job, started by a new worker and handed over.

    Returns:
        The run.
    """
    job = await rig.add(gates=gates, policy=policy, priority=1, expires_at=None)
    worker = rig.new_worker()
    run = await worker.take_one()
    assert run.id == job.id
    await worker.settle(HandedOver(run.id, run.run, key=key, timeout_ms=timeout_ms))
    return Call(id=job.id, run=run.run, key=key, worker=worker)
