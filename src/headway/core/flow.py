"""A flow as a claim sees it: the heads of its queue, and the shared gates that all of it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.core.gates.spec import GateUse
from headway.core.gates.view import GateView, Order


class Head(NamedTuple):
    """A waiting job, as far as a claim looks at it.

    Attributes:
        order: its place in its flow.
        keyed: its keyed gates, in the order declared.
        ticket: the gate that it was fed from, or None.
        candidates: of a cascade, in the order to try them; the first free one is taken.
        run: its last run.
        attempt: attempts used in this life.
        stage: of a kind with stages.
        args: a JSON object.
        policy: the number of its policy in the store.
        blocked_ms: time spent parked since it was due.
    """

    order: Order
    id: str
    keyed: tuple[GateUse, ...]
    ticket: str | None
    candidates: tuple[str, ...]
    run: int
    attempt: int
    stage: str
    subject: str | None
    args: bytes
    policy: int
    blocked_ms: int


@dataclass(slots=True, kw_only=True)
class FlowView:
    """One flow that is not empty.

    Attributes:
        flow: its id in the store.
        shared: gates and the amounts that each of its jobs takes there, implicit ones included.
        gated: whether its jobs hold a permit or count as a start, and so must not be prefetched.
        heads: its first waiting jobs, in order.
        more: whether it has waiting jobs behind these.
    """

    flow: int
    tenant: str
    shared: Sequence[tuple[GateView, int]]
    gated: bool
    heads: Sequence[Head]
    more: bool
