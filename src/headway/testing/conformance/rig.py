"""The fixture of each conformance test: an empty store, its clock, a job factory and a worker.

It also contains the setups that several groups share.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict, TypeVar, Unpack

import pytest
import pytest_asyncio

from headway.contract.claims import Claimed, SweepReply
from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DefineRequest,
    Item,
    OpenGate,
    ResetGate,
    SetGate,
)
from headway.contract.operate import Acted, ActRequest, Edit, Verb
from headway.contract.outcomes import (
    Died,
    Failed,
    HandedOver,
    NextStage,
    Released,
    Snoozed,
    Succeeded,
)
from headway.contract.signals import Decided, Signal, SignalKind, SignalReply
from headway.contract.store import Sent, Store
from headway.contract.views import (
    GatesQuery,
    GateState,
    JobQuery,
    JobView,
    Page,
    Query,
    StatsQuery,
    WhyQuery,
    WhyView,
)
from headway.core.cascade import CANDIDATE, Cascade
from headway.core.gates.spec import GateNeed, GateSpec, GateUse
from headway.core.job import DEFAULT_POLICY, JobPolicy, NewJob
from headway.core.naming import MAX_NOTE
from headway.core.state import State
from headway.testing.clock import FakeClock
from headway.testing.conformance.worker import LANE, PlayedWorker
from headway.testing.dump import Dump, compare, differences, dump, every_job
from headway.testing.jobs import POLICY, Gate, JobFactory, JobFields, Keyed

MakeStore = Callable[[FakeClock], Store]
"""What the author of a store supplies: a new, empty store that uses this clock."""

Row = TypeVar("Row")

AUTHOR = "ann"
REASON = "a drill"
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
LIMIT_S = 10
"""In seconds. A wait that takes longer was not woken."""


each_bad_note = pytest.mark.parametrize(
    "text", ["nul\0", "\ud800", "x" * (MAX_NOTE + 1)], ids=["nul", "surrogate", "long"]
)
"""Runs a test with each reason or label that is refused."""


class _Short(TypedDict):
    key: None
    policy: JobPolicy
    expires_at: None


SHORT = _Short(key=None, policy=DEFAULT_POLICY, expires_at=None)
"""Jobs without a key and with the default retention: only they take the stores' short paths."""

each_end = pytest.mark.parametrize(
    "outcome",
    [Succeeded, Failed, Died, partial(Snoozed, after_ms=9), NextStage, Released],
    ids=["succeeded", "failed", "died", "snoozed", "next", "released"],
)
"""Runs a test with each outcome that ends a run."""


class SignalFields(TypedDict, total=False):
    """The fields of a signal that a test may set."""

    kind: SignalKind
    body: bytes | None
    label: str
    extend_ms: int | None
    after_ms: int | None
    reason: str
    candidate: str
    stage: str
    gates: tuple[GateUse, ...]
    offer: bool
    known_as: str


