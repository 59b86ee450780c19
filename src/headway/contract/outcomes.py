"""Outcomes: everything that a live run can write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from headway.core.gates.spec import GateUse
from headway.core.job import MAX_ERROR, MAX_REASON, NewJob

HAND_OVER_MS = 1_800_000
"""Default time from a hand-over to its deadline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Closing:
    """A gate to close, by a handler whose provider refuses requests for now, or by an operator.

    Attributes:
        gate: resolved name of the gate.
        for_ms: how long from now; None, together with `until_at` None, means indefinitely.
        until_at: when it opens again, ms UTC; takes precedence over `for_ms`.
    """

    gate: str
    for_ms: int | None = None
    until_at: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The fields that all outcomes share.

    Attributes:
        run: number of the run that reports the outcome.
        then: jobs to create in the same step.
        close: gates to close in the same step.
    """

    job: str
    run: int
    then: tuple[NewJob, ...] = ()
    close: tuple[Closing, ...] = ()


@dataclass(frozen=True, slots=True)
class Succeeded(Outcome):
    """The work is done; `result` is JSON or None."""

    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failed(Outcome):
    """The attempt failed: the job is retried by its policy, or dies if its attempts are used up.

    `after_ms` or `until_at` replaces the policy's delay. The next attempt is made at `stage` with
    its `gates`; if both are empty, at the current stage with its gates.
    """

    error: str = ""
    after_ms: int | None = None
    until_at: int | None = None
    stage: str = ""
    gates: tuple[GateUse, ...] = ()

    @property
    def line(self) -> str:
        """The last line of the error, which becomes the job's reason."""
        lines = self.error[:MAX_ERROR].strip().splitlines()
        return lines[-1][:MAX_REASON] if lines else ""


@dataclass(frozen=True, slots=True)
class Died(Outcome):
    """The job dies, whatever attempts are left."""

    reason: str = "failed"
    error: str = ""


@dataclass(frozen=True, slots=True)
class Snoozed(Outcome):
    """The job is postponed, without using the attempt.

    Attributes:
        after_ms: delay.
        until_at: new due time, ms UTC; takes precedence over `after_ms`.
        reason: new reason of the job; empty to keep the current one.
    """

    after_ms: int | None = None
    until_at: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NextStage(Outcome):
    """Continues with the next stage and its gates; uses no attempt."""

    stage: str = ""
    gates: tuple[GateUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Released(Outcome):
    """The run is handed back unused; uses no attempt."""

    reason: str = "handed back"


@dataclass(frozen=True, slots=True)
class HandedOver(Outcome):
    """The work was handed over: the job awaits a signal for `key`, until the deadline.

    If a cancel was requested, the job ends cancelled instead, and the `then` jobs are not created.
    """

    key: str = ""
    timeout_ms: int = HAND_OVER_MS


@dataclass(frozen=True, slots=True)
class KnownAs(Outcome):
    """Adds a key, such as the provider's id, under which signals find the run.

    The key of another job's live run is refused with `KeyConflict`, as in a hand-over.
    """

    key: str = ""


@dataclass(frozen=True, slots=True)
class Returned(Outcome):
    """The handler of a handed-over run has returned; this is only recorded."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class GaveBack(Outcome):
    """Returns the permits of one gate early; `gate` is the name of the gate or of the pool."""

    gate: str = ""


@dataclass(frozen=True, slots=True)
class FoundUnfit(Outcome):
    """The current candidate of a cascade is passed over; the next turn starts."""

    reason: str = ""


_JOB = attrgetter("job")


class Verdict(StrEnum):
    """The reply to one outcome."""

    DONE = "done"
    ALREADY = "already"
    """The run was already settled, or the outcome was already written."""
    LOST = "lost"
    """The run is no longer live; nothing was written."""
    CANCELLED = "cancelled"
    """Written, but the job ends cancelled, because a cancel was requested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SettleRequest:
    """Outcomes of one worker's runs, each checked and written on its own, in order.

    Attributes:
        outcomes: up to 1000.
    """

    worker: str
    outcomes: tuple[Outcome, ...]

    def plain(self) -> list[int]:
        """Return the indexes of outcomes that only report success, which stores write in bulk.

        Empty if a job has several outcomes, because their order matters.
        """
        if len(set(map(_JOB, self.outcomes))) < len(self.outcomes):
            return []
        return [
            place
            for place, one in enumerate(self.outcomes)
            if type(one) is Succeeded and one.result is None and not one.then and not one.close
        ]
