"""The stage at which a job continues: resolved before the job changes, entered once queued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway.core.gates.spec import GateUse
from headway.core.state import QUEUED
from headway.stores.ledger.flow_of import flow_of
from headway.stores.ledger.rows import JobRow
from headway.stores.ledger.step import Step


class Stage(NamedTuple):
    """A stage of a job.

    Attributes:
        name: empty in a kind without stages.
        flow: the number of the flow in which the job waits for it.
        keyed: its keyed gates.
    """

    name: str
    flow: int
    keyed: tuple[GateUse, ...]


def stage_of(step: Step, row: JobRow, name: str, gates: Sequence[GateUse]) -> Stage:
    """Resolve a stage and its gates for a job.

    Args:
        gates: that it asks for there.

    Returns:
        What `enter` takes.

    Raises:
        UnknownGate: a gate is not declared; the step must be rolled back.
        InvalidValue: the gates cannot be asked for; the step must be rolled back.
    """
    flow, keyed = flow_of(step.book, row.lane, row.tenant, row.kind, gates)
    return Stage(name, flow, keyed)


def another_stage(step: Step, row: JobRow, name: str, gates: Sequence[GateUse]) -> Stage | None:
    """As `stage_of`; None for an empty name, which means the job's current stage."""
    return stage_of(step, row, name, gates) if name else None


def enter(step: Step, row: JobRow, stage: Stage | None) -> None:
    """Move a job that is back in its queue to a stage; one that has ended stays as it was.

    Args:
        row: already out of its former queue.
        stage: None to stay at the current one.
    """
    if stage is None or row.state not in QUEUED:
        return
    row.stage, row.flow, row.keyed = stage
    step.changed(row)
