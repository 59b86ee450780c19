"""Sweeps: what time alone brings about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepReply:
    """What one bounded sweep did.

    Attributes:
        lost: runs whose lease had ended.
        deadlines: hand-overs whose deadline had come.
        expired: jobs that never started in time.
        promoted: scheduled jobs that became waiting.
        fed: parked jobs that were moved into their flow.
        dead: ids of the jobs that are dead now, whatever of the above ended them.
        removed: jobs and lines of the trail past their retention.
        next_at: when there is something to sweep again, if that is known.
        again: more is due now.
    """

    lost: int = 0
    deadlines: int = 0
    expired: int = 0
    promoted: int = 0
    fed: int = 0
    dead: tuple[str, ...] = ()
    removed: int = 0
    next_at: int | None = None
    again: bool = False
