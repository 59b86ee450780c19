"""Move parked jobs back into their flows when their keyed gate has room."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from headway.core.claim import may_feed
from headway.core.flow import Head, Order
from headway.core.gates.spec import MAX_CAPACITY, GateUse
from headway.core.gates.view import GateView
from headway.core.state import State
from headway.stores.ledger.gate_cache import GateCache, use_at
from headway.stores.ledger.rows import JobRow

FEED_FLOWS = 256
"""Flows read at a time."""
FEED_HEADS = 100
"""Most heads of up to 256 flows fed at a gate at once, at least one of each; the others follow.

Each flow is fed as if the gate were its own, because another gate may close the others. Without
this limit the flows together get many times what the gate has room for, and most are parked again.
"""
FEW_FLOWS, FEED_REST_MS = 8, 100
"""Flows of a lane that are fed at a gate at once, or as many as it has room for, and when the next
ones follow if it still has room.

The first ones usually take all the room, so all others would only be parked again. They leave some
if they wait for something else.
"""
FEED_MORE = 2
"""Heads fed for each ticket that leaves a flow: a flow whose jobs start gets more each time."""
REFIT = 1_000
"""Most unfit jobs examined again in one step after their gate's capacity changed."""


def feed_gate(cache: GateCache, gate: str, *, rest: bool = False) -> int:
    """Feed the flows that wait at a keyed gate, as far as the gate has room.

    Args:
        rest: whether flows with tickets do not count among the few that are fed.

    Returns:
        The number of jobs moved.
    """
    moved = 0
    flows = cache.ledger.jobs.parked_flows(gate, -1, FEED_FLOWS)
    while flows:
        if len(flows) <= FEW_FLOWS:
            moved += _feed_all(cache, gate, flows)
        else:
            moved += _feed_first(cache, gate, flows, rest=rest)
        flows = cache.ledger.jobs.parked_flows(gate, flows[-1], FEED_FLOWS)
    return moved


def _feed_all(cache: GateCache, gate: str, flows: Sequence[int]) -> int:
    """Feed flows in the order of their heads: a head that reserves keeps later ones waiting."""
    jobs = cache.ledger.jobs
    heads = {flow: jobs.parked_heads(gate, flow, 2) for flow in flows}
    queue = [_place_of(heads[flow][0].order, flow) for flow in flows]
    heapq.heapify(queue)
    each = FEED_HEADS // len(flows)
    moved = 0
    while queue:
        _, _, _, flow = heapq.heappop(queue)
        moved += _feed(cache, gate, flow, heads[flow], each)
    return moved


def _place_of(order: Order, flow: int) -> tuple[int, int, int, int]:
    return (order.priority, order.due_at, order.seq, flow)


