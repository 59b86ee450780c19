"""Reads of the heads of flows, and of jobs parked at gates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from headway.stores.ledger.feeding import FEED_HEADS
from headway.stores.postgres.arrays import Numbers, Texts
from headway.stores.postgres.low_water_marks import WHOLE
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Read
from headway.stores.postgres.step_cache import Ticket
from headway.stores.postgres.tables import job_statements as sql
from headway.stores.sql.statement import Row, Rows


def flows_bound(session: Session, lane: str, after: int, limit: int) -> tuple[object, ...]:
    """Return the parameters of `FLOWS_WAITING`."""
    marks = session.shared.marks
    marked = [flow for flow in marks.flows(lane) if flow > after]
    parts = [(flow, *part) for flow in marked for part in marks.ranges(flow)]
    columns = zip(*parts, strict=True) if parts else ((),) * 5
    return (
        lane,
        Numbers((after, *marked)),
        Numbers((*marked, sql.LAST_FLOW)),
        limit,
        *(Numbers(column) for column in columns),
    )


class HeadsRead(NamedTuple):
    """A read of the first waiting jobs of flows.

    Attributes:
        wanted: number of heads, by flow.
        marked: flows that are read from their low-water marks on, or whole if few jobs follow.
    """

    wanted: Mapping[int, int]
    marked: frozenset[int]
    bound: tuple[Numbers, ...]


def heads_read(session: Session, wanted: Mapping[int, int]) -> HeadsRead:
    """Return the read of heads of flows, from their low-water marks on."""
    lane, flow, marks = session.lanes.number, session.flows.value, session.shared.marks
    ranges = {one: marks.ranges(one) for one in wanted}
    parts = [
        (lane(flow(one).lane), one, most, *part)
        for one, most in wanted.items()
        for part in ranges[one]
    ]
    marked = frozenset(one for one, found in ranges.items() if found is not WHOLE)
    bound = tuple(Numbers(column) for column in zip(*parts, strict=True))
    return HeadsRead(wanted, marked, bound)


def take_heads(session: Session, read: HeadsRead, rows: Rows) -> None:
    """Cache the rows of a read for the step."""
    found: dict[int, Rows] = {flow: [] for flow in read.wanted}
    for row in rows:
        found[row[0]].append(row[1:])
    for flow, heads in found.items():
        most = read.wanted[flow]
        session.cache.heads[flow] = (most, heads[:most])
        if flow in read.marked and len(heads) < most:
            # It was read whole.
            session.lowered += 1
            session.shared.marks.drop([flow])


def parked_reads(session: Session, gates: Mapping[str, int]) -> list[Read]:
    """Return the queries for jobs parked at gates.

    Args:
        gates: maximum number of heads of each flow to feed, by the gate's name.
    """
    parked = session.cache.parked
    most_of = {
        name: most_read(fed) for name, fed in gates.items() if not parked.knows(name, fed + 1)
    }
    if not most_of:
        return []
    names = Texts(most_of)
    return [
        Read(sql.PARKED, (names, Numbers(most_of.values())), _take_parked(session, most_of)),
        Read(sql.TICKETS_OF, (names,), _take_tickets(session, most_of)),
    ]


def parked_at_held(
    session: Session, most_of: Mapping[str, int], bound: tuple[object, ...]
) -> list[Read]:
    """Return the queries for jobs parked at the gates that jobs hold; see `HELD`.

    Args:
        most_of: `most_read(1)` by the names of these gates; filled before the rows are taken.
        bound: the parameters of `HELD`.
    """
    return [
        Read(sql.PARKED_AT_HELD, (*bound, most_read(1)), _take_parked(session, most_of)),
        Read(sql.TICKETS_OF_HELD, bound, _take_tickets(session, most_of)),
    ]


def most_read(fed: int) -> int:
    """Return how many heads of a flow to read if this many may be fed from a gate.

    One more than is fed, and twice as many, because a step that settles and claims feeds from a
    gate twice.
    """
    return max(fed, min(2 * fed, FEED_HEADS)) + 1


def _take_parked(session: Session, most_of: Mapping[str, int]) -> Callable[[Rows], None]:
    def take(rows: Rows) -> None:
        heads: dict[str, list[tuple[int, Row]]] = {name: [] for name in most_of}
        for row in rows:
            heads[row[0]].append((row[1], row[2:]))
        for name, found in heads.items():
            if not found:
                session.cache.none_parked.add(name)
            flows = len({flow for flow, _ in found})
            if flows > sql.MOST_PARKED_FLOWS:
                session.cache.many_parked.add(name)
            else:
                each = max(sql.LEAST_PARKED, sql.MOST_PARKED // max(1, flows))
                session.cache.parked.take(name, min(most_of[name], each), found)

    return take


def _take_tickets(session: Session, names: Collection[str]) -> Callable[[Rows], None]:
    def take(rows: Rows) -> None:
        tickets: dict[str, list[tuple[int, Ticket]]] = {name: [] for name in names}
        for name, flow, *ticket in rows:
            tickets[name].append((flow, (ticket[0], ticket[1], ticket[2], ticket[3])))
        for name, found in tickets.items():
            session.cache.parked.take_tickets(name, found)

    return take
