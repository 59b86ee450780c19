"""Request bodies of workers: claims, beats, outcomes and signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypedDict, assert_never

import msgspec

from headway.client.calls import HttpCall
from headway.client.requests import Fields, filled, gate_bodies, job_body
from headway.contract.claims import BeatReply, BeatRequest, ClaimRequest, LaneOrder
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
    Verdict,
)
from headway.contract.signals import Signal, SignalKind
from headway.core.duration import Duration, parse_duration
from headway.core.errors import InvalidValue
from headway.runtime.kind_options import refuse_unknown
from headway.runtime.worker.worker_options import Lanes, read_lanes


def beat_body(request: BeatRequest) -> Fields:
    """Return the body of a beat."""
    progress = {(job, run): msgspec.Raw(data) for job, run, data in request.progress}
    running: list[Fields] = []
    for job, run in request.running:
        one: Fields = {"job": job, "run": run}
        if (job, run) in progress:
            one["progress"] = progress[job, run]
        running.append(one)
    body: Fields = {
        "worker": request.worker,
        "running": running,
        "request": request.request,
        "lease": request.lease_ms,
        "lanes": list(request.lanes),
    }
    if request.name:
        body["name"] = request.name
    if request.leaving:
        body["leaving"] = True
    return body


def read_beat(fields: Mapping[str, Any]) -> BeatReply:
    """Decode the response to a beat."""
    return BeatReply(
        now=fields["now"],
        lease_until=fields["lease_until"],
        lost=tuple((one["job"], one["run"]) for one in fields["lost"]),
        cancel=tuple((one["job"], one["run"]) for one in fields["cancel"]),
    )


def outcome_body(outcome: Outcome, now: int) -> Fields:
    """Return the body of an outcome.

    Args:
        now: the caller's own time, ms UTC, for following jobs that expire.
    """
    body: Fields = {"job": outcome.job, "run": outcome.run, **_fields_of(outcome)}
    if outcome.then:
        body["then"] = [job_body(job, now) for job in outcome.then]
    if outcome.close:
        body["close"] = [closing_body(one) for one in outcome.close]
    return body


def refuse_stage(whose: str) -> NoReturn:
    """Refuse a next attempt at another stage, which the HTTP API does not support.

    Raises:
        InvalidValue: always.
    """
    message = f"{whose}: the HTTP API does not set the stage of the next attempt"
    raise InvalidValue(
        message, hint="do it in a worker that opens the store directly, or return Next"
    )


def closing_body(closing: Closing) -> Fields:
    """Return the body that closes a gate."""
    span = {} if closing.until_at is not None else {"after": closing.for_ms}
    return filled(
        {"gate": closing.gate, "until": closing.until_at, "reason": closing.reason} | span
    )


def _fields_of(outcome: Outcome) -> Fields:  # noqa: C901, PLR0911, PLR0912  (one line for each outcome)
    match outcome:
        case Succeeded():
            result = None if outcome.result is None else msgspec.Raw(outcome.result)
            return filled({"outcome": "succeeded", "result": result})
        case Failed():
            if outcome.stage:
                refuse_stage(f"job {outcome.job}")
            fields: Fields = {"outcome": "failed", "error": outcome.error}
            return filled(fields | _when(outcome.after_ms, outcome.until_at))
        case Died():
            return filled({"outcome": "dead", "reason": outcome.reason, "error": outcome.error})
        case Snoozed():
            snoozed: Fields = {"outcome": "snoozed", "reason": outcome.reason}
            return filled(snoozed | _when(outcome.after_ms, outcome.until_at))
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
            message = f"{type(outcome).__name__} is not an outcome"
            raise InvalidValue(message)


def _when(after_ms: int | None, until_at: int | None) -> Fields:
    # If both are given, the instant takes precedence.
    return {"until": until_at, "after": None if until_at is not None else after_ms}


def signal_body(signal: Signal) -> Fields:
    """Return the body of a signal; its key is part of the path."""
    if signal.stage:
        refuse_stage(f"event {signal.event!r}")
    fields: Fields = {
        "event": signal.event,
        "body": None if signal.body is None else msgspec.Raw(signal.body),
        "extend": signal.extend_ms,
        "after": signal.after_ms,
        "reason": signal.reason,
        "candidate": signal.candidate,
        "offer": signal.offer or None,
        "known_as": signal.known_as,
    }
    match signal.kind:
        case SignalKind.FINAL:
            fields["final"] = str(signal.decided)
        case SignalKind.PROGRESS:
            fields["progress"] = True
        case SignalKind.NOTE:
            fields["note"] = signal.label
        case _:
            assert_never(signal.kind)
    return filled(fields)


class ClaimOptions(TypedDict, total=False):
    """Options of a claim made without a `Worker`.

    Attributes:
        lanes: as text, such as "calls,mail:2" (default: "main"). Names may be patterns: "send_*".
        order: "weighted" shares by weight, "strict" empties an earlier lane first.
        n: maximum number of jobs, 1 to 1000 (default: 1).
        free: maximum number of jobs with gates (default: `n`).
        lease: how long the runs stay valid without a beat (default: "30s").
        wait: how long to wait for a job, up to "60s" (default: no wait).
        request: number of the claim, which must increase. Repeating a number, for example after a
            lost reply, returns the same jobs. If omitted, the server assigns it, and the claim
            cannot be repeated.
    """

    lanes: Lanes
    order: LaneOrder
    n: int
    free: int
    lease: Duration
    wait: Duration
    request: int


def claim_call(worker: str, options: ClaimOptions) -> HttpCall:
    """Return the call for a claim made without a `Worker`."""
    refuse_unknown(options, ClaimOptions, "a claim has no option")
    wait_ms, n = parse_duration(options.get("wait", "0s")), options.get("n", 1)
    body: Fields = {
        "worker": worker,
        "lanes": _lanes(read_lanes(options.get("lanes", "main"))),
        "order": options.get("order", "weighted"),
        "max": n,
        "free": options.get("free", n),
        "lease": parse_duration(options.get("lease", "30s")),
        "wait": wait_ms,
    }
    if "request" in options:
        body["request"] = options["request"]
    return HttpCall(method="POST", path="/v1/claims", body=body, waits_s=wait_ms / 1000)


def request_call(request: ClaimRequest, wait_s: float) -> HttpCall:
    """Return the call for a worker's claim."""
    body: Fields = {
        "worker": request.worker,
        "request": request.request,
        "lanes": _lanes(request.lanes),
        "order": request.order,
        "max": request.n,
        "free": request.free,
        "lease": request.lease_ms,
        "wait": int(wait_s * 1000),
    }
    if request.after:
        body["after"] = dict(request.after)
    return HttpCall(method="POST", path="/v1/claims", body=body, waits_s=wait_s)


def settle_call(
    worker: str, outcomes: Sequence[Outcome], now: int, patience_s: float = 0.0
) -> HttpCall:
    """Return the call that settles runs.

    Args:
        outcomes: up to 1000.
        now: the caller's own time, ms UTC.
    """
    body = {"worker": worker, "outcomes": [outcome_body(one, now) for one in outcomes]}
    return HttpCall(method="POST", path="/v1/settlements", body=body, patience_s=patience_s)


def read_verdicts(reply: Mapping[str, Any]) -> list[Verdict]:
    """Read the reply to a settlement."""
    return [Verdict(word) for word in reply["verdicts"]]


def _lanes(lanes: Sequence[tuple[str, int]]) -> list[Fields]:
    return [{"name": name, "weight": weight} for name, weight in lanes]
