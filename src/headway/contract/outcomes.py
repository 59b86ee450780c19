"""Outcomes: everything that a live run may write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from headway.core.gates.spec import GateUse
from headway.core.job import MAX_ERROR, MAX_REASON, NewJob


@dataclass(frozen=True, kw_only=True, slots=True)
class Closing:
    """A gate to be closed, by a handler whose provider said "not now", or by an operator.

    Attributes:
        gate: its resolved name.
        for_ms: how long from now; None with `until_at` None for good.
        until_at: until when; takes precedence over `for_ms`.
        reason: free text.
    """

    gate: str
    for_ms: int | None = None
    until_at: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The part that all outcomes share.

    Attributes:
        job: the job.
        run: the run that says so.
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
    """The attempt failed: retried by the job's policy, or dead when attempts are used up.

    `after_ms` or `until_at` replaces the policy's delay. The next attempt is made at `stage` with
    its `gates`; empty for the stage and the gates that this one had.
    """

    error: str = ""
    after_ms: int | None = None
    until_at: int | None = None
    stage: str = ""
    gates: tuple[GateUse, ...] = ()

    @property
    def line(self) -> str:
        """The error's last line, which says why in the job's record."""
        lines = self.error[:MAX_ERROR].strip().splitlines()
        return lines[-1][:MAX_REASON] if lines else ""


@dataclass(frozen=True, slots=True)
class Died(Outcome):
    """No further attempt is wanted."""

    reason: str = "failed"
    error: str = ""


@dataclass(frozen=True, slots=True)
class Snoozed(Outcome):
    """Not now: due again later; the attempt is repeated.

    Attributes:
        after_ms: the delay.
        until_at: the moment; takes precedence.
        reason: the job's from now on; an empty one leaves that which it has.
    """

    after_ms: int | None = None
    until_at: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NextStage(Outcome):
    """Goes on with the next stage and its gates; uses no attempt."""

    stage: str = ""
    gates: tuple[GateUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Released(Outcome):
    """Handed back unused; the attempt is repeated."""

    reason: str = "handed back"


@dataclass(frozen=True, slots=True)
class HandedOver(Outcome):
    """The outside world has it now: awaiting until a signal for `key` or the deadline.

    A job with a requested cancel ends cancelled instead, and its `then` is not created.
    """

    key: str = ""
    timeout_ms: int = 1_800_000


@dataclass(frozen=True, slots=True)
class KnownAs(Outcome):
    """Adds a key, such as the provider's id, under which signals find the run.

    The key of another job's live run is refused with `KeyConflict`, here and in a hand-over.
    """

    key: str = ""


@dataclass(frozen=True, slots=True)
class Returned(Outcome):
    """The handler of a run that has handed over is through; only recorded."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class GaveBack(Outcome):
    """Frees one gate early; `gate` is its name, or a pool's."""

    gate: str = ""


@dataclass(frozen=True, slots=True)
class FoundUnfit(Outcome):
    """A cascade's candidate is passed over; the next turn begins."""

    reason: str = ""


_JOB = attrgetter("job")


class Verdict(StrEnum):
    """The answer to one outcome."""

    DONE = "done"
    ALREADY = "already"
    """This same run has settled before, or had written just this."""
    LOST = "lost"
    """The run is no longer live; nothing was written."""
    CANCELLED = "cancelled"
    """Written, but the job ends cancelled, because a cancel was requested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SettleRequest:
    """Outcomes of one worker's runs, each checked and written by itself, in this order.

    Attributes:
        worker: its random id.
        outcomes: up to 1000.
    """

    worker: str
    outcomes: tuple[Outcome, ...]

    def plain(self) -> list[int]:
        """Return the places of outcomes that say only that their run succeeded.

        Stores write these in bulk. Empty if a job has several outcomes: their order matters.
        """
        if len(set(map(_JOB, self.outcomes))) < len(self.outcomes):
            return []
        return [
            place
            for place, one in enumerate(self.outcomes)
            if type(one) is Succeeded and one.result is None and not one.then and not one.close
        ]
