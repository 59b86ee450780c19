"""The claim of one lane: read its flows, decide, and write the starts and parkings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, takewhile

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.core.cascade import CANDIDATE, in_turn
from headway.core.claim import Decision, Park, ParkedJobs, Start, decide, rank
from headway.core.fairness import Fairness
from headway.core.flow import FlowView, Head, Order
from headway.core.gates.spec import GateUse, implicit_gates
from headway.core.gates.view import GateView
from headway.core.state import State
from headway.stores.ledger.feeding import arm, feed_flow, feed_gate
from headway.stores.ledger.gate_cache import GateCache, use_at
from headway.stores.ledger.ledger import ReadAhead
from headway.stores.ledger.rows import ClosedPeriod, FlowKey, JobRow, LaneRow
from headway.stores.ledger.start_writer import StartWriter

BEGAN = ""
"""The key, among a claim's cursors by lane, of the last wake before the round started."""
FLOWS = 256
"""Most flows that one claim examines in a lane."""
PARKS, LEAST_PARKS = 1_000, 250
"""After about this many parked jobs a claim stops: each of its lanes after a part, and the least.
On Redis everything else waits for a claim."""
LEAST_HEADS = 16
"""Heads read of one flow at a time, among several flows."""
MANY_FLOWS = 8
"""Above this many flows a claim starts with few heads of each, since usually little is free."""
FIRST_HEADS = 2
"""Heads of each flow in the first round; each further round reads at least twice as many."""
GROWTH = 4
"""After a round that parked jobs of a flow, the next reads this many times as many heads of it."""
LEAST_KEYED = 32
"""Heads among many flows whose keyed gates are read first."""
CANDIDATES, MORE_CANDIDATES = 500, 4
"""How many candidates are read when one is busy, and the factor by which this grows each time."""
MOST_CLOSED_PERIODS = 100_000
"""Most flows whose closed periods a process remembers: over years there may be millions."""
_UNREAD = ("", (), None, (), 0, 0, "", None, b"", 0, 0)
"""The fields of a head of which only the order is known."""


def with_seen(request: ClaimRequest, reply: ClaimReply, seen: int) -> ClaimReply:
    """Add to a claim's reply the number of the last wake that `wait` may ignore.

    Jobs that arrive during a round may be behind its cursor, so the reply that ends a round has
    the number from the start of the round.

    Args:
        seen: the number of the last wake before the claim.

    Returns:
        The reply with `seen`, and with the cursor of the round.
    """
    began = min(seen, request.after.get(BEGAN, seen))
    after = {**reply.after, BEGAN: began} if reply.after else reply.after
    return replace(reply, seen=began, after=after)


