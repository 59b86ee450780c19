"""Claims and settlements as calls, for workers and for those who claim by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from headway.client.calls import Call
from headway.client.fields import Fields
from headway.client.outcome_body import outcome_body
from headway.contract.claims import ClaimRequest, LaneOrder
from headway.contract.outcomes import Outcome
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.runtime.worker.served import Lanes, read_lanes


class ClaimAsked(TypedDict, total=False):
    """What a claim by hand asks for.

    Attributes:
        lanes: in text as "calls,mail:2"; "main" if not given. Names may be patterns: "send_*".
        order: "weighted" shares by weight, "strict" empties an earlier lane first.
        n: the most jobs, 1 to 1000; 1 if not given.
        free: the most jobs with gates; `n` if not given.
        lease: how long the jobs live without a beat; "30s" if not given.
        wait: how long to wait for a job, up to "60s"; not at all if not given.
        request: grows with each claim; the same number again brings the same jobs, as after a
            lost answer. The server counts if it is not given, and nothing is repeated then.
    """

    lanes: Lanes
    order: LaneOrder
    n: int
    free: int
    lease: object
    wait: object
    request: int


def claim_call(worker: str, asked: ClaimAsked) -> Call:
    """The call that claims by hand.

    Args:
        worker: its random name.
        asked: what for.

    Raises:
        InvalidValue: something asked for is unusable.
    """
    unknown = sorted(asked.keys() - ClaimAsked.__annotations__.keys())
    if unknown:
        message = f"a claim has no option {unknown[0]!r}"
        raise InvalidValue(message, hint=f"it has {', '.join(ClaimAsked.__annotations__)}")
    wait_ms, n = parse_duration(asked.get("wait", "0s")), asked.get("n", 1)
    body: Fields = {
        "worker": worker,
        "lanes": _lanes(read_lanes(asked.get("lanes", "main"))),
        "order": asked.get("order", "weighted"),
        "max": n,
        "free": asked.get("free", n),
        "lease": parse_duration(asked.get("lease", "30s")),
        "wait": wait_ms,
    }
    if "request" in asked:
        body["request"] = asked["request"]
    return Call(method="POST", path="/v1/claims", body=body, waits_s=wait_ms / 1000)


def request_call(request: ClaimRequest, wait_s: float) -> Call:
    """The call of a worker's claim.

    Args:
        request: as for a store.
        wait_s: seconds that the server may wait for a job.
    """
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
    return Call(method="POST", path="/v1/claims", body=body, waits_s=wait_s)


def settle_call(
    worker: str, outcomes: Sequence[Outcome], now: int, patience_s: float = 0.0
) -> Call:
    """The call that says what became of runs.

    Args:
        worker: that holds them.
        outcomes: up to 1000.
        now: the caller's own time in ms UTC.
        patience_s: for how long it is repeated while the server is away.
    """
    body = {"worker": worker, "outcomes": [outcome_body(one, now) for one in outcomes]}
    return Call(method="POST", path="/v1/settlements", body=body, patience_s=patience_s)


def _lanes(lanes: Sequence[tuple[str, int]]) -> list[Fields]:
    return [{"name": name, "weight": weight} for name, weight in lanes]
