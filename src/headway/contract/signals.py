"""Signals: messages from the outside world about a job that awaits them."""

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
    """What a final signal does to the job."""

    SUCCEEDED = "succeeded"
    RETRY = "retry"
    DEAD = "dead"
    ACCEPTED = "accepted"
    """The candidate accepts the offer: the job succeeds, unless its policy has `on_accepted`."""
    DECLINED = "declined"
    """The candidate declines the offer; the next turn starts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """One event about one run.

    Attributes:
        key: reference of the run (`id:run`), or another key that it is known as.
        event: id of the event; each event is applied once.
        kind: whether it settles the run, extends its deadline or adds a label.
        decided: for a final signal, what it does to the job.
        body: JSON for the record; None for none.
        label: for a note, its text, such as DELIVERED.
        extend_ms: for a progress signal, the new time from now to the deadline.
        after_ms: for a final RETRY, replaces the policy's delay.
        reason: for a final DEAD or DECLINED, the reason.
        candidate: candidate that answers an offer; empty for the one whose turn it is.
        stage: for a final RETRY, the stage of the next attempt; empty for the current stage.
        gates: for a final RETRY, the resolved gates of that stage.
        offer: whether it is only about an offer: then it is late once the candidate has accepted,
            although the job still awaits its end.
        known_as: another key, such as the provider's id, under which signals find this run from now
            on, even if this signal is late; empty for none. If the key belongs to the live run of
            another job, it stays there, and the trail records this.
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


class SignalResult(StrEnum):
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

    answer: SignalResult
    job: str | None = None
    state: str | None = None
