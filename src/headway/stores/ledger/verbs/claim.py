"""Claim: promote due jobs, then start jobs in order. Beat: extend leases. Lead: elect a leader."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.claims import BeatReply, BeatRequest, Claimed, ClaimReply, ClaimRequest
from headway.core.errors import InvalidValue
from headway.core.fairness import share
from headway.core.job import MAX_BATCH, JobPolicy
from headway.core.state import State
from headway.stores.ledger.attempts import lapse
from headway.stores.ledger.feeding import run_timers
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.ledger.lane_claim import LaneClaim
from headway.stores.ledger.ledger import Ledger, ReadAhead
from headway.stores.ledger.promotion import promote
from headway.stores.ledger.rows import FlowKey, JobRow, WorkerRow
from headway.stores.ledger.step import Step
from headway.stores.ledger.verbs.sweep import expire

TIMERS = 100
"""Most timers of keyed gates that one claim processes."""
EXPIRIES = 1_000
"""Most expired jobs that one claim ends; if there may be more, each flow stops at one."""


def claim(ledger: Ledger, request: ClaimRequest) -> ClaimReply:
    """See `Store.claim`."""
    check_claim(request)
    dead: list[str] = []
    worker = _load_worker(ledger, request, dead)
    if request.request <= worker.request:
        return _repeat(ledger, request, worker, dead)
    may_be_expired = _apply_due_changes(ledger, request, dead)
    work = _ClaimRun(ledger, request, expiring=may_be_expired)
    work.run()
    now = ledger.now
    if work.jobs or worker.lease_until < now + request.lease_ms // 2:
        worker.request = request.request if work.jobs else worker.request
        worker.seen_at = now
        worker.lease_until = max(worker.lease_until, now + request.lease_ms)
        worker.lapsed = False
        worker.lanes = worker.lanes or tuple(lane for lane, _ in request.lanes)
        ledger.workers.save(worker)
    again = may_be_expired or len(work.jobs) >= request.n
    after: dict[str, int] = {}
    moments = [ledger.gates.next_timer(), ledger.jobs.next_due(list(work.lanes))]
    for lane, lane_claim in work.lanes.items():
        again = again or lane_claim.again
        moments.append(lane_claim.opens_at)
        cursor = lane_claim.after
        if cursor >= 0:
            after[lane] = cursor
    return ClaimReply(
        jobs=work.jobs,
        now=now,
        lease_until=worker.lease_until,
        next_at=min([at for at in moments if at is not None], default=None),
        again=again,
        after=after,
        dead=tuple(dead),
    )


def check_claim(request: ClaimRequest) -> None:
    """Validate a claim.

    Raises:
        InvalidValue: a number is out of range, or the lanes are missing or have no weight.
    """
    if not 1 <= request.n <= MAX_BATCH or request.free < 0:
        message = f"a claim of n={request.n}, free={request.free} is not valid"
        raise InvalidValue(message, hint=f"n must be 1 to {MAX_BATCH}, and free at least 0")
    if min([weight for _, weight in request.lanes], default=0) < 1:
        message = f"a claim from the lanes {request.lanes!r} is not valid"
        raise InvalidValue(message, hint="pass at least one lane, each with a weight of at least 1")
    if request.request < 1 or request.lease_ms < 1:
        message = (
            f"a claim with request {request.request}, lease {request.lease_ms} ms is not valid"
        )
        raise InvalidValue(message, hint="both must be at least 1")


def _load_worker(ledger: Ledger, request: ClaimRequest, dead: list[str]) -> WorkerRow:
    """Return the worker's row; if its lease has ended, its runs are lost first.

    Args:
        dead: the ids of jobs that this makes dead are added to it.
    """
    worker = ledger.workers.load(request.worker)
    if worker is None:
        return WorkerRow(id=request.worker)
    if worker.lease_until <= ledger.now and not worker.lapsed:
        # Its runs are no longer live, but those that it claims from now on are.
        step = Step(ledger)
        lapse(step, worker)
        step.flush()
        dead += step.dead
    return worker


def _repeat(
    ledger: Ledger, request: ClaimRequest, worker: WorkerRow, dead: list[str]
) -> ClaimReply:
    rows: list[JobRow] = []
    if request.request == worker.request:
        rows = ledger.jobs.taken_by(request.worker, request.request)
    return ClaimReply(
        jobs=[_claimed_again(ledger, row) for row in rows],
        now=ledger.now,
        lease_until=worker.lease_until,
        next_at=ledger.now,
        again=True,
        dead=tuple(dead),
    )


def _claimed_again(ledger: Ledger, row: JobRow) -> Claimed:
    return Claimed(
        row.id,
        row.run,
        row.attempt,
        row.kind,
        row.stage,
        row.lane,
        row.tenant,
        row.subject,
        row.args,
        row.priority,
        row.due_at,
        ledger.jobs.policy(row.policy),
        row.gated,
        {gate: member for gate, member in row.members.items() if member},
        row.candidate,
    )


def _apply_due_changes(ledger: Ledger, request: ClaimRequest, dead: list[str]) -> bool:
    """Apply what has become due, and return whether expired jobs may be left."""
    step = Step(ledger)
    expired = expire(step, EXPIRIES)
    if expired:
        # Write the expired jobs before promoting, which may find the same jobs.
        step.flush()
        dead += step.dead
    run_timers(step.cache, TIMERS)
    promote(step, list(dict(request.lanes)))
    step.flush()
    return expired == EXPIRIES


class _ClaimRun:
    """One claim over its lanes.

    Args:
        expiring: as for `LaneClaim`.
    """

    def __init__(self, ledger: Ledger, request: ClaimRequest, *, expiring: bool) -> None:
        self.ledger = ledger
        self.request = request
        self.cache = GateCache(ledger)
        names = [lane for lane, _ in request.lanes]
        rows = ledger.lanes.load(names)
        self.lanes = {
            lane: LaneClaim(self.cache, request, lane, rows.get(lane), expiring=expiring)
            for lane in names
        }
        self.unread: dict[str, None] = {}
        self.read_together = 1
        self.jobs: list[Claimed] = []
        self.free = request.free

    def run(self) -> None:
        """Take each lane's share, then what other lanes left over."""
        shares = self._shares()
        if len(shares) > 1:
            # In reverse order, because `popitem` takes the last one.
            self.unread = {one: None for one, _ in reversed(shares) if self.lanes[one].lane_row}
        for lane, places in shares:
            self._take(lane, min(places, self.request.n - len(self.jobs)))
        if len(self.lanes) > 1 and self.request.order == "weighted":
            for lane, _ in shares:
                self._take(lane, self.request.n - len(self.jobs))
        for one in self.lanes.values():
            if one.fairness:
                # Not before: other lanes would have to read theirs again.
                one.save_fairness()
        self.cache.save()

    def _shares(self) -> Sequence[tuple[str, int]]:
        lanes, n = self.request.lanes, self.request.n
        if len(lanes) == 1 or self.request.order == "strict":
            return [(lane, n) for lane, _ in lanes]
        return share(lanes, n, self.request.request)

    def _take(self, lane: str, n: int) -> None:
        if n <= 0:
            return
        if lane in self.unread:
            self._read_ahead(lane)
        jobs = self.ledger.jobs
        flows: dict[int, FlowKey] = {}
        policies: dict[int, JobPolicy] = {}
        for start, view in self.lanes[lane].take(n, self.free):
            self.free -= start.gated
            head, key = start.head, flows.get(view.flow)
            if key is None:
                key = flows[view.flow] = jobs.flow(view.flow)
            policy = policies.get(head.policy)
            if policy is None:
                policy = policies[head.policy] = jobs.policy(head.policy)
            self.jobs.append(
                Claimed(
                    head.id,
                    head.run + 1,
                    head.attempt + 1,
                    key.kind,
                    head.stage,
                    key.lane,
                    key.tenant,
                    head.subject,
                    head.args,
                    head.order.priority,
                    head.order.due_at,
                    policy,
                    start.gated,
                    start.members,
                    start.candidate,
                )
            )

    def _read_ahead(self, lane: str) -> None:
        """Read the flows of a lane and of those after it, twice as many lanes each time."""
        del self.unread[lane]
        more = min(self.read_together - 1, len(self.unread))
        if more > 0:
            lanes = [lane, *(self.unread.popitem()[0] for _ in range(more))]
            self.ledger.read_ahead(ReadAhead(lanes=[self.lanes[one].asks for one in lanes]))
        self.read_together *= 2


