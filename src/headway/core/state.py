"""The states of a job and the one table of moves between them."""

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

    # An Enum's own is a function of Python, and each step looks states up in sets and tables.
    __hash__ = str.__hash__


FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
"""No move leaves these but an operator's retry, which begins a new life."""

HELD = frozenset({State.RUNNING, State.AWAITING})
"""The states in which a job holds permits."""

QUEUED = frozenset({State.SCHEDULED, State.WAITING, State.PARKED})
"""The states in which a job has no holder."""

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
"""From each state, the states a job may go to.

A queued job becomes `succeeded` only by an operator; `restore` alone makes jobs in `awaiting`.
"""


def check_move(old: State, new: State) -> None:
    """Accept a move of the table.

    Raises:
        InvariantBroken: the table has no such move; the step must be rolled back.
    """
    if new not in MOVES[old]:
        message = f"there is no transition from {old} to {new}"
        raise InvariantBroken(message)
