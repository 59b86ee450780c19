"""A pull as a caller asks for it, and the ranges of what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.contract.claims import LaneOrder
from headway.core.errors import InvalidValue
from headway.core.job import MAX_BATCH

LEASE_MS = 30_000
"""How long a worker's runs live without a beat, if it does not say."""
SHORTEST_LEASE_MS, LONGEST_LEASE_MS = 1_000, 86_400_000
MAX_REQUEST = 2**53 - 1
"""The largest number of a claim: the largest that every JSON reader keeps exactly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PullRequest:
    """A pull as a caller asks for it.

    Attributes:
        worker: as the caller names it.
        lanes: names or patterns such as `send_*`, each with its weight.
        order: "weighted" shares by weight, "strict" empties an earlier lane first.
        n: the most jobs.
        free: the most jobs with gates; None for as many.
        lease_ms: how long the worker's runs live without a beat.
        wait_ms: how long to wait for the first job.
        request: grows with each new claim of the worker; None lets the server count.
        after: where the worker's last claim stopped, from its reply.
    """

    worker: str
    lanes: tuple[tuple[str, int], ...]
    order: LaneOrder = "weighted"
    n: int = 1
    free: int | None = None
    lease_ms: int = LEASE_MS
    wait_ms: int = 0
    request: int | None = None
    after: Mapping[str, int] = field(default_factory=dict[str, int])


def check_pull(request: PullRequest) -> None:
    """Lets a pull pass whose numbers can be.

    Raises:
        InvalidValue: one is out of its range.
    """
    if not 1 <= request.n <= MAX_BATCH or (request.free is not None and request.free < 0):
        message = f"a pull of {request.n} jobs, {request.free} of them with gates"
        raise InvalidValue(message, hint=f"from 1 to {MAX_BATCH} jobs")
    check_lease(request.lease_ms)
    if request.request is not None and not 1 <= request.request <= MAX_REQUEST:
        message = f"the number of a claim is {request.request}"
        raise InvalidValue(message, hint="from 1 to 2^53 - 1, growing; or leave it out")
    if request.wait_ms < 0:
        message = f"a wait of {request.wait_ms} ms"
        raise InvalidValue(message, hint="from 0")


def check_lease(lease_ms: int) -> int:
    """Lets the length of a lease pass.

    Raises:
        InvalidValue: it is too short to be kept, or so long that a dead worker blocks its jobs.
    """
    if not SHORTEST_LEASE_MS <= lease_ms <= LONGEST_LEASE_MS:
        message = f"a lease of {lease_ms} ms"
        raise InvalidValue(message, hint="from 1s to 24h; 30s is usual")
    return lease_ms
