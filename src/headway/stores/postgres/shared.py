"""What the sessions of one store share, and what each step reports to them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from threading import Lock
from typing import NamedTuple

from headway.core.errors import UnknownGate
from headway.core.gates.spec import GateSpec
from headway.stores.ledger.fingerprint import FingerprintWatch
from headway.stores.ledger.gaterows import GateRow, TemplateRow, place_of
from headway.stores.ledger.lane_claim import heads_of_each
from headway.stores.ledger.rows import LaneRow
from headway.stores.postgres.link import BoundStatement
from headway.stores.postgres.marks import Marks
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.registry import Registry
from headway.stores.postgres.schema import latest
from headway.stores.postgres.statement import BoundSelect, NeedsMore, StepKind
from headway.stores.postgres.step_cache import StepCache
from headway.stores.postgres.timing import StoreTime

MOST_KINDS = 256
"""Kinds of steps whose reads are remembered: those that were used last."""
MOST_FLOWS = 32
"""Flows whose heads are prefetched."""
MOST_ONCE, MOST_AGAIN = 64, 2_048
"""Names that are prefetched after one step has read them, and after two have."""
MOST_SPECS = 10_000
"""Names of gates whose declared gates are remembered."""

Woken = dict[tuple[str | None, int | None], None]
"""Lanes to wake (None: any), each with the moment (None: now)."""
MakeNotice = Callable[[Woken], BoundStatement | None]
"""Makes the statement that notifies other processes of a commit, if one is to be sent."""


def no_notice(_: Woken) -> None:
    """Notify no other process with the commit; the caller does it afterwards."""


class Done(NamedTuple):
    """What a step has done.

    Attributes:
        notified: whether waiters in other processes were notified.
    """

    wrote: bool
    woken: Woken
    notified: bool


class Templates(NamedTuple):
    """Declared gates, and the number of the definitions with which they were read.

    Attributes:
        version: the number of the definitions.
        rows: the declared gates, by name.
        spec: returns the declared gate of a resolved name; None for any other name.
    """

    version: int
    rows: Mapping[str, TemplateRow]
    spec: Callable[[str], GateSpec | None]

    @classmethod
    def of_rows(cls, version: int, rows: Mapping[str, TemplateRow]) -> Templates:
        """Return what was read, with the answers about names kept."""
        return cls(version, rows, lru_cache(MOST_SPECS)(partial(_spec_of, rows)))


def _spec_of(rows: Mapping[str, TemplateRow], gate: str) -> GateSpec | None:
    try:
        place = place_of(rows, gate)
    except UnknownGate:
        return None
    # A member of a pool is looked at with the pool; an implicit gate is not declared.
    return rows[place.template].current if place.template and not place.pool else None


class Lanes(NamedTuple):
    """Lanes that have a row, and the number with which they were read; levels are not kept."""

    version: int
    rows: dict[str, LaneRow]


class Names(NamedTuple):
    """Names that a step has read, and those that the next one of its kind will probably read.

    A few are prefetched anyway. Many are if the step before has read them, too.
    """

    read: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()

    @classmethod
    def of_step(cls, read: Iterable[str], before: Names | None) -> Names:
        """Return what a step has read; `before` is the same of the step before it."""
        names = tuple(islice(read, MOST_AGAIN))
        again = set(before.read) if before else set[str]()
        likely = tuple(one for place, one in enumerate(names) if place < MOST_ONCE or one in again)
        return cls(names, likely)


@dataclass(slots=True, frozen=True)
class Prefetch:
    """What a kind of step read last, so that the next one can read it in the trip of its begin.

    Attributes:
        fed: gates whose parked jobs it read.
        queues: flows at gates, of which it read the first parked job.
        heads: how many heads of flows, by flow.
        lanes: which flows with waiting jobs, by lane, after which flow, and how many.
        empty: those of the queries that found nothing.
        n: how many jobs the step could start.
    """

    selects: tuple[BoundSelect, ...]
    gates: Names
    fed: Names
    queues: Names
    heads: Mapping[int, int]
    lanes: tuple[tuple[str, int, int], ...]
    empty: frozenset[BoundSelect]
    n: int

    @classmethod
    def of_step(cls, cache: StepCache, n: int, before: Prefetch | None) -> Prefetch:
        """Return what a step has read, and the next one will probably read as well.

        Args:
            n: how many jobs it could start.
            before: what was expected of the step.
        """
        answers = cache.answers
        return cls(
            tuple(cache.used),
            Names.of_step(cache.looked_at, before and before.gates),
            Names.of_step(
                [name for name in cache.fed if name not in cache.crowded], before and before.fed
            ),
            Names.of_step(cache.queues, before and before.queues),
            cache.wanted,
            tuple(cache.lanes_asked),
            frozenset(one for one in cache.used if not answers.get(one, True)),
            n,
        )

    def heads_for(self, n: int) -> dict[int, int]:
        """Return how many heads of each flow a step that may start n jobs will probably read."""
        flows = dict(islice(self.heads.items(), MOST_FLOWS))
        if n == self.n or not flows:
            return flows
        _, before = heads_of_each(self.n, len(self.heads))
        least, most = heads_of_each(n, len(self.heads))
        for flow, read in flows.items():
            # One head is read of a flow that is shut, and few where there is little room.
            if read > 1:
                flows[flow] = most if read >= before else min(most, max(least, read))
        return flows


class Shared:
    """What all sessions of a store in this process share.

    Args:
        registry: of flows, policies, lanes and words.

    Attributes:
        identity: of the store that all this was read from.
        templates: declared gates; None while none were read.
        lanes: as far as they were read.
        high_water: the store's, as it was seen or written last.
        hours: gates whose intervals are known, and so have a row that stays.
        marks: of flows, as far as this process has started their jobs.
        prefetches: by the name of the step's kind.
        unfolded: steps since one of this process folded counts.
        forgotten: how often all that was known was forgotten.
    """

    def __init__(self, options: PostgresOptions, registry: Registry, time: StoreTime) -> None:
        self.options = options
        self.registry = registry
        self.time = time
        self.watch = FingerprintWatch()
        self.identity = 0
        self.high_water = 0
        self.templates: Templates | None = None
        self.lanes = Lanes(-1, {})
        self.hours: dict[str, GateRow] = {}
        self.marks = Marks()
        self.prefetches: dict[Hashable, Prefetch] = {}
        self._learning = Lock()
        self.unfolded = 0
        self.forgotten = 0

    def lanes_of(self, version: int) -> dict[str, LaneRow]:
        """Return the lanes that were read while LANES was this; to be added to."""
        lanes = self.lanes
        if lanes.version != version:
            lanes = self.lanes = Lanes(version, {})
        return lanes.rows

    def prefetch_of(self, kind: StepKind) -> Prefetch | None:
        """Return what a step of this kind probably reads; None if nothing is known."""
        known = self.prefetches
        return next((known[name] for name in (kind.name, *kind.like) if name in known), None)

    def learn(self, kind: StepKind, cache: StepCache) -> None:
        """Remember what a step has read."""
        known = self.prefetches
        with self._learning:
            read = Prefetch.of_step(cache, kind.n, known.pop(kind.name, None))
            if len(known) >= MOST_KINDS:
                del known[next(iter(known))]
            known[kind.name] = read

    def sight(self) -> tuple[int | str, ...]:
        """Return what this process knows the store by; see `same_store`.

        Raises:
            NeedsMore: nothing is known, or it was replaced.
        """
        known = self.watch.known
        if known is None or self.watch.reason:
            raise NeedsMore
        return (*known, latest())

    def follow(self, identity: int) -> None:
        """Forget everything if the store is another one."""
        if self.identity != identity:
            self.forget()
            self.identity = identity

    def forget(self) -> None:
        """Forget everything: behind a new connection there may be another store."""
        self.forgotten += 1
        self.registry.forget()
        self.identity = 0
        self.high_water = 0
        self.templates = None
        self.lanes = Lanes(-1, {})
        self.hours = {}
        self.marks.clear()
        with self._learning:
            self.prefetches.clear()
