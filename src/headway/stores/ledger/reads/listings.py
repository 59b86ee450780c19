"""Views of lanes, workers, the timetable, the trail, tokens, counts, and the audit of permits."""

from __future__ import annotations

from headway.contract.views import (
    AuditQuery,
    AuditView,
    Difference,
    EntryView,
    LanesQuery,
    LaneView,
    Page,
    StatsQuery,
    StatsView,
    TimetableQuery,
    TokensQuery,
    TokenView,
    TrailQuery,
    TrailView,
    WorkersQuery,
    WorkerView,
)
from headway.core.errors import InvalidValue
from headway.core.gates.pool import member_gate
from headway.core.state import HELD, State
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.ledger.gatekinds import RULES
from headway.stores.ledger.gaterows import NO_HOLDERS, GateRow, PermitRow
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.paging import MOST_ROWS, check_limit, read_place
from headway.stores.ledger.rows import JobRow, LaneRow
from headway.stores.ledger.tokenchanges import is_token_id


def read_lanes(ledger: Ledger, query: LanesQuery) -> tuple[LaneView, ...]:
    """Return lanes by name, with their counts."""
    names = ledger.lanes.names() if query.names is None else list(query.names)
    rows = ledger.lanes.load(names)
    counts = ledger.counts.of_lanes(names)
    served: dict[str, int] = {}
    for worker in ledger.workers.all():
        if worker.lease_until > ledger.now:
            for lane in worker.lanes:
                served[lane] = served.get(lane, 0) + 1
    cache = GateCache(ledger)
    cache.prefetch(f"lane:{name}" for name in names)
    oldest = ledger.jobs.oldest_due(names)
    views: list[LaneView] = []
    for name in names:
        row = rows.get(name) or LaneRow(name=name)
        gate = cache.find(f"lane:{name}")
        closed = gate is not None and (gate.closed_until or 0) > ledger.now
        held = {str(state): n for state, n in counts.get(name, {}).items() if n}
        views.append(
            LaneView(
                name=name,
                spec=row.current,
                overridden=row.override is not None,
                counts=held,
                workers=served.get(name, 0),
                oldest_due_at=oldest.get(name),
                paused=closed,
            )
        )
    return tuple(views)


def read_workers(ledger: Ledger, _query: WorkersQuery) -> tuple[WorkerView, ...]:
    """Return live workers, and those that died less than an hour ago."""
    workers = ledger.workers.all()
    held = ledger.jobs.held_counts([one.id for one in workers])
    return tuple(
        WorkerView(
            id=one.id,
            name=one.name,
            lanes=one.lanes,
            seen_at=one.seen_at,
            lease_until=one.lease_until,
            running=held.get(one.id, 0),
        )
        for one in workers
    )


def read_timetable(ledger: Ledger, query: TimetableQuery) -> tuple[EntryView, ...]:
    """Return entries by name, each once."""
    if query.names is None:
        rows = ledger.entries.all()
    else:
        found = map(ledger.entries.load, sorted(set(query.names)))
        rows = [row for row in found if row is not None]
    return tuple(
        EntryView(
            spec=row.spec,
            revision=row.revision,
            last_fired=row.last_fired,
            ahead_until=row.ahead_until,
            folded=row.folded,
            first_seen_at=row.first_seen_at,
        )
        for row in rows
        if row.spec is not None
    )


def read_trail(ledger: Ledger, query: TrailQuery) -> Page[TrailView]:
    """Return a page of the trail, newest first."""
    rows = ledger.trail.page(query.target, read_place(query.cursor), query.limit)
    cursor = str(rows[-1].seq) if len(rows) == query.limit else None
    return Page(rows=tuple(TrailView(**one._asdict()) for one in rows), cursor=cursor)


def read_stats(ledger: Ledger, _query: StatsQuery) -> StatsView:
    """Return the counts of the whole store."""
    return StatsView(
        now=ledger.now,
        counts={str(state): n for state, n in ledger.counts.of_states().items() if n},
        totals=ledger.counts.totals(),
        identity=ledger.facts.identity(),
        epoch=ledger.facts.epoch(),
        revision=ledger.facts.revision(),
        clock_ahead_ms=ledger.facts.clock_ahead_ms(),
    )


def read_tokens(ledger: Ledger, query: TokensQuery) -> tuple[TokenView, ...]:
    """Return tokens by id, each once."""
    if query.ids is None:
        rows = ledger.tokens.all()
    else:
        rows = ledger.tokens.load(token for token in query.ids if is_token_id(token)).values()
    views = (
        TokenView(
            spec=row.spec,
            created_at=row.created_at,
            created_by=row.created_by,
            used_at=row.used_at,
        )
        for row in rows
    )
    return tuple(sorted(views, key=lambda view: view.spec.id))


PARTS = ("gates", "permits", "held")