class Rig:
    """One store under test.

    Args:
        store: new and empty.
        clock: the store's clock.

    Attributes:
        clock: moved only by the test.
        worker: the worker of tests that need only one.
    """

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self.jobs = JobFactory(clock)
        self._workers = 0
        self.worker = self.new_worker()
        self._acts = 0
        self._events = 0
        self._declared: set[str] = set()

    # Operations -----------------------------------------------------------------------------

    def new_worker(self) -> PlayedWorker:
        """Return a new worker."""
        self._workers += 1
        return PlayedWorker(self.store, f"worker-{self._workers}")

    async def enqueue(self, *jobs: NewJob) -> list[Sent]:
        """Enqueue jobs in one step."""
        return await self.store.enqueue(jobs)

    async def add(self, **fields: Unpack[JobFields]) -> NewJob:
        """Create and enqueue one job; gates are declared as in `add_many`."""
        (job,) = await self.add_many(1, **fields)
        return job

    async def add_many(self, count: int, **fields: Unpack[JobFields]) -> list[NewJob]:
        """Create and enqueue jobs in one step.

        Gates passed as specs are declared first, unless their names are declared already.
        """
        specs = [
            gate.spec if isinstance(gate, GateNeed | Keyed) else gate
            for gate in fields.get("gates", ())
            if not isinstance(gate, GateUse)
        ]
        await self.declare(*(spec for spec in specs if spec.name not in self._declared))
        jobs = self.jobs.many(count, **fields)
        await self.store.enqueue(jobs)
        return jobs

    async def start(self, **fields: Unpack[JobFields]) -> Claimed:
        """Create, enqueue and start one job; return its run."""
        job = await self.add(**fields)
        run = await self.worker.take_one(job.lane)
        assert run.id == job.id
        return run

    async def define(self, *items: Item, revision: int | None = None) -> int:
        """Change definitions, all or none."""
        return await self.store.define(
            DefineRequest(items=items, author=AUTHOR, reason=REASON, revision=revision)
        )

    async def declare(self, *specs: GateSpec) -> None:
        """Declare gates, as an App does."""
        if specs:
            await self.define(*(DeclareGate(spec=spec) for spec in specs))
            self._declared.update(spec.name for spec in specs)

    async def cap(self, name: str, capacity: int) -> None:
        """Set a gate's capacity, as an operator does."""
        await self.define(SetGate(name=name, capacity=capacity))

    async def reset(self, name: str) -> None:
        """Remove an operator's values of a gate."""
        await self.define(ResetGate(name=name))

    async def close_gate(self, name: str, until_at: int | None = None) -> None:
        """Close a gate, as an operator does."""
        await self.define(CloseGate(name=name, until_at=until_at, reason=REASON))

    async def open_gate(self, name: str) -> None:
        """Open a closed gate."""
        await self.define(OpenGate(name=name))

    async def act(
        self,
        verb: Verb,
        *ids: str,
        edit: Edit | None = None,
        request: str | None = None,
        states: tuple[State, ...] = (),
    ) -> list[Acted]:
        """Act on jobs as an operator, under a new or the given request id; return the results."""
        self._acts += 1
        replies = await self.store.act(
            ActRequest(
                request=request or f"act-{self._acts}",
                ids=ids,
                verb=verb,
                edit=edit or Edit(),
                states=states,
                author=AUTHOR,
                reason=REASON,
            )
        )
        assert [reply.id for reply in replies] == list(ids)
        return [reply.answer for reply in replies]

    async def cancel(self, *ids: str) -> list[Acted]:
        """Cancel jobs, as an operator does."""
        return await self.act(Verb.CANCEL, *ids)

    async def signal(
        self,
        key: str,
        decided: Decided = Decided.SUCCEEDED,
        *,
        event: str | None = None,
        **more: Unpack[SignalFields],
    ) -> SignalReply:
        """Send a signal, final by default, under a new or the given event id."""
        self._events += 1
        event = event or f"event-{self._events}"
        return await self.store.signal(Signal(key=key, event=event, decided=decided, **more))

    async def pass_time(self, ms: int) -> None:
        """Advance the clock, and sweep everything that is then due."""
        self.clock.advance(ms)
        await self.sweep()

    async def sweep(self) -> list[SweepReply]:
        """Sweep until nothing more is due now, and return the reply of each sweep."""
        replies: list[SweepReply] = []
        for _ in range(1000):
            replies.append(await self.store.sweep(1000))
            if not replies[-1].again:
                return replies
        pytest.fail("more is still due after 1000 sweeps")

    async def wait(self, seen: int, until_at: int | None = None) -> None:
        """Check that a wait returns at once.

        Args:
            seen: returned by the last claim.
        """
        async with asyncio.timeout(LIMIT_S):
            await self.store.wait([LANE], until_at, seen)

    @asynccontextmanager
    async def wakes(self, seen: int, *lanes: str) -> AsyncGenerator[None]:
        """Check that the block wakes waits in each of these lanes, which start before it.

        Args:
            seen: returned by the last claim.
            lanes: defaults to the lane of the job factory.
        """
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            for lane in lanes or (LANE,):
                tasks.create_task(self.store.wait([lane], None, seen))
            await asyncio.sleep(0)  # noqa: TID251  (lets the waits start; no time passes)
            yield

    # Reads and checks -----------------------------------------------------------------------

    async def view(self, job: str) -> JobView:
        """Return a job with its runs and trail."""
        view = await self.store.read(JobQuery(id=job))
        assert view is not None, f"the job {job} does not exist"
        return view

    async def missing(self, job: str) -> bool:
        """Return whether the job does not exist."""
        return await self.store.read(JobQuery(id=job)) is None

    async def state(self, job: str) -> State:
        """Return the state of a job, as stored."""
        return (await self.view(job)).state

    async def states(self, *jobs: NewJob) -> list[State]:
        """Return the states of jobs, as stored."""
        return [await self.state(job.id) for job in jobs]

    async def gate(self, name: str) -> GateState:
        """Return the current state of a gate."""
        page = await self.store.read(GatesQuery(names=(name,)))
        assert len(page.rows) == 1, f"the gate {name} is shown {len(page.rows)} times"
        return page.rows[0]

    async def gates(self) -> tuple[GateState, ...]:
        """Return the current states of all gates, by name."""
        return (await self.store.read(GatesQuery(limit=1000))).rows

    async def used(self, name: str) -> int:
        """Return the number of permits out of a gate, or of starts in its window."""
        return (await self.gate(name)).used

    async def holders(self, name: str) -> list[str]:
        """Return the jobs that hold permits of a gate, oldest first."""
        return [holder.job for holder in (await self.gate(name)).holders]

    async def why(self, job: str) -> WhyView:
        """Return why a job is in its current state."""
        view = await self.store.read(WhyQuery(id=job))
        assert view is not None, f"the job {job} does not exist"
        return view

    async def total(self, what: str) -> int:
        """Return one of the totals since the store was created."""
        return (await self.store.read(StatsQuery())).totals.get(what, 0)

    async def cascade(self, job: str) -> Cascade:
        """Return a job's candidates: the current one, those already asked, and those left."""
        cascade = (await self.view(job)).cascade
        assert cascade is not None
        return cascade

    async def pages(self, query: Callable[[str | None], Query[Page[Row]]], most: int) -> list[Row]:
        """Return all rows of a listing, page by page; check that no page has more than `most`."""
        found: list[Row] = []
        cursor: str | None = None
        for _ in range(100):
            page = await self.store.read(query(cursor))
            assert len(page.rows) <= most
            found += page.rows
            cursor = page.cursor
            if cursor is None:
                return found
        pytest.fail("the listing has not ended after 100 pages")

    async def dump(self) -> Dump:
        """Return everything that the store can show."""
        return await dump(self.store)

    @asynccontextmanager
    async def unchanged(self, *parts: str) -> AsyncGenerator[None]:
        """Check that the block changes nothing in these parts of the dump (default: the jobs)."""
        before = await self.dump()
        yield
        after = await self.dump()
        kept = {part: getattr(before, part) for part in parts or ("jobs",)}
        assert compare(after, replace(after, **kept)) == []

    @asynccontextmanager
    async def refuses(
        self, error: type[Exception], match: str | None = None
    ) -> AsyncGenerator[None]:
        """Check that the block raises this error, and changes nothing in the dump."""
        before = await self.dump()
        with pytest.raises(error, match=match):
            yield
        assert compare(await self.dump(), before) == []

    async def check(self) -> None:
        """Check the invariants that hold at all times.

        The audit finds nothing; counts and listings agree; permits are held only by jobs that are
        running or awaiting; exactly these jobs have an open run.
        """
        found = await differences(self.store)
        assert not found, found
        jobs = {job.id: job async for job in every_job(self.store)}
        stats = await self.store.read(StatsQuery())
        counted = {state: n for state, n in stats.counts.items() if n}
        assert counted == Counter(str(job.state) for job in jobs.values())
        held = {State.RUNNING, State.AWAITING}
        for gate in await self.gates():
            for holder in gate.holders:
                assert jobs[holder.job].state in held, f"the job of {holder} is not held"
        for job in jobs.values():
            runs = (await self.view(job.id)).runs if len(jobs) <= 100 else ()
            living = [run.run for run in runs if run.ended_at is None]
            assert not runs or living == ([job.run] if job.state in held else [])
            assert [run.run for run in runs] == sorted({run.run for run in runs})


