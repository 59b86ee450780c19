"""The tables of a PostgreSQL store within one step, and the reads ahead of a verb."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from headway.core.gates.pool import member_gate
from headway.core.gates.spec import GateSpec, is_implicit
from headway.core.state import QUEUED
from headway.stores.ledger.feeding import FEED_HEADS
from headway.stores.ledger.gatekinds import RULES
from headway.stores.ledger.ledger import ReadAhead
from headway.stores.ledger.rows import ClosedPeriod, JobRow
from headway.stores.postgres.arrays import Texts, ids_of
from headway.stores.postgres.numbers import SUSPECT
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Each, Mode, Read
from headway.stores.postgres.tables import job_statements as sql
from headway.stores.postgres.tables import records
from headway.stores.postgres.tables.gates import (
    LOAD,
    LOAD_HELD,
    PERMITS_OF_JOBS,
    PERMITS_OF_KNOWN,
    PostgresGates,
    PostgresPermits,
    PostgresStarts,
    take_gates,
)
from headway.stores.postgres.tables.job_heads import (
    flows_bound,
    most_read,
    parked_at_held,
    parked_reads,
)
from headway.stores.postgres.tables.jobs import PostgresJobs
from headway.stores.postgres.tables.lanes import PostgresCounts, PostgresLanes
from headway.stores.postgres.tables.records import (
    PostgresKeys,
    PostgresSignals,
    PostgresTrail,
    PostgresWorkers,
)
from headway.stores.sql.records import SqlEntries, SqlFacts, SqlTokens
from headway.stores.sql.statement import HIGH_WATER, Rows, Write, of


def reads_of(session: Session, ahead: ReadAhead) -> list[Read]:
    """Return the queries for everything in `ahead` that is not cached."""
    jobs, words, lanes = ids_of(ahead.jobs), session.words, session.cache.lanes_asked
    queues = [sql.queue_of(*one) for one in ahead.queues]
    session.cache.queues.update(dict.fromkeys(queues))
    dedupe = [(row.tenant, row.key) for row in ahead.ends if row.key is not None]
    holders = [who for one in ahead.workers if (who := words.find(one)) is not None]
    sets: tuple[tuple[Each, Sequence[object]], ...] = (
        (records.KEPT_BY_KEY, ahead.kept),
        (records.EVENTS, [records.event_hash(*one) for one in ahead.events]),
        (sql.JOBS, jobs),
        (PERMITS_OF_JOBS, (*jobs, *ids_of(ahead.permits))),
        (sql.RUNS, ids_of(ahead.runs)),
        (records.KEYS, [records.key_hash(*one) for one in (*ahead.dedupe, *dedupe)]),
        (sql.UNFIT, ahead.refits),
        (sql.FIRST_PARKED, queues),
        (sql.HELD_OF, holders),
    )
    found = [session.cache.read_of(each, things) for each, things in sets if things]
    reads = [read for read in found if read is not None]
    gates = [*ahead.gates, *_gates_of(session, ahead.ends)]
    session.cache.fed.update(dict.fromkeys(gates))
    rows = rows_of_gates(session, [*gates, *(gate for gate, _ in ahead.queues)])
    named = _of_keys(session, ahead.keys, jobs, ahead.events)
    flows = [
        Read(sql.FLOWS_WAITING, flows_bound(session, *asked), partial(lanes.__setitem__, asked))
        for asked in ahead.lanes
        if lanes.get(asked) is None
    ]
    return [*reads, *named, *rows, *parked_at(session, gates), *flows]


def _gates_of(session: Session, rows: Sequence[JobRow]) -> list[str]:
    """Return the gates at which jobs hold permits, are parked, or have a reservation."""
    permits_of = session.cache.each(PERMITS_OF_JOBS)
    flow_of = session.flows.value
    found: list[str] = []
    for row in rows:
        for gate, _, _, pool, *_ in permits_of.get(row.id, ()):
            found += (gate, pool) if pool else (gate,)
        found += [gate for gate in (row.ticket, row.parked_at) if gate is not None]
        if row.state in QUEUED:
            uses = (*flow_of(row.flow).shared, *row.keyed)
            found += [use.name for use in uses if use.amount > 1]
    return found


def _of_keys(
    session: Session, names: Sequence[str], jobs: Sequence[str], events: Sequence[tuple[str, str]]
) -> list[Read]:
    """Return the queries for runs by their keys, and for what ending them needs, in the same trip.

    Args:
        jobs: ids of further jobs, which are read by other queries.
        events: signals' events, each with its key.
    """
    runs = session.cache.each(records.KNOWN)
    names = [name for name in names if name not in runs]
    known = session.cache.read_of(records.KNOWN, names)
    if known is None:
        return []

    def fill(each: Each) -> Callable[[Rows], None]:
        def take(rows: Rows) -> None:
            found = session.cache.each(each)
            for name in names:
                found.update((row[1], []) for row in runs[name])
            for row in rows:
                found[row[1]].append(row)

        return take

    return [
        known,
        Read(sql.JOBS_OF_KNOWN, known.bound, fill(sql.JOBS)),
        Read(PERMITS_OF_KNOWN, known.bound, fill(PERMITS_OF_JOBS)),
        records.events_of_known(session, names, events),
        *_of_held(session, names, jobs),
    ]


def _of_held(session: Session, names: Sequence[str], jobs: Sequence[str]) -> list[Read]:
    """Return the queries for the gates that jobs hold, and for jobs parked there.

    Their rows must be taken after the runs of the keys `names` and the permits of all these jobs.
    """
    bound = (Texts(names), ids_of(jobs))
    most_of: dict[str, int] = {}

    def take(rows: Rows) -> None:
        runs, permits_of = session.cache.each(records.KNOWN), session.cache.each(PERMITS_OF_JOBS)
        for job in {*jobs, *(row[1] for name in names for row in runs[name])}:
            for gate, _, _, pool, *_ in permits_of[job]:
                most_of.update((name, most_read(1)) for name in (gate, pool) if name)
        take_gates(session, most_of, rows)

    return [Read(LOAD_HELD, bound, take), *parked_at_held(session, most_of, bound)]


def rows_of_gates(session: Session, names: Sequence[str]) -> list[Read]:
    """Return the query for uncached rows of gates and their members."""
    cached = session.cache.gates
    unread = [name for name in dict.fromkeys(names) if name not in cached]
    if not unread:
        return []
    members = [member for name in unread for member in _members(session, name)]
    missing = unread + [name for name in members if name not in cached]

    def take(rows: Rows) -> None:
        take_gates(session, missing, rows)

    return [Read(LOAD, (Texts(missing),), take)]


def parked_at(session: Session, names: Iterable[str]) -> list[Read]:
    """Return the queries for uncached jobs that are parked at gates."""
    read = session.cache.none_parked | session.cache.many_parked
    unread = [name for name in names if name not in read and not is_implicit(name)]
    return parked_reads(session, {name: _heads(session, name) for name in unread})


def _heads(session: Session, gate: str) -> int:
    """Return the maximum number of a flow's parked jobs that the gate can feed at once."""
    spec = _spec(session, gate)
    if spec is None:
        return 1
    limits = (spec.capacity, spec.limit, *(capacity for _, capacity in spec.members))
    most = sum(one for one in limits if one) if RULES[spec.kind].counts else FEED_HEADS
    return max(1, min(most, FEED_HEADS))