def heads_of_each(n: int, flows: int, rounds: int = 0) -> tuple[int, int]:
    """Return the least and the most heads of each flow that a round of a claim reads."""
    least = LEAST_HEADS
    if flows > MANY_FLOWS:
        least = min(LEAST_HEADS, FIRST_HEADS << rounds)
    return least, n + 1 if flows == 1 else max(least, 2 * n // flows)


class LaneClaim:
    """One lane of a claim.

    Args:
        expiring: whether waiting jobs may have expired, which later steps end.

    Attributes:
        flow_after: the last flow that the previous claim of this round examined; -1 for none.
        fruitful: whether anything could start in this round; see `after`.
        last_page: whether these flows are the last of the round.
        again: whether another claim could start more.
        rounds: how many times heads were read.
        parked_last: how many jobs of each flow the last round parked.
        most_parked: after about this many parked jobs, the claim stops in this lane.
        opens_at: when the first of the shut flows opens by itself; None if that is not known.
        has_implicit: whether an implicit gate of the flows is known to the store: most have no row,
            so they need not be examined for each flow.
        asks: what `take` first asks `JobTable.flows_waiting`.
        flows: the flows to examine; None until they are read.
        stopped: flows from which nothing more can start in this claim.
        shared: the shared gates of each flow with the amounts needed, and whether they gate it.
        candidates: uses of keyed gates to read when a head needs one that was not read.
        queues_read: keyed gates and flows whose first parked job was read.
        opening: when each gate that lacks an amount opens by itself; None if that is not known.
    """

    def __init__(
        self,
        cache: GateCache,
        request: ClaimRequest,
        lane: str,
        row: LaneRow | None,
        *,
        expiring: bool,
    ) -> None:
        self.cache = cache
        self.expiring = expiring
        self.ledger = cache.ledger
        self.request = request
        self.lane = lane
        cursor = request.after.get(lane, -1)
        self.flow_after, self.fruitful = (-1, False) if cursor < 0 else divmod(cursor, 2)
        self.asks = (lane, self.flow_after, FLOWS)
        self.last_page = True
        self.again = False
        self.rounds = 0
        self.parked = 0
        self.parked_last: Counter[int] = Counter()
        self.most_parked = max(LEAST_PARKS, PARKS // len(request.lanes))
        self.opens_at: int | None = None
        self.lane_row = row
        self.has_implicit = row is not None and row.current.concurrency is not None
        self.flows: list[int] | None = None
        self.stopped: set[int] = set()
        self.fairness: Fairness | None = None
        self.shared: dict[int, tuple[list[tuple[GateView, int]], bool]] = {}
        self.candidates: Iterator[tuple[GateUse, int]] = iter(())
        self.queues_read: set[tuple[str, int]] = set()
        self.most_candidates = CANDIDATES
        self.opening: dict[tuple[str, int], int | None] = {}

    def take(self, n: int, free: int) -> list[tuple[Start, FlowView]]:
        """Start up to n jobs, of which up to `free` are gated; return them in order of start."""
        if self.lane_row is None:
            return []
        if self.flows is None:
            self._find_flows()
        started: list[tuple[Start, FlowView]] = []
        parked = ParkedJobs(self._first_parked, self._parked_heads)
        while len(started) < n:
            views = self._views(n - len(started), free)
            if not views:
                break
            decision = decide(views, self._view, parked, n - len(started), free, self.fairness)
            by_flow = {view.flow: view for view in views}
            self._write(decision, by_flow)
            # After the write: a rate opens again when the new starts leave its window.
            self._record_closed_periods(views, decision)
            for start in decision.starts:
                started.append((start, by_flow[start.flow]))
                free -= start.gated
            self.parked_last = Counter(park.flow for park in decision.parks)
            self.parked += len(decision.parks) + len(decision.moved)
            if not decision.again:
                break
            if self.parked >= self.most_parked:
                self.again = self.fruitful = True
                break
        self.fruitful = self.fruitful or bool(started)
        if self.fairness and self.fairness.changed:
            self.fairness.raise_level()
        return started

    @property
    def after(self) -> int:
        """The cursor: twice the last flow examined, plus one if anything could start.

        -1 when the round is over.
        """
        if self.last_page or not self.flows:
            return -1
        return self.flows[-1] * 2 + self.fruitful

    # Flows

    def _find_flows(self) -> None:
        found = self.ledger.jobs.flows_waiting(*self.asks)
        self.last_page = len(found) < FLOWS
        if self.last_page and self.flow_after >= 0 and (found or self.fruitful):
            # A short last page would drain faster than the others: the first flows fill it up.
            more = self.ledger.jobs.flows_waiting(self.lane, -1, FLOWS - len(found))
            found = [*found, *(flow for flow in more if flow <= self.flow_after)]
        self.flows = found
        # Flows that were open in this round may still be open, behind the cursor.
        self.again = not self.last_page or bool(self.fruitful)
        if self.lane_row is not None and self.lane_row.current.fair == "tenant" and found:
            tenants = {self.ledger.jobs.flow(flow).tenant for flow in found}
            self.fairness = Fairness(
                level=self.lane_row.level,
                starts=self.ledger.lanes.tenant_starts(self.lane, tenants),
                weights=dict(self.lane_row.current.weights),
            )

    def _views(self, n: int, free: int) -> list[FlowView]:
        flows = [flow for flow in self.flows or () if flow not in self.stopped]
        if not flows:
            return []
        self._prefetch_shared(flows)
        self.ledger.read_ahead(ReadAhead(heads=self.flows or ()))
        least, most = heads_of_each(n, len(flows), self.rounds)
        self.rounds += 1
        views = self._open_flows(flows, free)
        if len(views) > MANY_FLOWS:
            self._leave_unread(views, n, free)
        for view in views:
            if view.unread:
                continue
            closed = view.shared and any(not gate.fits(amount) for gate, amount in view.shared)
            deep = self._heads_to_park(view.flow) if self.parked_last else 0
            limit = 1 if closed else _heads_for(view.shared, max(least, deep), max(most, deep))
            view.heads = self.ledger.jobs.heads(view.flow, limit)
            view.more = len(view.heads) == limit
            if not view.heads:
                self.stopped.add(view.flow)
                if self.fairness:
                    self.fairness.stop(view.flow)
        if self.expiring:
            self._stop_at_expired(views)
        self._prefetch_keyed(views)
        return views

    def _heads_to_park(self, flow: int) -> int:
        """Return how many heads to read of a flow whose heads the last round parked.

        If all its keys are taken, few of its jobs can start, however many heads a round reads. The
        number of rounds must not grow with the number of jobs that one of many flows parks.
        """
        parked = self.parked_last[flow]
        if not parked:
            return 0
        all_parked = self.parked_last.total()
        deep = min(GROWTH * all_parked, self.most_parked - self.parked)
        return deep * parked // all_parked

    def _open_flows(self, flows: Sequence[int], free: int) -> list[FlowView]:
        """Return the flows that their shared gates let start, or that may reserve permits."""
        known: dict[str, int] = {}
        views: list[FlowView] = []
        for flow in flows:
            key = self.ledger.jobs.flow(flow)
            if key.shared and self._skip_if_full(flow, key, known):
                continue
            shared, gated = self._shared(flow, key)
            closed = [(view, amount) for view, amount in shared if not view.fits(amount)]
            if closed and self._skip_if_shut(flow, key, closed):
                continue
            if self.fairness and gated and free <= 0:
                self.fairness.held.add(key.tenant)
            elif self.fairness and self.rounds == 1 and not closed:
                self.fairness.ready[flow] = key.tenant
            views.append(FlowView(flow=flow, tenant=key.tenant, shared=shared, gated=gated))
        return views

    def _leave_unread(self, views: Sequence[FlowView], n: int, free: int) -> None:
        """If few jobs of many flows can start, leave those flows unread whose heads come last."""
        read = max(MANY_FLOWS, 2 * _most_starts(views, n, free)) << 2 * (self.rounds - 1)
        if len(views) <= 2 * read:
            return
        orders = self.ledger.jobs.first_orders([view.flow for view in views], FIRST_HEADS)
        ranked = [
            rank(orders[view.flow], view.tenant, self.fairness, place)
            for place, view in enumerate(views)
            if view.flow in orders
        ]
        for *_, place, _ in sorted(ranked)[read:]:
            view = views[place]
            if any(amount > 1 for _, amount in view.shared):
                # It would reserve permits that it lacks, for which it must be known.
                continue
            view.heads = (Head(orders[view.flow], *_UNREAD),)
            view.more = view.unread = True

    def _stop_at_expired(self, views: list[FlowView]) -> None:
        """Remove from each flow's heads the first that has expired, and those behind it."""
        read = [view for view in views if not view.unread]
        rows = self.ledger.jobs.load(head.id for view in read for head in view.heads)
        for view in read:
            fresh = [*takewhile(lambda head: not self._has_expired(rows[head.id]), view.heads)]
            if len(fresh) < len(view.heads):
                view.heads, view.more = fresh, False

    def _has_expired(self, row: JobRow) -> bool:
        return row.run == 0 and row.expires_at is not None and row.expires_at <= self.ledger.now

    def _skip_if_full(self, flow: int, key: FlowKey, known: dict[str, int]) -> bool:
        """Record that a flow waits, and return True, if a full gate makes other checks needless."""
        if self.has_implicit and self.cache.is_closed_implicitly(key):
            return False
        use = self.cache.full_gate(key, known)
        if use is None:
            return False
        self._record_waiting(flow, key, shut=False)
        self._begin_closed_period(flow)
        if (use.name, use.amount) not in self.opening:
            self.opening[use.name, use.amount] = None
            self.cache.remember_lane(use.name, use.template, self.lane)
        return True

    def _skip_if_shut(self, flow: int, key: FlowKey, closed: list[tuple[GateView, int]]) -> bool:
        """Record that a flow waits; return False if its head may reserve the permits it lacks."""
        self._record_waiting(flow, key, shut=any(view.shut for view, _ in closed))
        if all(view.is_short_for(amount) for view, amount in closed):
            return False
        self._record_shut(flow)
        return True

    def _record_waiting(self, flow: int, key: FlowKey, *, shut: bool) -> None:
        """Record that a flow waits: for room, unless a gate is closed or outside its hours."""
        if self.fairness:
            self.fairness.stop(flow)
            if not shut:
                self.fairness.held.add(key.tenant)

    def _prefetch_shared(self, flows: list[int]) -> None:
        names: set[str] = set()
        # Most flows use the same few gates, and a pool has many names: list each gate once.
        uses: dict[str, GateUse] = {}
        for flow in flows:
            if flow not in self.shared:
                key = self.ledger.jobs.flow(flow)
                names.update(implicit_gates(key.lane, key.tenant, key.kind))
                for use in key.shared:
                    uses[use.name] = use
        if uses:
            self.cache.prefetch_uses(uses.values())
        self.cache.prefetch(names)
        self.has_implicit = self.has_implicit or any(map(self.cache.find, names))

    def _shared(self, flow: int, key: FlowKey) -> tuple[list[tuple[GateView, int]], bool]:
        found = self.shared.get(flow)
        if found is None:
            shared = [(self.cache.view(use), use.amount) for use in key.shared]
            if self.has_implicit:
                shared = [*((view, 1) for view in self.cache.implicit_of(key)), *shared]
            gated = bool(shared) and any(view.kind is not None for view, _ in shared)
            found = self.shared[flow] = (shared, gated)
        return found

    def _prefetch_keyed(self, views: list[FlowView]) -> None:
        most = None
        if self.rounds == 1 and len(views) > MANY_FLOWS:
            # Usually few can start: read what the first heads need, and more if these are parked.
            views = [view for view in views if view.heads and not view.unread]
            views.sort(key=lambda one: rank(one.heads[0].order, one.tenant, self.fairness))
            most = max(LEAST_KEYED, 2 * self.request.n)
        keyed = [(head, view.flow) for view in views for head in view.heads if head.keyed]
        if not keyed:
            return
        # A job with a ticket may be parked at another of its gates; others then follow it.
        tickets = {head.ticket for head, _ in keyed[:most] if head.ticket and len(head.keyed) > 1}
        # Most jobs of a cascade start at their first candidates.
        self._prefetch([*_uses_in_turn(keyed[:most], 0, 1)], sorted(tickets))
        later = [] if most is None else keyed[most:]
        cascades = [one for one in keyed if one[0].candidates]
        cascades.sort(key=lambda one: one[0].order)
        self.candidates = chain(_uses_in_turn(later, 0, 1), _uses_in_turn(cascades, 1, None))

    def _prefetch(self, uses: Sequence[tuple[GateUse, int]], tickets: Sequence[str] = ()) -> None:
        if uses:
            queues = [(use.name, flow) for use, flow in uses]
            self.queues_read.update(queues)
            self.ledger.read_ahead(ReadAhead(queues=queues, gates=tickets))
            self.cache.prefetch_uses([use for use, _ in uses])

    def _prefetch_more(self) -> bool:
        """Read what the next heads and candidates need; return False if there are no more.

        Jobs are examined in about this order, so few reads are wasted.
        """
        more = [*islice(self.candidates, self.most_candidates)]
        self.most_candidates *= MORE_CANDIDATES
        self._prefetch(more)
        return bool(more)

    def _view(self, use: GateUse) -> GateView:
        while use.name not in self.cache.rows and self._prefetch_more():
            pass
        return self.cache.view(use)

    def _first_parked(self, flow: int, gate: str) -> Order | None:
        while (gate, flow) not in self.queues_read and self._prefetch_more():
            pass
        return self.ledger.jobs.parked_order(gate, flow)

    def _parked_heads(self, flow: int, gate: str, limit: int) -> Sequence[Head]:
        return self.ledger.jobs.parked_heads(gate, flow, limit)

    # Results

    def _record_closed_periods(self, views: list[FlowView], decision: Decision) -> None:
        for view in views:
            if view.flow in decision.closed:
                self._record_shut(view.flow, decision.closed[view.flow])
            elif not decision.again:
                period = self.ledger.closed_periods.get(view.flow)
                if period is not None and period.until is None:
                    # Jobs that waited through the period and start later still count it.
                    self.ledger.closed_periods[view.flow] = ClosedPeriod(
                        period.since, self.ledger.now
                    )

    def _record_shut(self, flow: int, order: Order | None = None) -> None:
        """Record that a flow is shut, when it opens, and which lane to wake.

        Args:
            order: of its head; None if a gate has no room for any job of the flow.
        """
        self._begin_closed_period(flow)
        opens: list[int | None] = []
        for view, amount in self.shared[flow][0]:
            if view.fits(amount, order):
                continue
            if (view.name, amount) not in self.opening:
                self._record_shut_gate(view, amount)
            at = self.opening[view.name, amount]
            if at is None and view.reserved and view.fits(amount):
                at = view.reserved.until_at
            opens.append(at)
        if opens and all(at is not None for at in opens):
            self._record_opening(max(at for at in opens if at is not None))

    def _begin_closed_period(self, flow: int) -> None:
        self.stopped.add(flow)
        periods = self.ledger.closed_periods
        period = periods.get(flow)
        if period is None or period.until is not None:
            if len(periods) >= MOST_CLOSED_PERIODS:
                # Drop the oldest half: the wait of their jobs is reported as longer than it was.
                for old in [*islice(periods, MOST_CLOSED_PERIODS // 2)]:
                    del periods[old]
            periods[flow] = ClosedPeriod(self.ledger.now, None)

    def _record_opening(self, at: int) -> None:
        self.opens_at = at if self.opens_at is None else min(at, self.opens_at)

    def _record_shut_gate(self, view: GateView, amount: int) -> None:
        """Record when a shut gate opens, and that the lane's waiters must be woken then."""
        self.opening[view.name, amount] = self.cache.opens_at(view, view.template, amount)
        self.cache.remember_lane(view.name, view.template, self.lane)

    def _write(self, decision: Decision, views: dict[int, FlowView]) -> None:
        offered = [start.head.id for start in decision.starts if start.candidate]
        cascades = self.ledger.jobs.load(offered) if offered else {}
        writer = StartWriter(self.cache, self.request, self.lane, cascades)
        for start in decision.starts:
            writer.add(start, views[start.flow])
        writer.write()
        for gate in decision.reserved.values():
            renew_at = self.cache.reserve(gate)
            if renew_at is not None:
                self._record_opening(renew_at)
        if decision.parks:
            self._write_parks(decision)
        self._feed_after(decision, writer.ended)

    def _write_parks(self, decision: Decision) -> None:
        parks = decision.parks
        groups: dict[tuple[str, int], list[Park]] = {}
        # Behind the jobs that the moved ones follow: the first of a group sets the gate's timer.
        for park in (*parks, *decision.moved):
            groups.setdefault((park.gate, park.unfit), []).append(park)
        for (gate, unfit), group in groups.items():
            self.ledger.jobs.park([park.head.order.seq for park in group], gate, unfit=unfit)
            if not unfit:
                use = use_at(group[0].head, gate)
                arm(self.cache, use, self.cache.view(use).kept_from(group[0].head.order))
        self.ledger.counts.move(self.lane, State.WAITING, State.PARKED, len(parks))
        self.ledger.counts.happened("parked", len(parks))

    def _feed_after(self, decision: Decision, ended: Sequence[str]) -> None:
        """Feed behind jobs that left with a ticket, and where a reservation has ended."""
        left = [(one.head.ticket, one.flow) for one in decision.parks if one.head.ticket]
        left += [(one.head.ticket, one.flow) for one in decision.starts if one.head.ticket]
        if left or ended:
            self.ledger.read_ahead(ReadAhead(gates=[*(gate for gate, _ in left), *ended]))
        for (gate, flow), number in Counter(left).items():
            feed_flow(self.cache, gate, flow, number)
        for gate in ended:
            # Jobs parked there waited for the reservation to end.
            feed_gate(self.cache, gate)

    def save_fairness(self) -> None:
        """Write the starts of tenants, once the claim is over."""
        fairness = self.fairness
        if fairness is None or not fairness.changed or self.lane_row is None:
            return
        if fairness.level > self.lane_row.level:
            self.lane_row.level = fairness.level
            self.ledger.lanes.save(self.lane_row)
        starts = {tenant: fairness.starts[tenant] for tenant in sorted(fairness.changed)}
        self.ledger.lanes.save_tenant_starts(self.lane, starts)


def _uses_in_turn(
    heads: Sequence[tuple[Head, int]], first: int, end: int | None
) -> Iterator[tuple[GateUse, int]]:
    """Yield what each head would take in the turns of its candidates from `first` to `end`.

    What it takes for any candidate, as a job without candidates does, is of turn 0.
    """
    for head, flow in heads:
        if first == 0:
            for use in head.keyed:
                if CANDIDATE not in use.name:
                    yield use, flow
        for candidate in head.candidates[first:end]:
            for use in head.keyed:
                if CANDIDATE in use.name:
                    yield in_turn(use, candidate), flow


def _heads_for(shared: Sequence[tuple[GateView, int]], least: int, most: int) -> int:
    """Return how many heads to read of a flow whose shared gates are open."""
    if least == most:
        return most
    # The gates' room limits the starts; one more head shows whether others wait.
    room = min([_room(view, amount) for view, amount in shared], default=most)
    return min(most, max(least, room + 1))


def _most_starts(views: Sequence[FlowView], n: int, free: int) -> int:
    """Return how many jobs of these flows can start at most, by the room of their shared gates."""
    rooms: dict[tuple[str, int], int] = {}
    least: dict[tuple[str, int], int] = {}
    for view in views:
        if not view.gated:
            return n
        narrowest, room = ("", 0), n
        for gate, amount in view.shared:
            use = (gate.name, amount)
            if use not in rooms:
                rooms[use] = _room(gate, amount)
            if rooms[use] < room:
                narrowest, room = use, rooms[use]
        least[narrowest] = room
    return min(n, free, sum(least.values()))


def _room(view: GateView, amount: int) -> int:
    """Return how many times the amount can be taken now."""
    if view.members:
        return sum(member.free // amount for member in view.members)
    return view.free // amount
