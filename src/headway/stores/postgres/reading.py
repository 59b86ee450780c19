"""What a verb names before it looks at it, as questions that go in one trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.core.errors import UnknownGate
from headway.core.gates.pool import member_gate
from headway.core.gates.spec import GateKind, GateSpec
from headway.core.state import QUEUED
from headway.stores.ledger.ahead import Ahead
from headway.stores.ledger.feeding import FEED_HEADS
from headway.stores.ledger.gatenames import is_implicit, place_of
from headway.stores.ledger.rows import JobRow
from headway.stores.postgres.arrays import Texts
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Each, Read, Rows
from headway.stores.postgres.tables import keys, permits, signals
from headway.stores.postgres.tables.gates import LOAD, take_gates
from headway.stores.postgres.tables.ids import ids_of
from headway.stores.postgres.tables.jobs import keeping, starting
from headway.stores.postgres.tables.jobs.parking import UNFIT, parked_reads


def reads_of(session: Session, ahead: Ahead) -> list[Read]:
    """The questions that must be asked to know what is named; none for what is known."""
    jobs, words = ids_of(ahead.jobs), session.words
    dedupe = [(row.tenant, row.key) for row in ahead.ends if row.key is not None]
    holders = [who for one in ahead.workers if (who := words.find(one)) is not None]
    sets: tuple[tuple[Each, Sequence[object]], ...] = (
        (signals.KEPT, ahead.kept),
        (signals.HEARD, [signals.hash_of(*one) for one in ahead.events]),
        (keeping.JOBS, jobs),
        (permits.OF_JOBS, (*jobs, *ids_of(ahead.permits))),
        (keeping.RUNS, ids_of(ahead.runs)),
        (keys.KEYS, [keys.hash_of(*one) for one in (*ahead.dedupe, *dedupe)]),
        (UNFIT, ahead.refits),
        (starting.HELD_OF, holders),
    )
    found = [session.read_of(each, things) for each, things in sets if things]
    reads = [read for read in found if read is not None]
    gates = (*ahead.gates, *_gates_of(session, ahead.ends))
    return [*reads, *_of_keys(session, ahead.keys), *_of_gates(session, gates)]


def _gates_of(session: Session, rows: Sequence[JobRow]) -> list[str]:
    """Where jobs hold permits, wait, or have something reserved."""
    permits_of = session.known_of(permits.OF_JOBS)
    flow_of = session.flows.thing
    found: list[str] = []
    for row in rows:
        for gate, _, _, pool, *_ in permits_of.get(row.id, ()):
            found += (gate, pool) if pool else (gate,)
        found += [gate for gate in (row.ticket, row.parked_at) if gate is not None]
        if row.state in QUEUED:
            uses = (*flow_of(row.flow).shared, *row.keyed)
            found += [use.name for use in uses if use.amount > 1]
    return found


def _of_keys(session: Session, names: Sequence[str]) -> list[Read]:
    """Run by their keys, with their jobs and the permits of these."""
    known = session.read_of(signals.KNOWN, names)
    if known is None:
        return []

    def fill(each: Each) -> Callable[[Rows], None]:
        def take(rows: Rows) -> None:
            jobs = session.known_of(each)
            for name in names:
                jobs.update((row[1], []) for row in session.known_of(signals.KNOWN)[name])
            for row in rows:
                jobs[row[1]].append(row)

        return take

    return [
        known,
        Read(keeping.OF_KNOWN, known.bound, fill(keeping.JOBS)),
        Read(permits.OF_KNOWN, known.bound, fill(permits.OF_JOBS)),
    ]


def _of_gates(session: Session, names: Sequence[str]) -> list[Read]:
    reads: list[Read] = []
    names = list(dict.fromkeys(names))
    members = [member for name in names for member in _members(session, name)]
    missing = [name for name in (*names, *members) if name not in session.gates]
    if missing:

        def take(rows: Rows) -> None:
            take_gates(session, missing, rows, [])

        reads.append(Read(LOAD, (Texts(missing),), take))
    keyed = {name: _heads(session, name) for name in names if not is_implicit(name)}
    return reads + parked_reads(session, keyed)


def _heads(session: Session, gate: str) -> int:
    """How many parked jobs of a flow are looked at when the gate has room."""
    spec = _spec(session, gate)
    if spec is None:
        return 2
    if spec.kind is GateKind.POOL:
        most = sum(capacity for _, capacity in spec.members)
    elif spec.kind is GateKind.HOURS:
        most = FEED_HEADS
    else:
        most = spec.capacity or spec.limit or 1
    return max(2, min(most, FEED_HEADS) + 1)


def _members(session: Session, gate: str) -> list[str]:
    spec = _spec(session, gate)
    if spec is None or spec.kind is not GateKind.POOL:
        return []
    return [member_gate(gate, member) for member, _ in spec.members]


def _spec(session: Session, gate: str) -> GateSpec | None:
    known = session.shared.templates
    if known is None or is_implicit(gate):
        return None
    try:
        place = place_of(known.rows, gate)
    except UnknownGate:
        return None
    # A member of a pool is looked at with the pool.
    return None if place.pool else known.rows[place.template].current
