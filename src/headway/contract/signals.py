"""Signals: what the outside world says about a job that awaits it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core.gates.spec import GateUse


class SignalKind(StrEnum):
    """What a signal does."""

    FINAL = "final"
    PROGRESS = "progress"
    NOTE = "note"


class Decided(StrEnum):
    """What a final signal makes of the job."""

    SUCCEEDED = "succeeded"
    RETRY = "retry"
    DEAD = "dead"
    ACCEPTED = "accepted"
    """The offer's candidate takes it: the job's end, unless its policy has `on_accepted`."""
    DECLINED = "declined"
    """The offer's candidate does not; the next turn begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """One event about one run.

    Attributes:
        key: the job's reference (`id:run`) or a key that it is known as.
        event: the event's id; each is applied once.
        kind: settles, extends or labels.
        decided: of a final one.
        body: JSON for the record; None for none.
        label: of a note, such as DELIVERED.
        extend_ms: of a progress: the new time from now to the deadline.
        after_ms: of a final RETRY: replaces the policy's delay.
        reason: of a final DEAD or DECLINED.
        candidate: who answers an offer; empty for the candidate whose turn it is.
        stage: of a final RETRY: where the next attempt is made; empty for the same stage.
        gates: of that stage, resolved.
        offer: it is about an offer alone: late once the candidate has accepted, though the job
            goes on awaiting its end.
        known_as: a key, such as the provider's id, under which signals find this run from now on;
            also of a late one. Empty for none. One that names the live run of another job stays
            with it, which the trail says.
    """

    key: str
    event: str
    kind: SignalKind = SignalKind.FINAL
    decided: Decided = Decided.SUCCEEDED
    body: bytes | None = None
    label: str = ""
    extend_ms: int | None = None
    after_ms: int | None = None
    reason: str = ""
    candidate: str = ""
    stage: str = ""
    gates: tuple[GateUse, ...] = ()
    offer: bool = False
    known_as: str = ""


class Heard(StrEnum):
    """What was done with a signal."""

    APPLIED = "applied"
    """The event was applied: the first one with this id."""
    ALREADY = "already"
    """An event with this id was applied before; nothing was written."""
    KEPT = "kept"
    """No run awaits this key yet; the signal is kept for an hour."""
    LATE = "late"
    """The run no longer awaits it; nothing was settled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalReply:
    """The reply to a signal.

    Attributes:
        answer: what was done with the signal.
        job: id of the job it was for, if known.
        state: state of the job after the signal.
    """

    answer: Heard
    job: str | None = None
    state: str | None = None
