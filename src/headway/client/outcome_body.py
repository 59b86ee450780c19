"""An outcome as a server is told it."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from headway.client.fields import Fields, filled
from headway.client.job_body import gate_bodies, job_body
from headway.contract.outcomes import (
    Closing,
    Died,
    Failed,
    FoundUnfit,
    GaveBack,
    HandedOver,
    KnownAs,
    NextStage,
    Outcome,
    Released,
    Returned,
    Snoozed,
    Succeeded,
)
from headway.core.errors import InvalidValue


def outcome_body(outcome: Outcome, now: int) -> Fields:
    """The body that tells what became of a run.

    Args:
        outcome: what a live run says.
        now: the caller's own time in ms UTC, for jobs that follow and expire.

    Returns:
        What is not empty.

    Raises:
        InvalidValue: it is no outcome, or a job that follows cannot be sent.
    """
    body: Fields = {"job": outcome.job, "run": outcome.run, **_said(outcome)}
    if outcome.then:
        body["then"] = [job_body(job, now) for job in outcome.then]
    if outcome.close:
        body["close"] = [closing_body(one) for one in outcome.close]
    return body


def refuse_stage(whose: str) -> NoReturn:
    """Refuses what a server cannot be told: a next attempt at another stage.

    Raises:
        InvalidValue: always.
    """
    message = f"{whose}: a server is not told at which stage the next attempt is made"
    raise InvalidValue(message, hint="do so in a worker that has the store, or go on with Next")


def closing_body(closing: Closing) -> Fields:
    """The body that closes a gate."""
    span = {} if closing.until_at is not None else {"after": closing.for_ms}
    return filled(
        {"gate": closing.gate, "until": closing.until_at, "reason": closing.reason} | span
    )


def _said(outcome: Outcome) -> Fields:  # noqa: C901, PLR0911, PLR0912  (one line for each outcome)
    match outcome:
        case Succeeded():
            result = None if outcome.result is None else msgspec.Raw(outcome.result)
            return filled({"outcome": "succeeded", "result": result})
        case Failed():
            if outcome.stage:
                refuse_stage(f"job {outcome.job}")
            said: Fields = {"outcome": "failed", "error": outcome.error}
            return filled(said | _when(outcome.after_ms, outcome.until_at))
        case Died():
            return filled({"outcome": "dead", "reason": outcome.reason, "error": outcome.error})
        case Snoozed():
            return {"outcome": "snoozed"} | filled(_when(outcome.after_ms, outcome.until_at))
        case NextStage():
            gates = gate_bodies(outcome.gates)
            return {"outcome": "next_stage", "stage": outcome.stage, "gates": gates}
        case Released():
            return filled({"outcome": "released", "reason": outcome.reason})
        case HandedOver():
            return {"outcome": "handed_over", "key": outcome.key, "timeout": outcome.timeout_ms}
        case KnownAs():
            return {"outcome": "known_as", "key": outcome.key}
        case Returned():
            return filled({"outcome": "returned", "error": outcome.error})
        case GaveBack():
            return {"outcome": "gave_back", "gate": outcome.gate}
        case FoundUnfit():
            return filled({"outcome": "unfit", "reason": outcome.reason})
        case _:
            message = f"{type(outcome).__name__} is no outcome"
            raise InvalidValue(message)


def _when(after_ms: int | None, until_at: int | None) -> Fields:
    # Where both are said, the moment counts.
    return {"until": until_at, "after": None if until_at is not None else after_ms}
