"""Move parked jobs back into their flows when their keyed gate has room."""

from __future__ import annotations

from itertools import takewhile

from headway.core.claim import may_feed
from headway.core.flow import Head
from headway.core.gates.spec import GateUse
from headway.core.gates.view import GateView
from headway.core.state import State
from headway.stores.ledger.gatebook import GateBook, use_at, use_of
from headway.stores.ledger.ledger import ReadAhead
from headway.stores.ledger.rows import JobRow

FEED_FLOWS = 256
"""Flows read at a time."""
FEED_HEADS = 100
"""Most heads of one flow fed in one step; the others follow as these leave."""
REFIT = 1_000
"""Most unfit jobs examined again in one step after their gate's capacity changed."""


def feed_gate(book: GateBook, gate: str) -> int:
    """Feed every flow that waits at a keyed gate, as far as the gate has room.

    Flows are fed in the order of their heads: a head that reserves keeps later ones waiting.

    Returns:
        The number of jobs moved.
    """
    jobs = book.ledger.jobs
    moved, after = 0, -1
    while flows := jobs.parked_flows(gate, after, FEED_FLOWS):
        after = flows[-1]
        heads = {flow: jobs.parked_heads(gate, flow, 2) for flow in flows}
        flows.sort(key=lambda flow: heads[flow][0].order)
        moved += sum(_feed(book, gate, flow, heads[flow]) for flow in flows)
    return moved


def feed_flow(book: GateBook, gate: str, flow: int) -> int:
    """Move the next parked heads of one flow into it, each with a ticket.

    Returns:
        The number of jobs moved.
    """
    # Two: the head after the last one fed needs a timer if the gate opens by itself.
    return _feed(book, gate, flow, book.ledger.jobs.parked_heads(gate, flow, 2))


def _feed(book: GateBook, gate: str, flow: int, heads: list[Head]) -> int:
    jobs = book.ledger.jobs
    if heads and _never_fits(book, heads[0], gate):
        heads = _set_aside(book, gate, flow)
    if not heads:
        return 0
    use = use_at(heads[0], gate)
    view = book.view(use)
    if view.total() > 1:
        heads = jobs.parked_heads(gate, flow, min(view.total(), FEED_HEADS) + 1)
    fed, ahead = _fitting(book, view, flow, heads) if view.free > 0 else ([], 0)
    if fed:
        jobs.feed([head.order.seq for head, _ in fed], gate, [amount for _, amount in fed])
        lane = jobs.flow(flow).lane
        from_parked(book, lane, len(fed))
        book.ledger.wake(lane)
    if len(heads) > len(fed):
        _keep_waiting(book, heads[len(fed)], gate, ahead)
    return len(fed)


def _keep_waiting(book: GateBook, head: Head, gate: str, ahead: int) -> None:
    """Reserve for a head that stays parked, or set a timer, so that it is fed eventually.

    Args:
        head: the first head that was not fed.
        ahead: what the ticketed jobs before it will take, without checking the gate again.
    """
    use = use_at(head, gate)
    view = book.view(use)
    if view.is_short_for(use.amount) and view.reserve(head.id, head.order, use.amount):
        book.reserve(view)
    arm(book, use, ahead + view.kept_from(head.order))


def _never_fits(book: GateBook, head: Head, gate: str) -> bool:
    use = use_at(head, gate)
    return book.view(use).never_fits(use.amount)


def _set_aside(book: GateBook, gate: str, flow: int) -> list[Head]:
    """Mark heads that need more than the gate's lowered capacity, so that they do not block others.

    Returns:
        The first heads now, at most two.
    """
    jobs = book.ledger.jobs
    for _ in range(0, REFIT, FEED_HEADS):
        heads = jobs.parked_heads(gate, flow, FEED_HEADS)
        unfit = list(takewhile(lambda head: _never_fits(book, head, gate), heads))
        if not unfit:
            return heads[:2]
        rows = jobs.load(head.id for head in unfit)
        for row in rows.values():
            row.unfit = True
        jobs.save(rows.values())
    examine_more(book, gate)
    return jobs.parked_heads(gate, flow, 2)