def _members(session: Session, gate: str) -> list[str]:
    spec = _spec(session, gate)
    return [member_gate(gate, member) for member, _ in spec.members] if spec else []


def _spec(session: Session, gate: str) -> GateSpec | None:
    known = session.shared.templates
    return None if known is None else known.spec(gate)


_END_LEASES = Write(
    # A new number makes a row differ from the one that a concurrent beat has read.
    "UPDATE @worker SET lease_until = least(lease_until, $1), no = no + 1 WHERE NOT lapsed",
    of("worker"),
)
_NO_BEATS = Write("LOCK TABLE @worker IN SHARE ROW EXCLUSIVE MODE", of())
_SET_BACK = Write(f"UPDATE @number SET n = $1 WHERE key = {HIGH_WATER}", of())  # noqa: S608  (a constant)


class PostgresLedger:
    """See `SqlLedger`."""

    suspect_key = SUSPECT

    def __init__(self, session: Session, closed_periods: dict[int, ClosedPeriod]) -> None:
        self.session = session
        self.jobs = PostgresJobs(session)
        self.gates = PostgresGates(session)
        self.permits = PostgresPermits(session)
        self.starts = PostgresStarts(session)
        self.lanes = PostgresLanes(session)
        self.counts = PostgresCounts(session)
        self.keys = PostgresKeys(session)
        self.signals = PostgresSignals(session)
        self.workers = PostgresWorkers(session)
        self.entries = SqlEntries(session)
        self.tokens = SqlTokens(session)
        self.trail = PostgresTrail(session)
        self.facts = SqlFacts(session, self.trail)
        self.closed_periods = closed_periods

    @property
    def now(self) -> int:
        """Return the store's time of this step, ms."""
        return self.session.now

    def read_ahead(self, ahead: ReadAhead) -> None:
        """Read what the verb will need, in one trip."""
        session = self.session
        if not any(ahead):
            return
        if len(ahead.flows) > 1:
            session.flows.know(ahead.flows)
            session.lanes.know(flow.lane for flow in ahead.flows)
        if ahead.heads:
            session.cache.found = [*ahead.heads]
        if session.mode is Mode.SHARED and ahead.gates:
            session.need_exclusive()
        if session.mode not in {Mode.BLIND, Mode.PEEK}:
            session.read_all(reads_of(session, ahead))

    def wake(self, lane: str | None, at: int | None = None) -> None:
        """Wake waiters of a lane after the step (None: of any lane)."""
        self.session.wakes.append((lane, at))

    def end_leases(self) -> None:
        """End all leases now, even for a concurrent beat that has read one."""
        self.session.write(_NO_BEATS)
        self.session.write(_END_LEASES, self.now)

    def set_time_back(self) -> None:
        """Lower the high-water mark to the step's time."""
        self.session.write(_SET_BACK, self.now)
        self.session.put(HIGH_WATER, self.now)
