"""The claim rule: which jobs start, and where the others park.

A store passes the heads of a lane's flows and the gates they need to `decide`, a pure function: the
store loads before and writes after, in the same step. Nothing else decides which jobs start, except
in lanes without gates: PostgreSQL claims from them in SQL, and Redis by `quick/claim.lua`.

The rules (each is checked against a brute-force oracle):

1. A flow runs while its amounts fit all its shared gates. The first head that does not fit stops
   the flow.
2. Within a flow, jobs are taken by priority, due time, arrival. Between the flows of a lane, the
   best head goes first; in a fair lane, among heads of equal priority, the tenant with the fewest
   starts by weight goes first.
3. A head that fits all its keyed gates starts and takes all its permits; otherwise it takes none.
4. A head that does not fit a keyed gate is parked there, and the next head of its flow is examined.
   A parked job that could pass later holds back those behind it *at that gate in that flow*.
5. A job with gates starts only if a handler is idle for it; other jobs start up to `n`.
6. A head that is blocked only because it requests several permits and too few are free reserves
   these gates. Until it starts, jobs that come after it by priority, due time and arrival take
   nothing that it needs, in any lane. It holds nothing: a job that comes before it takes what is
   free, so no two jobs wait for each other.
7. If a job with a ticket is parked at another gate, the jobs that are parked behind it at the
   ticket's gate follow it, as far as they need the other gate, too. The round ends before the first
   that does not, because the store must feed it before the flow's order is known. None follows a
   job that no longer fits a gate at all. If it is parked at the same gate again, nothing behind it
   can be fed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.core.cascade import in_turn
from headway.core.fairness import Fairness
from headway.core.flow import FlowView, Head, Order
from headway.core.gates.spec import GateUse
from headway.core.gates.view import GateView


class Start(NamedTuple):
    """A job that starts.

    Attributes:
        members: chosen member of each pool, by the pool's name.
        candidate: candidate whose turn it is; empty outside cascades.
    """

    head: Head
    flow: int
    members: Mapping[str, str]
    candidate: str
    gated: bool


class Park(NamedTuple):
    """A job that is set aside at a keyed gate.

    Attributes:
        unfit: the amount that it requests, if that is more than the gate's capacity, so that it
            blocks no others; 0 otherwise.
    """

    head: Head
    flow: int
    gate: str
    unfit: int


@dataclass(slots=True, kw_only=True)
class Decision:
    """The result of one round of a claim.

    Attributes:
        starts: jobs to start, in order.
        parks: jobs to park, in the order in which they were examined.
        moved: parked jobs that follow a job of `parks` from its ticket's gate to another.
        again: before the claim was full, heads ran out, an unread flow came next, or a job that
            must be fed: load and decide again.
        closed: flows stopped by a shared gate, with the order of the head that did not fit.
        reserved: gates reserved for a head of this round, by name.
    """

    starts: list[Start] = field(default_factory=list[Start])
    parks: list[Park] = field(default_factory=list[Park])
    moved: list[Park] = field(default_factory=list[Park])
    again: bool = False
    closed: dict[int, Order] = field(default_factory=dict[int, Order])
    reserved: dict[str, GateView] = field(default_factory=dict[str, GateView])


NO_MEMBERS: Mapping[str, str] = {}

Rank = tuple[int, int, int, int, int, int, int]
"""The sort key of a head among the heads of a lane: five numbers that no two heads share, then the
place of its flow among the flows compared, and its index there."""


class ParkedJobs(NamedTuple):
    """How the jobs of a flow that are parked at a gate, and could pass it later, are read.

    Attributes:
        first: returns the order of the first one, if any.
        heads: returns the first ones, up to a limit.
    """

    first: Callable[[int, str], Order | None]
    heads: Callable[[int, str, int], Sequence[Head]]


def decide(
    flows: Sequence[FlowView],
    gate: Callable[[GateUse], GateView],
    parked: ParkedJobs,
    n: int,
    free: int,
    fairness: Fairness | None = None,
) -> Decision:
    """Decide one round of a claim.

    Args:
        flows: non-empty flows of one lane.
        gate: returns the view of a keyed gate; the same object each time.
        parked: reads the jobs of a flow that are parked at a gate.
        n: maximum number of starts.
        free: maximum number of gated starts.
        fairness: fairness of a fair lane, which counts the starts; None in other lanes.

    Returns:
        What starts, what parks, and whether another round could start more. The permits are taken
        from the views.
    """
    if len(flows) == 1 and fairness is None:
        decision = _one_flow(flows[0], n, free)
        if decision is not None:
            return decision
    return _Round(gate, parked.first, parked.heads, n, free, fairness, Decision()).run(flows)


def _one_flow(view: FlowView, n: int, free: int) -> Decision | None:
    """Decide one flow of jobs without keyed gates in bulk: the path that must be fast.

    Returns:
        The decision that `_Round` would make; None if jobs must be examined one by one.
    """
    heads = view.heads[:n]
    if not _is_plain(view, heads):
        return None
    most = min(len(heads), free) if view.gated else len(heads)
    pools = [(one, amount) for one, amount in view.shared if one.members]
    others = [(one, amount) for one, amount in view.shared if not one.members]
    for one, amount in others:
        most = min(most, one.free // amount)
    flow, gated = view.flow, view.gated
    starts: list[Start] = []
    if pools:
        for head in heads[:most]:
            if not all(one.fits(amount) for one, amount in pools):
                break
            members = {one.name: one.take(amount) or "" for one, amount in pools}
            starts.append(Start(head, flow, members, "", gated))
    else:
        starts = [Start(head, flow, NO_MEMBERS, "", gated) for head in heads[:most]]
    for one, amount in others:
        one.take_many(amount, len(starts))
    decision = Decision(starts=starts)
    if len(starts) == len(heads):
        decision.again = len(starts) < n and view.more
    elif not all(one.fits(amount) for one, amount in view.shared):
        decision.closed[flow] = heads[len(starts)].order
    return decision


def _is_plain(view: FlowView, heads: Sequence[Head]) -> bool:
    """Return whether all heads have the same needs, and no gate is or could become reserved."""
    for one, amount in view.shared:
        if amount > 1 or one.reserved:
            return False
    for head in heads:  # noqa: SIM110  (runs for each job of the most common claim; a generator is slower)
        if head.keyed or head.ticket is not None or head.candidates:
            return False
    return True


FIRST_FOLLOWERS, MORE_FOLLOWERS = 2, 8
"""Jobs read first behind one that is parked elsewhere, and the factor for further reads."""
MOST_FOLLOWERS = 1_000
"""Maximum number of jobs that follow others in a round; the next one is fed instead."""


@dataclass(slots=True)
class _Round:
    """One round: merges the heads of the flows in order, and takes their permits.

    Attributes:
        free: remaining number of gated starts.
        parked: (flow, gate) pairs at which a job that could pass later was parked in this round:
            the jobs behind it are held back.
        followed: (flow, gate) pairs whose parked jobs were read to follow another in this round.
        left: the order of the first of these that did not follow, if any is left.
        queue: the rank of the next head of each flow. A place of -1 ends the round, because a
            parked job of that rank must be fed.
        checked: number of starts when `is_over` last looked at the queue; -1 before.
        (the others: as for `decide`)
    """

    gate: Callable[[GateUse], GateView]
    first_parked: Callable[[int, str], Order | None]
    parked_heads: Callable[[int, str, int], Sequence[Head]]
    n: int
    free: int
    fairness: Fairness | None
    decision: Decision
    parked: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])
    followed: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])
    left: dict[tuple[int, str], Order] = field(default_factory=dict[tuple[int, str], Order])
    queue: list[Rank] = field(default_factory=list[Rank])
    checked: int = -1

    def run(self, flows: Sequence[FlowView]) -> Decision:
        self.queue = [
            rank(view.heads[0].order, view.tenant, self.fairness, place)
            for place, view in enumerate(flows)
            if view.heads
        ]
        queue = self.queue
        heapq.heapify(queue)
        decision = self.decision
        while queue and len(decision.starts) < self.n and not decision.again:
            queued = heapq.heappop(queue)
            _, _, _, _, _, place, index = queued
            if place < 0:
                decision.again = True
                break
            view = flows[place]
            current = rank(view.heads[index].order, view.tenant, self.fairness, place, index)
            if current != queued:
                # In a fair lane, starts of the same tenant have moved it back since it was queued.
                heapq.heappush(queue, current)
            elif not self.start_or_park(view, view.heads[index]):
                self.stop(view)
                if self.is_over(flows):
                    break
            elif index + 1 < len(view.heads):
                following = view.heads[index + 1].order
                queued = rank(following, view.tenant, self.fairness, place, index + 1)
                heapq.heappush(queue, queued)
            elif not view.more:
                self.stop(view)
            elif len(decision.starts) < self.n:
                decision.again = True
        return decision

    def is_over(self, flows: Sequence[FlowView]) -> bool:
        """Return whether no queued head can start, whatever their order; record what shuts them.

        Taking hundreds of flows from the queue in order, only to find the same full gate, took most
        of the time of a claim. `stop` would change nothing any more.
        """
        if self.checked == len(self.decision.starts):
            return False
        self.checked = len(self.decision.starts)
        for _, _, _, _, _, place, index in self.queue:
            if place < 0 or not self.is_stuck(flows[place], flows[place].heads[index]):
                return False
        for _, _, _, _, _, place, index in self.queue:
            view = flows[place]
            self.start_or_park(view, view.heads[index])
        return True

    def is_stuck(self, view: FlowView, head: Head) -> bool:
        """Return whether a head cannot start in this round, and reserves nothing either."""
        stuck = self.free <= 0 and (view.gated or bool(head.keyed))
        for one, amount in view.shared:
            if amount > 1:
                return False
            stuck = stuck or one.free <= 0
        return stuck

    def reserve(self, head: Head, short: Sequence[tuple[GateView, int]]) -> None:
        """Reserve the gates that have too few permits for a head, if nothing else blocks it."""
        if not all(one.is_short_for(amount) for one, amount in short):
            return
        for one, amount in short:
            if one.reserve(head.id, head.order, amount):
                self.decision.reserved[one.name] = one

    def stop(self, view: FlowView) -> None:
        if self.fairness:
            self.fairness.stop(view.flow)

    def start_or_park(self, view: FlowView, head: Head) -> bool:
        """Start or park a head; return False if its flow must stop.

        A flow stops if a shared gate has too few permits, or if no handler is free. If only the
        order of a head is known, nothing else happens.
        """
        order = head.order
        short = [(one, amount) for one, amount in view.shared if not one.fits(amount, order)]
        if short:
            self.decision.closed[view.flow] = order
            self.reserve(head, short)
            return False
        gated = view.gated or bool(head.keyed)
        if gated and self.free <= 0:
            return False
        if view.unread:
            return True
        blocked: GateUse | None = None
        never_passes = True
        for candidate in head.candidates or ("",):
            uses = [in_turn(use, candidate) for use in head.keyed]
            closed = self.closed_gate(view, head, uses)
            if closed is None:
                self.start(view, head, uses, candidate, gated=gated)
                return True
            gate, never = closed
            if blocked is None or (never_passes and not never):
                blocked, never_passes = gate, never
        assert blocked is not None  # noqa: S101  (the loop ran at least once)
        self.decision.parks.append(
            Park(head, view.flow, blocked.name, blocked.amount if never_passes else 0)
        )
        if not never_passes:
            self.parked.add((view.flow, blocked.name))
            self.reserve(head, [(self.gate(blocked), blocked.amount)])
        if head.ticket is not None and (never_passes or blocked.name != head.ticket):
            self.follow(view, head, "" if never_passes else blocked.name)
        return True

    def follow(self, view: FlowView, head: Head, gate: str) -> None:
        """Move the jobs that are parked at a head's ticket's gate behind it, if they need its gate.

        Otherwise each would be fed and examined, only to be parked behind it.

        Args:
            gate: where the head was parked; "" if no job may follow it.
        """
        ticket = head.ticket or ""
        if (view.flow, ticket) in self.followed:
            return
        self.followed.add((view.flow, ticket))
        limit, read = FIRST_FOLLOWERS, 0
        while True:
            behind = self.parked_heads(view.flow, ticket, limit)
            for other in behind[read:]:
                if not self.follows(other, head, gate):
                    self.left[view.flow, ticket] = other.order
                    heapq.heappush(self.queue, rank(other.order, view.tenant, self.fairness, -1))
                    return
                self.decision.moved.append(Park(other, view.flow, gate, 0))
            read = len(behind)
            if read < limit:
                return
            limit *= MORE_FOLLOWERS

    def follows(self, other: Head, head: Head, gate: str) -> bool:
        """Return whether a parked job, if it were fed, could only be parked behind a head."""
        if other.order < head.order or len(self.decision.moved) >= MOST_FOLLOWERS:
            return False
        return any(use.name == gate for use in other.keyed)

    def first_left(self, flow: int, gate: str) -> Order | None:
        """Return the order of the first job parked at a gate that does not move in this round."""
        if (flow, gate) in self.followed:
            return self.left.get((flow, gate))
        return self.first_parked(flow, gate)

    def closed_gate(
        self, view: FlowView, head: Head, uses: Sequence[GateUse]
    ) -> tuple[GateUse, bool] | None:
        """Return the first keyed gate that the head cannot pass, and whether it never will."""
        for use in uses:
            one = self.gate(use)
            if one.never_fits(use.amount):
                return use, True
            if not one.fits(use.amount, head.order):
                return use, False
            if (view.flow, use.name) in self.parked:
                return use, False
            parked = self.first_left(view.flow, use.name)
            if parked is not None and parked < head.order:
                return use, False
        return None

    def start(
        self, view: FlowView, head: Head, uses: Sequence[GateUse], candidate: str, *, gated: bool
    ) -> None:
        members: dict[str, str] = {}
        for one, amount in view.shared:
            _take(one, amount, members, head.order)
        for use in uses:
            _take(self.gate(use), use.amount, members, head.order)
        if gated:
            self.free -= 1
        if self.fairness:
            self.fairness.count(view.tenant)
        self.decision.starts.append(Start(head, view.flow, members, candidate, gated))


def rank(
    order: Order, tenant: str, fairness: Fairness | None, place: int = 0, index: int = 0
) -> Rank:
    """Return the sort key of a head among the heads of a lane; the lowest goes first."""
    level, own = fairness.rank(tenant) if fairness else (0, 0)
    return (order.priority, level, own, order.due_at, order.seq, place, index)


def _take(one: GateView, amount: int, members: dict[str, str], order: Order) -> None:
    member = one.take(amount, order)
    if member is not None:
        members[one.name] = member


def may_feed(gate: GateView, ahead: int, amount: int, order: Order) -> bool:
    """Return whether a parked head may be moved into its flow with a ticket.

    A head that does not fit in addition to the tickets before it stays parked, and so do those
    behind it. A move is wasted only if another flow was faster, or if a pool has enough room but
    not in one member.

    Args:
        ahead: total amount that the gate's ticketed jobs before it in the flow request.
    """
    return gate.fits(amount, order) and ahead + amount <= gate.total(order)
