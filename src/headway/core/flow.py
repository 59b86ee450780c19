"""A flow as a claim sees it: its first jobs, and the shared gates that all its jobs need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.core.gates.spec import GateUse
from headway.core.gates.view import GateView, Order


class Head(NamedTuple):
    """A waiting job, with the fields that a claim needs.

    Attributes:
        order: its position in its flow.
        keyed: keyed gates, in the order declared.
        ticket: keyed gate from which it was fed; None if it was not.
        candidates: candidates of a cascade, in the order to try them; the first free one is taken.
        run: number of its last run.
        attempt: attempts used in this life.
        stage: stage, for a kind with stages; otherwise empty.
        args: JSON object.
        policy: number of its policy in the store.
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
    """A flow with waiting jobs.

    Attributes:
        flow: id of the flow in the store.
        shared: shared gates, including implicit ones, each with the amount that every job takes.
        gated: whether its jobs hold a permit or count as a start, and so must not be prefetched.
        heads: its first waiting jobs, in order.
        more: whether it has further waiting jobs.
        unread: whether only the order of its first waiting job is known.
    """

    flow: int
    tenant: str
    shared: Sequence[tuple[GateView, int]]
    gated: bool
    heads: Sequence[Head] = ()
    more: bool = False
    unread: bool = False