def _feed_first(cache: GateCache, gate: str, flows: Sequence[int], *, rest: bool) -> int:
    """Feed the first of many flows, in the order in which a claim would examine their heads."""
    jobs = cache.ledger.jobs
    use = use_at(jobs.parked_heads(gate, flows[0], 1)[0], gate)
    room = cache.view(use).free
    most = max(FEW_FLOWS, room)
    each = max(1, FEED_HEADS // min(most, len(flows)))
    queue = _ranked(cache, gate, flows)
    heapq.heapify(queue)
    moved = 0
    fed_of: dict[str, int] = {}
    unfed: list[str] = []
    while queue:
        _, _, _, _, _, flow = heapq.heappop(queue)
        lane = jobs.flow(flow).lane
        if fed_of.get(lane, 0) >= most:
            unfed.append(lane)
        else:
            fed = _feed(cache, gate, flow, jobs.parked_heads(gate, flow, 2), each)
            moved += fed
            if fed > 0 or room <= 0 or (not rest and jobs.tickets(gate, flow)):
                fed_of[lane] = fed_of.get(lane, 0) + 1
    if room > 0:
        at = cache.ledger.now + FEED_REST_MS
        for lane in dict.fromkeys(unfed):
            _set_timer(cache, gate, at)
            cache.ledger.wake(lane, at)
    return moved


def _ranked(
    cache: GateCache, gate: str, flows: Sequence[int]
) -> list[tuple[int, int, int, int, int, int]]:
    """Return the rank of each flow's first parked job (see `core.claim.rank`), and the flow."""
    jobs = cache.ledger.jobs
    lanes = dict.fromkeys([jobs.flow(flow).lane for flow in flows])
    rows = cache.ledger.lanes.load(lanes)
    starts: dict[str, dict[str, int]] = {}
    levels: dict[str, int] = {}
    for lane in lanes:
        row = rows.get(lane)
        if row is not None and row.current.fair == "tenant":
            tenants = [jobs.flow(one).tenant for one in flows if jobs.flow(one).lane == lane]
            starts[lane] = cache.ledger.lanes.tenant_starts(lane, tenants)
            levels[lane] = row.level
    orders = jobs.parked_orders(gate, flows)
    ranked: list[tuple[int, int, int, int, int, int]] = []
    for flow in flows:
        key, order = jobs.flow(flow), orders[flow]
        own = starts[key.lane].get(key.tenant, 0) if key.lane in starts else 0
        level = max(own, levels.get(key.lane, 0))
        ranked.append((order.priority, level, own, order.due_at, order.seq, flow))
    return ranked


def feed_flow(cache: GateCache, gate: str, flow: int, left: int) -> int:
    """Move the next parked heads of one flow into it, each with a ticket.

    Args:
        left: how many jobs have left the flow with a ticket.

    Returns:
        The number of jobs moved.
    """
    # Two: the head after the last one fed needs a timer if the gate opens by itself.
    heads = cache.ledger.jobs.parked_heads(gate, flow, 2)
    return _feed(cache, gate, flow, heads, min(FEED_MORE * left, FEED_HEADS))


def _feed(cache: GateCache, gate: str, flow: int, heads: list[Head], most: int) -> int:
    jobs = cache.ledger.jobs
    if heads and _never_fits(cache, heads[0], gate):
        heads = _mark_unfit(cache, gate, flow)
    if not heads:
        return 0
    view = cache.view(use_at(heads[0], gate))
    most = min(view.total(), most)
    if most > 1:
        heads = jobs.parked_heads(gate, flow, most + 1)
    amounts: list[int] = []
    ahead = 0
    if view.free > 0:
        amounts, ahead = _fitting(cache, view, flow, heads[:most])
    fed = len(amounts)
    if amounts:
        jobs.feed(heads[:fed], gate, amounts)
        lane = jobs.flow(flow).lane
        _from_parked(cache, lane, fed)
        cache.ledger.wake(lane)
    if len(heads) > fed:
        _keep_waiting(cache, heads[fed], gate, ahead)
    return fed


def _keep_waiting(cache: GateCache, head: Head, gate: str, ahead: int) -> None:
    """Reserve for a head that stays parked, or set a timer, so that it is fed eventually.

    Args:
        head: the first head that was not fed.
        ahead: what the ticketed jobs before it will take, without checking the gate again.
    """
    use = use_at(head, gate)
    view = cache.view(use)
    if view.is_short_for(use.amount) and view.reserve(head.id, head.order, use.amount):
        cache.reserve(view)
    arm(cache, use, ahead + view.kept_from(head.order))


def _never_fits(cache: GateCache, head: Head, gate: str) -> bool:
    use = use_at(head, gate)
    return cache.view(use).never_fits(use.amount)


def _mark_unfit(cache: GateCache, gate: str, flow: int) -> list[Head]:
    """Mark heads that need more than the gate's lowered capacity, so that they do not block others.

    Returns:
        The first heads now, at most two.
    """
    jobs = cache.ledger.jobs
    examined = 0
    while examined < REFIT:
        heads = jobs.parked_heads(gate, flow, FEED_HEADS)
        unfit: list[Head] = []
        for head in heads:
            if not _never_fits(cache, head, gate):
                break
            unfit.append(head)
        if not unfit:
            return heads[:2]
        rows = jobs.load(head.id for head in unfit)
        marked: list[JobRow] = []
        for head in unfit:
            row = rows[head.id]
            row.unfit, row.ticket_amount = True, use_at(head, gate).amount
            marked.append(row)
        jobs.save(marked)
        examined += FEED_HEADS
    _examine_more(cache, gate)
    return jobs.parked_heads(gate, flow, 2)


def _examine_more(cache: GateCache, gate: str) -> None:
    """Let the next step go on, because this one has examined as many of a gate's jobs as it may."""
    _set_timer(cache, gate, cache.ledger.now)
    cache.ledger.wake(None)


def _fitting(
    cache: GateCache, view: GateView, flow: int, heads: Sequence[Head]
) -> tuple[list[int], int]:
    """Return the amounts of the first heads that fit, and what jobs before the next head take."""
    tickets = cache.ledger.jobs.tickets(view.name, flow)
    amounts: list[int] = []
    ahead, counted = 0, 0
    for head in heads:
        # Both are in order, so tickets before one head are also before the next.
        while counted < len(tickets) and tickets[counted][0] < head.order:
            # Do not count twice what is reserved for one of them.
            if not view.is_reserved_for(tickets[counted][0]):
                ahead += tickets[counted][1]
            counted += 1
        amount = use_at(head, view.name).amount
        if not may_feed(view, ahead, amount, head.order):
            break
        amounts.append(amount)
        if not view.is_reserved_for(head.order):
            ahead += amount
    return amounts, ahead


def _from_parked(cache: GateCache, lane: str, n: int) -> None:
    """Count jobs that moved from parked to waiting."""
    counts = cache.ledger.counts
    counts.move(lane, State.PARKED, State.WAITING, n)
    counts.happened("fed", n)


def arm(cache: GateCache, use: GateUse, kept: int) -> None:
    """Set the timer of a keyed gate that is shut now and will open by itself.

    Args:
        use: the gate's use by a job parked there.
        kept: what jobs before that job will take there.
    """
    view = cache.view(use)
    if view.fits(use.amount + kept):
        return
    at = cache.opens_at(view, use.template, min(use.amount + kept, view.most))
    if at is None:
        return
    _set_timer(cache, use.name, at)


def _set_timer(cache: GateCache, gate: str, at: int) -> None:
    row = cache.find(gate)
    if row is None or row.timer_at is None or row.timer_at > at:
        place = cache.place_of(gate)
        cache.change(gate, place.template, place.pool).timer_at = at


def run_timers(cache: GateCache, limit: int) -> tuple[int, int]:
    """Process keyed gates whose timer is due.

    Returns:
        The number of gates processed, and the number of jobs moved.
    """
    gates = cache.due_gates(limit)
    moved = 0
    for gate in gates:
        _run_timer(cache, gate)
        moved += feed_gate(cache, gate, rest=True)
    return len(gates), moved


def _run_timer(cache: GateCache, gate: str) -> None:
    row = cache.find(gate)
    if row is not None:
        row = cache.change(gate, row.template, row.pool)
        row.timer_at = None
        if row.closed_until is not None and row.closed_until <= cache.ledger.now:
            row.closed_until, row.closed_by, row.closed_reason = None, "", ""
        kept = row.reserved
        if kept is not None and kept.until_at <= cache.ledger.now:
            # A parked job that still needs it reserves it again when the gate is fed.
            row.reserved = None
        elif kept is not None:
            row.timer_at = kept.until_at
        cache.trim(gate)
    refit(cache, gate)


def refit(cache: GateCache, gate: str) -> None:
    """Put unfit jobs back into the gate's queue if its capacity fits them now."""
    jobs = cache.ledger.jobs
    if not jobs.unfit_at(gate, MAX_CAPACITY, 1):
        return
    use = GateUse(name=gate, template=cache.place_of(gate).template)
    ids = jobs.unfit_at(gate, cache.view(use).most, REFIT)
    rows = jobs.load(ids)
    back: list[JobRow] = []
    for job in ids:
        row = rows.get(job)
        # On Redis, a process of an earlier version may have left jobs in the index.
        if row is not None and row.unfit:
            row.unfit, row.ticket_amount = False, 0
            back.append(row)
    jobs.save(back)
    if back and len(ids) == REFIT:
        _examine_more(cache, gate)
