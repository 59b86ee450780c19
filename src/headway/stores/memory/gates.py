"""Gates, permits and starts in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from sortedcontainers import SortedDict

from headway.stores.ledger.gaterows import (
    GateRow,
    GateTemplates,
    Holders,
    PermitRow,
    ReturnedPermits,
    TemplateRow,
    amounts_of,
)
from headway.stores.memory.journal import Journal
from headway.stores.memory.timing import StepTime


class MemoryGates:
    """See `GateTable`."""

    def __init__(self, time: StepTime, journal: Journal) -> None:
        self._time = time
        self._journal = journal
        self._templates = GateTemplates()
        self._rows: SortedDict[str, GateRow] = SortedDict()
        self._timers: SortedDict[tuple[int, str], None] = SortedDict()

    def templates(self) -> GateTemplates:
        return self._templates

    def save_template(self, row: TemplateRow) -> None:
        before = self._templates
        self._templates = GateTemplates({**before, row.spec.name: row})
        self._journal.note(lambda: setattr(self, "_templates", before))

    def load(self, names: Iterable[str]) -> dict[str, GateRow]:
        rows = self._rows
        return {name: rows[name].clone() for name in names if name in rows}

    def save(self, rows: Iterable[GateRow]) -> None:
        for row in rows:
            old = self._rows.get(row.name)
            if old is not None and old.timer_at is not None:
                self._journal.drop(self._timers, (old.timer_at, row.name))
            if row.idle():
                self._journal.drop(self._rows, row.name)
                continue
            if row.timer_at is not None:
                self._journal.put(self._timers, (row.timer_at, row.name), None)
            self._journal.put(self._rows, row.name, row.clone())

    def page(self, after: str, limit: int) -> list[GateRow]:
        names = self._rows.irange(minimum=after, inclusive=(False, True))
        return [self._rows[name].clone() for name in islice(names, limit)]

    def due_timers(self, limit: int) -> list[str]:
        due = self._timers.irange(maximum=(self._time.now + 1, ""))
        return [name for _, name in islice(due, limit)]

    def next_timer(self) -> int | None:
        return self._timers.peekitem(0)[0][0] if self._timers else None

    def short_horizons(self, before_at: int, limit: int) -> list[GateRow]:
        short = (
            row
            for row in self._rows.values()
            if row.horizon_at is not None and row.horizon_at < before_at
        )
        return [row.clone() for row in islice(short, limit)]


class MemoryPermits:
    """See `PermitTable`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: SortedDict[tuple[str, str], PermitRow] = SortedDict()
        self._gates: dict[str, dict[str, PermitRow]] = {}
        self._jobs: dict[str, dict[str, PermitRow]] = {}

    def add(self, rows: Sequence[PermitRow]) -> None:
        for row in rows:
            self._add(row)
            self._journal.note(lambda row=row: self._remove(row))

    def _add(self, row: PermitRow) -> None:
        self._rows[row.gate, row.job] = row
        self._gates.setdefault(row.gate, {})[row.job] = row
        self._jobs.setdefault(row.job, {})[row.gate] = row

    def _remove(self, row: PermitRow) -> None:
        del self._rows[row.gate, row.job]
        for table, outer, inner in (
            (self._gates, row.gate, row.job),
            (self._jobs, row.job, row.gate),
        ):
            del table[outer][inner]
            if not table[outer]:
                del table[outer]

    def of_jobs(self, jobs: Iterable[str]) -> list[PermitRow]:
        return [permit for job in jobs for permit in self._jobs.get(job, {}).values()]

    def remove(self, rows: Sequence[PermitRow]) -> None:
        for row in rows:
            self._remove(row)
            self._journal.note(lambda row=row: self._add(row))

    def remove_all(self, jobs: Iterable[str]) -> list[ReturnedPermits]:
        rows = self.of_jobs(jobs)
        self.remove(rows)
        return amounts_of((row.gate, row.pool, row.amount) for row in rows)

    def at(self, gates: Sequence[str], limit: int) -> dict[str, Holders]:
        held = {gate: self._gates.get(gate, {}).values() for gate in gates}
        return {
            gate: Holders(
                permits=len(rows),
                amount=sum(row.amount for row in rows),
                first=sorted(rows, key=lambda row: (row.since, row.job))[:limit],
            )
            for gate, rows in held.items()
        }

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        names = sorted(name for name in self._gates if name > after)[:limit]
        return [(name, held.amount) for name, held in self.at(names, 0).items()]

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        places = self._rows.irange(minimum=after, inclusive=(False, True))
        return [self._rows[place] for place in islice(places, limit)]


class MemoryStarts:
    """See `StartTable`."""

    def __init__(self, time: StepTime, journal: Journal) -> None:
        self._time = time
        self._journal = journal
        self._gates: dict[str, SortedDict[int, int]] = {}

    def add(self, counts: Mapping[str, int]) -> None:
        for gate, number in counts.items():
            moments = self._gates.setdefault(gate, SortedDict())
            now = self._time.now
            self._journal.put(moments, now, moments.get(now, 0) + number)

    def put(self, gate: str, moments: Mapping[int, int]) -> None:
        kept = self._gates.setdefault(gate, SortedDict())
        for at, number in moments.items():
            self._journal.put(kept, at, number)

    def trim(self, gate: str, until_at: int) -> int:
        moments = self._gates.get(gate)
        if moments is None:
            return 0
        old = list(moments.irange(maximum=until_at))
        number = sum(moments[at] for at in old)
        for at in old:
            self._journal.drop(moments, at)
        return number

    def total(self, gate: str, after_at: int, stored: int) -> int:
        del stored
        return sum(number for _, number in self.oldest(gate, after_at, 2**31))

    def oldest(self, gate: str, after_at: int, limit: int) -> list[tuple[int, int]]:
        moments = self._gates.get(gate)
        if moments is None:
            return []
        later = islice(moments.irange(minimum=after_at, inclusive=(False, True)), limit)
        return [(at, moments[at]) for at in later]
