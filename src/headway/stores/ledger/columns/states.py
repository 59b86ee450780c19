"""The numbers by which states are stored."""

from __future__ import annotations

from headway.core.state import State

STATES: tuple[State, ...] = tuple(State)
"""In the order of their numbers; the migrations rely on it."""
CODES = {state: code for code, state in enumerate(STATES)}

SCHEDULED = CODES[State.SCHEDULED]
WAITING = CODES[State.WAITING]
PARKED = CODES[State.PARKED]
RUNNING = CODES[State.RUNNING]
AWAITING = CODES[State.AWAITING]
SUCCEEDED = CODES[State.SUCCEEDED]
