"""State shared by the sessions of a store in one process, and results of steps."""

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
from headway.stores.ledger.gaterows import GateRow, GateTemplates
from headway.stores.ledger.lane_claim import heads_of_each
from headway.stores.ledger.rows import LaneRow
from headway.stores.postgres.link import BoundStatement
from headway.stores.postgres.low_water_marks import LowWaterMarks
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.registry import Registry
from headway.stores.postgres.schema import latest
from headway.stores.postgres.statement import BoundSelect, NeedsMore, StepKind
from headway.stores.postgres.step_cache import StepCache
from headway.stores.postgres.timing import StoreTime

MOST_KINDS = 256
"""Maximum number of kinds of steps whose reads are remembered; the least recent are dropped."""
MOST_FLOWS = 256
"""Maximum number of flows whose heads are prefetched."""
MOST_ONCE, MOST_AGAIN = 64, 2_048
"""Maximum number of names that are prefetched after one step has read them, and after two have."""
MOST_SPECS = 10_000
"""Maximum number of gate names whose declarations are cached."""

Woken = dict[tuple[str | None, int | None], None]
"""Lanes to wake (None: any), each with its time (None: now)."""
MakeNotice = Callable[[Woken], BoundStatement | None]
"""Build the statement that notifies other processes of a commit; None to send none."""


def no_notice(_: Woken) -> None:
    """Notify no other process with the commit; the caller notifies them afterwards."""


class Done(NamedTuple):
    """What a step has done.

    Attributes:
        notified: whether other processes were notified with the commit.
    """

    wrote: bool
    woken: Woken
    notified: bool


class CachedTemplates(NamedTuple):
    """Declared gates as of a revision of the definitions.

    Attributes:
        version: the revision.
        rows: declared gates by name.
        spec: returns the declaration for a resolved name; None for any other name.
    """

    version: int
    rows: GateTemplates
    spec: Callable[[str], GateSpec | None]

    @classmethod
    def of_rows(cls, version: int, rows: GateTemplates) -> CachedTemplates:
        """Return the declared gates, with a cache for `spec`."""
        return cls(version, rows, lru_cache(MOST_SPECS)(partial(_spec_of, rows)))


def _spec_of(rows: GateTemplates, gate: str) -> GateSpec | None:
    try:
        place = rows.place_of(gate)
    except UnknownGate:
        return None
    # A member of a pool is read with its pool; an implicit gate is not declared.
    return rows[place.template].current if place.template and not place.pool else None


class CachedLanes(NamedTuple):
    """Cached rows of lanes, and the value of LANES when they were read; levels are not cached."""

    version: int
    rows: dict[str, LaneRow]


class Names(NamedTuple):
    """Names that a step has read, and those that the next step of its kind will probably read.

    The first few are always prefetched; further ones only if the previous step has read them, too.
    """

    read: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()

    @classmethod
    def of_step(cls, read: Iterable[str], before: Names | None) -> Names:
        """Return the names of a step, given those of the previous one."""
        names = tuple(islice(read, MOST_AGAIN))
        again = set(before.read) if before else set[str]()
        likely = tuple(one for place, one in enumerate(names) if place < MOST_ONCE or one in again)
        return cls(names, likely)


@dataclass(slots=True, frozen=True)
class Prefetch:
    """The last reads of a kind of step, which the next one can repeat in the trip that starts it.

    Attributes:
        fed: gates whose parked jobs it read.
        queues: flows at gates whose first parked job it read.
        heads: number of heads, by flow.
        lanes: lanes whose flows with waiting jobs it read, each with the preceding flow and the
            limit.
        empty: queries that found nothing.
        n: maximum number of jobs that the step could start.
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
        """Return the reads of a step for its successor.

        Args:
            n: maximum number of jobs that it could start.
            before: the step's own prefetch.
        """
        answers = cache.answers
        return cls(
            tuple(cache.used),
            Names.of_step(cache.gates_read, before and before.gates),
            Names.of_step(
                [name for name in cache.fed if name not in cache.many_parked], before and before.fed
            ),
            Names.of_step(cache.queues, before and before.queues),
            cache.wanted,
            tuple(cache.lanes_asked),
            frozenset(one for one in cache.used if not answers.get(one, True)),
            n,
        )

    def heads_for(self, n: int) -> dict[int, int]:
        """Return how many heads of each flow a step that may start n jobs probably reads."""
        flows = dict(islice(self.heads.items(), MOST_FLOWS))
        if n == self.n or not flows:
            return flows
        _, before = heads_of_each(self.n, len(self.heads))
        least, most = heads_of_each(n, len(self.heads))
        for flow, read in flows.items():
            # A shut flow needs one head, and a flow with little room needs few.
            if read > 1:
                flows[flow] = most if read >= before else min(most, max(least, read))
        return flows


class Shared:
    """State shared by all sessions of a store in this process.

    Args:
        registry: numbers of flows, policies, lanes and words.

    Attributes:
        identity: identity of the store from which all this was read.
        templates: declared gates; None until read.
        lanes: lanes read so far.
        high_water: the store's high-water mark, as last read or written.
        hours: rows of gates with known intervals, which are permanent.
        marks: low-water marks of flows whose jobs this process has started.
        prefetches: by name of the step's kind.
        unfolded: number of steps since a step of this process folded counts.
        forgotten: how often this state was cleared.
    """

    def __init__(self, options: PostgresOptions, registry: Registry, time: StoreTime) -> None:
        self.options = options
        self.registry = registry
        self.time = time
        self.watch = FingerprintWatch()
        self.identity = 0
        self.high_water = 0
        self.templates: CachedTemplates | None = None
        self.lanes = CachedLanes(-1, {})
        self.hours: dict[str, GateRow] = {}
        self.marks = LowWaterMarks()
        self.prefetches: dict[Hashable, Prefetch] = {}
        self._learning = Lock()
        self.unfolded = 0
        self.forgotten = 0

    def lanes_of(self, version: int) -> dict[str, LaneRow]:
        """Return the lanes read with this value of LANES; callers add to them."""
        lanes = self.lanes
        if lanes.version != version:
            lanes = self.lanes = CachedLanes(version, {})
        return lanes.rows

    def prefetch_of(self, kind: StepKind) -> Prefetch | None:
        """Return the likely reads of a step of this kind; None if unknown."""
        known = self.prefetches
        return next((known[name] for name in (kind.name, *kind.like) if name in known), None)

    def learn(self, kind: StepKind, cache: StepCache) -> None:
        """Remember a step's reads."""
        known = self.prefetches
        with self._learning:
            read = Prefetch.of_step(cache, kind.n, known.pop(kind.name, None))
            if len(known) >= MOST_KINDS:
                del known[next(iter(known))]
            known[kind.name] = read

    def known_facts(self) -> tuple[int | str, ...]:
        """Return the known fingerprint and schema of the store; see `same_store`.

        Raises:
            NeedsMore: the fingerprint is unknown, or the store is suspect.
        """
        known = self.watch.known
        if known is None or self.watch.reason:
            raise NeedsMore
        return (*known, latest())

    def follow(self, identity: int) -> None:
        """Forget everything if the store was replaced."""
        if self.identity != identity:
            self.forget()
            self.identity = identity

    def forget(self) -> None:
        """Forget everything: a new connection may lead to another store."""
        self.forgotten += 1
        self.registry.forget()
        self.identity = 0
        self.high_water = 0
        self.templates = None
        self.lanes = CachedLanes(-1, {})
        self.hours = {}
        self.marks.clear()
        with self._learning:
            self.prefetches.clear()