def examine_more(book: GateBook, gate: str) -> None:
    """Let the next step go on, because this one has examined as many of a gate's jobs as it may."""
    place = book.place_of(gate)
    book.change(gate, place.template, place.pool).timer_at = book.ledger.now
    book.ledger.wake(None)


def _fitting(
    book: GateBook, gate: GateView, flow: int, heads: list[Head]
) -> tuple[list[tuple[Head, int]], int]:
    """Return the first heads that fit, with their amounts, and what jobs before the next take."""
    # Do not count twice what is reserved for one of them.
    tickets = [
        one for one in book.ledger.jobs.tickets(gate.name, flow) if not gate.is_reserved_for(one[0])
    ]
    fed: list[tuple[Head, int]] = []
    ahead = 0
    for head in heads:
        amount = use_at(head, gate.name).amount
        ahead = sum(taken for order, taken in tickets if order < head.order)
        if not may_feed(gate, ahead, amount, head.order):
            break
        fed.append((head, amount))
        if not gate.is_reserved_for(head.order):
            tickets.append((head.order, amount))
    return fed, ahead


def from_parked(book: GateBook, lane: str, n: int) -> None:
    """Count jobs that moved from parked to waiting."""
    counts = book.ledger.counts
    counts.move(lane, State.PARKED, State.WAITING, n)
    counts.happened("fed", n)


def arm(book: GateBook, use: GateUse, kept: int) -> None:
    """Set the timer of a keyed gate that is shut now and will open by itself.

    Args:
        use: the gate's use by a job parked there.
        kept: what jobs before that job will take there.
    """
    view = book.view(use)
    if view.fits(use.amount + kept):
        return
    at = book.opens_at(view, use.template, min(use.amount + kept, view.most))
    if at is None:
        return
    row = book.find(use.name)
    if row is None or row.timer_at is None or row.timer_at > at:
        book.change(use.name, use.template).timer_at = at


def run_timers(book: GateBook, limit: int) -> tuple[int, int]:
    """Process keyed gates whose timer is due.

    Returns:
        The number of gates processed, and the number of jobs moved.
    """
    gates = book.ledger.gates.due_timers(limit)
    if gates:
        book.ledger.read_ahead(ReadAhead(gates=gates, refits=gates))
        book.prefetch(gates)
    moved = 0
    for gate in gates:
        _run_timer(book, gate)
        moved += feed_gate(book, gate)
    return len(gates), moved


def _run_timer(book: GateBook, gate: str) -> None:
    row = book.find(gate)
    if row is not None:
        row = book.change(gate, row.template, row.pool)
        row.timer_at = None
        if row.closed_until is not None and row.closed_until <= book.ledger.now:
            row.closed_until, row.closed_by, row.closed_reason = None, "", ""
        kept = row.reserved
        if kept is not None and kept.until_at <= book.ledger.now:
            # A parked job that still needs it reserves it again when the gate is fed.
            row.reserved = None
        elif kept is not None:
            row.timer_at = kept.until_at
        book.trim(gate)
    refit(book, gate)


def refit(book: GateBook, gate: str) -> None:
    """Put unfit jobs back into the gate's queue if its capacity fits them now."""
    jobs = book.ledger.jobs
    ids = jobs.unfit_at(gate, REFIT)
    if not ids:
        return
    back: list[JobRow] = []
    rows = jobs.load(ids)
    for job in ids:
        row = rows[job]
        candidates = row.cascade.order() if row.cascade is not None else ()
        use = use_of(row.id, row.keyed, candidates, gate)
        if not book.view(use).never_fits(use.amount):
            row.unfit = False
            back.append(row)
    jobs.save(back)
    if back and len(ids) == REFIT:
        examine_more(book, gate)
