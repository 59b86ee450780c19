"""Views of lanes, workers, the timetable, the trail and the store's counts."""

from __future__ import annotations

from headway.contract.views import (
    EntryView,
    LanesQuery,
    LaneView,
    Page,
    StatsQuery,
    StatsView,
    TimetableQuery,
    TrailQuery,
    TrailView,
    WorkersQuery,
    WorkerView,
)
from headway.core.errors import InvalidValue
from headway.stores.ledger.gatebook import GateBook
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import LaneRow


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
    book = GateBook(ledger)
    book.prefetch(f"lane:{name}" for name in names)
    oldest = ledger.jobs.oldest_due(names)
    views: list[LaneView] = []
    for name in names:
        row = rows.get(name) or LaneRow(name=name)
        gate = book.find(f"lane:{name}")
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


def read_workers(ledger: Ledger, query: WorkersQuery) -> tuple[WorkerView, ...]:
    """Return live workers, and those that died less than an hour ago."""
    del query
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
    """Return all entries, by name."""
    del query
    return tuple(
        EntryView(
            spec=row.spec,
            revision=row.revision,
            last_fired=row.last_fired,
            ahead_until=row.ahead_until,
            folded=row.folded,
            first_seen_at=row.first_seen_at,
        )
        for row in ledger.entries.all()
        if row.spec is not None
    )


def read_trail(ledger: Ledger, query: TrailQuery) -> Page[TrailView]:
    """Return a page of the trail, newest first.

    Raises:
        InvalidValue: the cursor belongs to another listing.
    """
    before = None
    if query.cursor is not None:
        if not query.cursor.isdigit():
            message = f"the cursor {query.cursor!r} is not one of this listing"
            raise InvalidValue(message, hint="pass the cursor of the page before")
        before = int(query.cursor)
    rows = ledger.trail.page(query.target, before, query.limit)
    cursor = str(rows[-1].seq) if len(rows) == query.limit else None
    return Page(rows=tuple(TrailView(**one._asdict()) for one in rows), cursor=cursor)


def read_stats(ledger: Ledger, query: StatsQuery) -> StatsView:
    """Return the counts of the whole store."""
    del query
    return StatsView(
        now=ledger.now,
        counts={str(state): n for state, n in ledger.counts.of_states().items() if n},
        totals=ledger.counts.totals(),
        identity=ledger.facts.identity(),
        epoch=ledger.facts.epoch(),
        revision=ledger.facts.revision(),
        clock_ahead_ms=ledger.facts.clock_ahead_ms(),
    )