def beat(ledger: Ledger, request: BeatRequest) -> BeatReply:
    """See `Store.beat`."""
    step = Step(ledger)
    known = ledger.workers.load(request.worker)
    worker = known or WorkerRow(id=request.worker)
    if known and worker.lease_until <= ledger.now and not worker.lapsed:
        lapse(step, worker)
        step.flush()
    held = {(one.id, one.run): one for one in ledger.jobs.held_by(request.worker)}
    listed = set(request.running)
    unused = [
        one
        for key, one in held.items()
        if key not in listed
        and one.state is State.RUNNING
        and (one.request <= request.request or request.leaving)
    ]
    step.load(one.id for one in unused)
    for one in unused:
        release_unused(step, one.id)
    _save_progress(step, request, set(held))
    worker.name = request.name or worker.name
    worker.lanes = request.lanes or worker.lanes
    worker.seen_at = ledger.now
    worker.lease_until = ledger.now if request.leaving else ledger.now + request.lease_ms
    worker.lapsed = request.leaving
    if request.leaving:
        # Write the released runs first, so that they do not count as lost.
        step.flush()
        lapse(step, worker)
    ledger.workers.save(worker)
    step.flush()
    cancel = (key for key in request.running if key in held and held[key].cancel_requested)
    return BeatReply(
        now=ledger.now,
        lease_until=worker.lease_until,
        lost=tuple(key for key in request.running if key not in held),
        cancel=tuple(cancel),
    )


def release_unused(step: Step, job: str) -> None:
    """Requeue a run whose worker never received the claim's reply; the attempt is not counted."""
    row = step.row(job)
    if row is not None and row.state is State.RUNNING:
        step.requeue(row, "unused", due_at=None, repeat=True)


def _save_progress(step: Step, request: BeatRequest, held: set[tuple[str, int]]) -> None:
    live = [(job, data) for job, run, data in request.progress if (job, run) in held]
    step.load(job for job, _ in live)
    for job, data in live:
        row = step.row(job)
        if row is not None:
            row.progress = data
            step.changed(row)


def lead(ledger: Ledger, role: str, holder: str, lease_ms: int) -> int | None:
    """See `Store.lead`."""
    current = ledger.facts.leader(role)
    now = ledger.now
    if current is None:
        term = 1
    else:
        leader, term, until_at = current
        if leader != holder or until_at <= now:
            if until_at > now:
                return None
            # Even for the same holder: it cannot know whether others have led in the meantime.
            term += 1
    ledger.facts.set_leader(role, holder, term, now + lease_ms)
    return term