def part_of(query: AuditQuery) -> tuple[str, str]:
    """Return the part of the audit in which a page starts, and the place after which it starts.

    Raises:
        InvalidValue: the cursor belongs to another listing, or the limit is below 1.
    """
    check_limit(min(query.limit, MOST_ROWS))  # a larger page is only cut
    part, _, after = (query.cursor or f"{PARTS[0]}\x1f").partition("\x1f")
    if part not in PARTS:
        message = f"the cursor {query.cursor!r} does not belong to an audit"
        raise InvalidValue(message, hint="pass the cursor of the previous page")
    return part, after


def read_audit(ledger: Ledger, query: AuditQuery) -> AuditView:
    """Return a page of the audit: gates by name, then permits, then held jobs."""
    return _Audit(ledger, query).view()


class _Audit:
    def __init__(self, ledger: Ledger, query: AuditQuery) -> None:
        self.ledger = ledger
        self.left = query.limit
        self.found: list[Difference] = []
        self.part, self.after = part_of(query)
        self.seen = dict.fromkeys(PARTS, 0)

    def view(self) -> AuditView:
        cursor: str | None = None
        for part in PARTS[PARTS.index(self.part) :]:
            after = self.after if part == self.part else ""
            end = getattr(self, f"_{part}")(after)
            if end is not None:
                cursor = f"{part}\x1f{end}"
                break
        return AuditView(
            differences=tuple(self.found),
            gates=self.seen["gates"],
            permits=self.seen["permits"],
            held=self.seen["held"],
            cursor=cursor,
        )

    def _report(self, where: str, what: str) -> None:
        self.found.append(Difference(where=where, what=what))

    def _gates(self, after: str) -> str | None:
        rows = self.ledger.gates.page(after, max(1, self.left))
        names = [row.name for row in rows]
        holders = self.ledger.permits.at(names, 0)
        # A store counts the starts of all rates that it has loaded together.
        self.ledger.gates.load(names)
        for row in rows:
            self._gate(row, *holders.get(row.name, NO_HOLDERS)[:2])
        sums = self.ledger.permits.sums(after, max(1, self.left))
        known = self.ledger.gates.load(name for name, _ in sums)
        for name, amount in sums:
            if name not in known:
                self._report(name, f"{amount} permits are out, but the gate has no row")
        self.seen["gates"] += len(rows)
        self.left -= len(rows)
        return rows[-1].name if self.left <= 0 and rows else None

    def _gate(self, row: GateRow, count: int, amount: int) -> None:
        template = self.ledger.gates.templates().get(row.template)
        rules = RULES[template.current.kind] if template else None
        if rules is not None and rules.counts_starts and not row.pool:
            counted = self.ledger.starts.total(row.name, -1, row.used)
            if counted != row.used:
                self._report(row.name, f"counts {row.used} starts, but {counted} are kept")
            if count:
                self._report(row.name, f"is a rate, but {count} permits of it are out")
        elif row.used != amount:
            self._report(row.name, f"counts {row.used} permits out, but holders have {amount}")

    def _permits(self, after: str) -> str | None:
        gate, _, job = after.rpartition("\x1f")  # a gate's name may contain it, too
        rows = self.ledger.permits.page((gate, job), max(1, self.left))
        jobs = self.ledger.jobs.load({one.job for one in rows})
        for one in rows:
            self._permit(one, jobs.get(one.job))
        self.seen["permits"] += len(rows)
        self.left -= len(rows)
        return f"{rows[-1].gate}\x1f{rows[-1].job}" if self.left <= 0 and rows else None

    def _permit(self, one: PermitRow, row: JobRow | None) -> None:
        if row is None:
            self._report(one.gate, f"a permit is held by job {one.job}, which does not exist")
        elif row.state not in HELD:
            self._report(one.gate, f"a permit is held by job {one.job}, which is {row.state}")
        elif row.run != one.run:
            self._report(
                one.gate, f"a permit is held by run {one.run} of job {one.job}, now at {row.run}"
            )
        elif row.state is State.AWAITING and one.hold == "run":
            self._report(one.gate, f"a permit of the run is held by job {one.job}, which awaits")

    def _held(self, after: str) -> str | None:
        rows = self.ledger.jobs.held(after, max(1, self.left))
        permits: dict[str, set[str]] = {}
        for one in self.ledger.permits.of_jobs(row.id for row in rows):
            permits.setdefault(one.job, set()).add(one.gate)
        for row in rows:
            self._held_job(row, permits.get(row.id, set()))
        self.seen["held"] += len(rows)
        self.left -= len(rows)
        return rows[-1].id if self.left <= 0 and rows else None

    def _held_job(self, row: JobRow, gates: set[str]) -> None:
        allowed = set(row.members) | {
            member_gate(pool, member) for pool, member in row.members.items() if member
        }
        for gate in gates - allowed:
            self._report(gate, f"job {row.id} holds a permit that its run did not take")
        if row.state is State.RUNNING and row.worker is None:
            self._report(row.id, "is running, but with no worker")
        if row.ticket is not None or row.parked_at is not None:
            self._report(row.id, f"is {row.state}, but carries a ticket or is parked")
