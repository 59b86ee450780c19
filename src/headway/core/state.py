"""The states of a job, and the table of allowed transitions."""

from __future__ import annotations

from enum import StrEnum

from headway.core.errors import InvariantBroken


class State(StrEnum):
    """The state of a job, exactly as it is stored."""

    SCHEDULED = "scheduled"
    WAITING = "waiting"
    PARKED = "parked"
    RUNNING = "running"
    AWAITING = "awaiting"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"

    # Enum's own hash is slow Python code, and each step looks up states in sets and tables.
    __hash__ = str.__hash__


FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
"""States that only an operator's retry leaves, which starts a new life."""

HELD = frozenset({State.RUNNING, State.AWAITING})
"""The states in which a job holds permits."""

QUEUED = frozenset({State.SCHEDULED, State.WAITING, State.PARKED})
"""The states in which no worker has the job and it holds no permits."""

MOVES: dict[State, frozenset[State]] = {
    State.SCHEDULED: QUEUED | FINAL,
    State.WAITING: QUEUED | FINAL | {State.RUNNING},
    State.PARKED: QUEUED | FINAL,
    State.RUNNING: FINAL | {State.AWAITING, State.SCHEDULED, State.WAITING},
    State.AWAITING: FINAL | {State.AWAITING, State.SCHEDULED, State.WAITING},
    State.SUCCEEDED: frozenset(),
    State.DEAD: frozenset({State.WAITING, State.SCHEDULED}),
    State.CANCELLED: frozenset({State.WAITING, State.SCHEDULED}),
}
"""The allowed next states of each state.

A queued job becomes `succeeded` only through an operator; only `restore` creates jobs in
`awaiting`.
"""


def check_move(old: State, new: State) -> None:
    """Check that a transition is allowed.

    Raises:
        InvariantBroken: the transition is not allowed; the step must be rolled back.
    """
    if new not in MOVES[old]:
        message = f"there is no transition from {old} to {new}"
        raise InvariantBroken(message)