def ref(run: Claimed) -> str:
    """Return a run's own reference, by which signals find it as well."""
    return f"{run.id}:{run.run}"


def for_candidate(name: str) -> str:
    """Return the template of a gate with a separate instance for each candidate of a cascade."""
    return f"{name}:{CANDIDATE}"


policy_with = partial(replace, POLICY)
"""Returns the policy of the job factory, with some fields changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AwaitingRun:
    """A run that has handed over.

    Attributes:
        key: the key of the signal that it awaits.
    """

    id: str
    run: int
    key: str
    worker: PlayedWorker


async def take_ids(rig: Rig, *ids: str) -> None:
    """Enqueue jobs of an unused kind and lane, with ids that other jobs would derive."""
    for taken in ids:
        await rig.add(id=taken, kind="other", lane="others", key=None)


async def dial(
    rig: Rig,
    *,
    key: str = "call-1",
    gates: tuple[Gate, ...] = (),
    policy: JobPolicy = POLICY,
    timeout_ms: int = 1_800_000,
) -> AwaitingRun:
    """Create a job, start it with a new worker, and hand it over."""
    job = await rig.add(gates=gates, policy=policy, priority=1, expires_at=None)
    worker = rig.new_worker()
    run = await worker.take_one()
    assert run.id == job.id
    await worker.settle(HandedOver(run.id, run.run, key=key, timeout_ms=timeout_ms))
    return AwaitingRun(id=job.id, run=run.run, key=key, worker=worker)


class ConformanceGroup:
    """A group of tests that runs on the stores of `make_store`, which a subclass overrides."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Return a function that creates a new, empty store; the store's author supplies it."""
        pytest.fail("a class that runs the suite must supply the fixture `make_store`")

    @pytest_asyncio.fixture
    async def rig(self, make_store: MakeStore) -> AsyncIterator[Rig]:
        """Yield a store with everything a test needs; check and close the store afterwards."""
        clock = FakeClock()
        store = make_store(clock)
        rig = Rig(store, clock)
        try:
            yield rig
            await rig.check()
        finally:
            await store.close()
