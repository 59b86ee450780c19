"""Concurrent calls share a commit, and no call is affected by another's error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from headway.contract.claims import BeatRequest
from headway.contract.definitions import DeclareGate, DefineRequest, LaneSpec
from headway.contract.signals import Signal, SignalKind
from headway.contract.store import Sent
from headway.contract.views import GatesQuery, JobsQuery, LanesQuery
from headway.core.errors import IdConflict, StoreUnavailable, UnknownGate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import MAX_BATCH, NewJob
from headway.core.state import State
from headway.stores.ledger.gaterows import TemplateRow
from headway.stores.ledger.rows import LaneRow
from headway.stores.ledger.verbs import enqueue
from headway.stores.sqlite import SqliteStore, call_queue, writer
from headway.stores.sqlite.caches import WAKES
from headway.stores.sqlite.call_queue import BULK, Call, CallQueue
from headway.stores.sqlite.ledger import SqliteLedger
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.writer import GROUP_CALLS
from headway.testing.clock import FakeClock
from tests.plain_jobs import assert_clean, claim, count, job, jobs, succeed
from tests.sqlite.rig import door_shut, number, one_turn, options

LIMIT = 30
UNKNOWN = (GateUse(name="nobody", template="nobody", shared=True),)


async def gathered(store: SqliteStore, path: Path, *asked: object) -> list[object]:
    """Let calls queue while the write lock is held, then release it: they form one group."""
    with door_shut(path):
        tasks = [asyncio.ensure_future(one) for one in asked]  # type: ignore[arg-type]
        for _ in tasks:
            await one_turn()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_calls_that_wait_together_are_committed_together(
    store: SqliteStore, path: Path
) -> None:
    await store.enqueue([job(0)])
    before = number(path, WAKES)
    replies = await gathered(store, path, *(store.enqueue([job(n)]) for n in range(1, 40)))
    assert [reply[0].created for reply in replies] == [True] * 39  # type: ignore[index]
    assert number(path, WAKES) == before + 1
    assert await count(store, "waiting") == 40


async def test_one_refused_call_of_a_group_writes_nothing_and_the_others_are_written(
    store: SqliteStore, path: Path
) -> None:
    good = [store.enqueue(jobs(n * 10, 5)) for n in range(4)]
    bad = store.enqueue([job(90), job(91, gates=UNKNOWN)])
    *replies, refused = await gathered(store, path, *good, bad)
    assert isinstance(refused, UnknownGate)
    assert all(len(reply) == 5 for reply in replies)  # type: ignore[arg-type]
    assert await count(store, "waiting") == 20
    page = await store.read(JobsQuery(ids=(job(90).id,)))
    assert page.rows == ()
    await assert_clean(store)


async def test_refused_call_leaves_no_trace_in_the_processes_caches(
    store: SqliteStore, path: Path
) -> None:
    """The numbers assigned to the refused job's lane, flow and policy were rolled back."""
    refused = [job(1, lane="new", tenant="new"), job(2, lane="new", gates=UNKNOWN)]
    replies = await gathered(store, path, store.enqueue([job(3)]), store.enqueue(refused))
    assert isinstance(replies[1], UnknownGate)
    assert [lane.name for lane in await store.read(LanesQuery())] == ["main"]
    await store.enqueue([job(1, lane="other", tenant="other"), job(2, lane="new", tenant="new")])
    rows = (await store.read(JobsQuery())).rows
    assert {(row.lane, row.tenant) for row in rows} == {
        ("main", ""),
        ("other", "other"),
        ("new", "new"),
    }


async def test_number_assigned_by_a_refused_call_can_be_another_flows(
    store: SqliteStore, path: Path, clock: FakeClock
) -> None:
    refused = [job(1, tenant="new"), job(2, gates=UNKNOWN)]
    replies = await gathered(store, path, store.enqueue([job(3)]), store.enqueue(refused))
    assert isinstance(replies[1], UnknownGate)
    other = SqliteStore(options(path), clock)
    await other.enqueue([job(1, tenant="other")])
    await other.close()
    reply = await claim(store)
    assert {one.id: one.tenant for one in reply.jobs} == {job(3).id: "", job(1).id: "other"}


async def test_call_of_a_group_that_fails_late_leaves_no_number_lane_or_wake(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue([job(0)])
    told: list[tuple[str | None, int | None]] = []
    monkeypatch.setattr(store._writer, "_announce", lambda _, lanes: told.extend(lanes))

    def change_and_fail(ledger: SqliteLedger) -> None:
        ledger.counts.move("main", None, State.DEAD, 7)
        ledger.lanes.save(LaneRow(name="main", spec=LaneSpec(name="main", concurrency=1)))
        assert ledger.lanes.load(("main",))["main"].current.concurrency == 1
        ledger.wake("refused")
        raise LookupError

    def lane(ledger: SqliteLedger) -> int | None:
        return ledger.lanes.load(("main",))["main"].current.concurrency

    replies = await gathered(
        store,
        path,
        store._decide(change_and_fail),
        store._decide(lane),
        store.enqueue([job(1)]),
    )
    assert isinstance(replies[0], LookupError)
    assert replies[1] is None
    assert told == [("main", None)]
    assert await count(store, "dead") == 0
    assert await store._decide(lane) is None
    await assert_clean(store)


async def test_refused_definition_is_not_remembered_by_later_calls_of_its_group(
    store: SqliteStore, path: Path
) -> None:
    gate = Slots("door", 1)
    use = GateUse(name="door", template="door", shared=True)
    declare = DeclareGate(spec=gate)
    refused = DefineRequest(items=(declare,), author="me", revision=99)
    replies = await gathered(
        store, path, store.define(refused), store.enqueue([job(1, gates=(use,))])
    )
    assert isinstance(replies[1], UnknownGate)
    await store.define(DefineRequest(items=(declare,), author="me"))
    assert (await store.enqueue([job(1, gates=(use,))]))[0].created
    assert [one.name for one in (await store.read(GatesQuery())).rows] == ["door"]


async def test_definition_rolled_back_after_it_was_read_is_read_again(
    store: SqliteStore,
) -> None:
    def declare_and_fail(ledger: SqliteLedger) -> None:
        ledger.gates.save_template(TemplateRow(spec=Slots("door", 1)))
        assert ledger.gates.templates()["door"].spec.capacity == 1
        raise LookupError

    with pytest.raises(LookupError):
        await store._decide(declare_and_fail)
    again = TemplateRow(spec=Slots("door", 2))
    await store._decide(lambda ledger: ledger.gates.save_template(again))
    told = await store._decide(lambda ledger: ledger.gates.templates()["door"].spec.capacity)
    assert told == 2


async def test_same_job_from_two_callers_of_a_group_is_created_once(
    store: SqliteStore, path: Path
) -> None:
    replies = await gathered(store, path, *(store.enqueue([job(1, key="k")]) for _ in range(5)))
    assert sorted(reply[0].created for reply in replies) == [False] * 4 + [True]  # type: ignore[index]
    conflict = await gathered(
        store, path, store.enqueue([job(2)]), store.enqueue([job(2, args=b'{"other":1}')])
    )
    assert sorted(type(reply) is IdConflict for reply in conflict) == [False, True]
    assert await count(store, "waiting") == 2


async def test_sqlite_failure_inside_a_group_writes_nothing_of_it(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit itself fails: no call of the group may be reported as done."""
    await store.enqueue([job(0)])

    def broken(self: Session) -> bool:
        self.db.execute("INSERT INTO job (seq) VALUES (1)")
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(Session, "commit", broken)
        replies = await gathered(store, path, *(store.enqueue([job(n)]) for n in range(1, 4)))
    assert all(isinstance(reply, Exception) for reply in replies)
    assert await count(store, "waiting") == 1
    assert (await store.enqueue([job(1)]))[0].created


async def test_step_that_writes_nothing_costs_no_commit(
    store: SqliteStore, path: Path, clock: FakeClock
) -> None:
    await store.enqueue([job(0)])
    run = (await claim(store)).jobs[0]
    await succeed(store, [(run.id, run.run)])
    before = (path.with_name(f"{path.name}-wal")).read_bytes()
    clock.advance(5)
    assert (await claim(store, request=2)).jobs == []
    assert (path.with_name(f"{path.name}-wal")).read_bytes() == before


async def test_bulk_waits_behind_later_calls(path: Path) -> None:
    """A beat or a claim does not wait for bulk operations that were queued before it."""
    store = SqliteStore(options(path))
    order: list[str] = []

    async def note(name: str, asked: object) -> None:
        await asked  # type: ignore[misc]
        order.append(name)

    with door_shut(path):
        bulk = [
            asyncio.ensure_future(note("bulk", store.enqueue(jobs(n * 1000, 1000))))
            for n in range(12)
        ]
        await one_turn()
        late = asyncio.ensure_future(note("claim", claim(store, n=1)))
        await one_turn()
    await asyncio.gather(*bulk, late)
    assert order[0] == "claim"
    assert await count(store, "waiting") == 12_000
    await store.close()


async def test_beats_go_before_all_other_waiting_calls(store: SqliteStore, path: Path) -> None:
    await store.enqueue(jobs(0, 1))
    order: list[str] = []

    async def noted(what: str, asked: Awaitable[object]) -> None:
        await asked
        order.append(what)

    signals = (
        Signal(key="k", event=f"e{n}", kind=SignalKind.NOTE, label="x") for n in range(3_000)
    )
    others = [noted("signal", store.signal(one)) for one in signals]
    others += [noted("claim", claim(store)), noted("sweep", store.sweep(500))]
    others += [noted("bulk", store.enqueue(jobs(100, 500)))]
    beat = store.beat(BeatRequest(worker="w", lease_ms=30_000))
    await gathered(store, path, *others, noted("beat", beat))
    assert len(order) == 3_004
    assert order[0] == "beat"


async def test_beat_during_a_commit_waits_only_for_that_group(
    store: SqliteStore, path: Path
) -> None:
    order: list[str] = []

    def plain(ledger: SqliteLedger) -> None:
        if not order:
            store._writer.queue.submit(Call(lambda _: order.append("beat"), urgent=True))
        order.append("signal")

    await gathered(store, path, *(store._decide(plain) for _ in range(4 * GROUP_CALLS)))
    assert order.index("beat") <= GROUP_CALLS


def bulk_call(verb: Callable[[SqliteLedger], None], *, first: int) -> Call[None]:
    return Call(verb, jobs=jobs(first, 1_000))


@pytest.fixture
def one_call_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each group hold one call, as if a call took longer than a group's time limit."""
    monkeypatch.setattr(writer, "GROUP_SECONDS", -1.0)


@pytest.mark.usefixtures("one_call_a_group")
async def test_call_during_bulk_waits_for_one_group_of_it(store: SqliteStore, path: Path) -> None:
    order: list[str] = []

    def bulk(_: SqliteLedger) -> None:
        if not order:
            store._writer.queue.submit(Call(lambda _: order.append("claim")))
        order.append("bulk")

    calls = (store._ask(store._writer.queue, bulk_call(bulk, first=n * 1_000)) for n in range(4))
    await gathered(store, path, *calls)
    assert order == ["bulk", "claim", "bulk", "bulk", "bulk"]


@pytest.mark.usefixtures("one_call_a_group")
@pytest.mark.parametrize("urgent", [False, True])
async def test_bulk_is_stored_however_many_calls_there_are(
    store: SqliteStore, path: Path, urgent: bool
) -> None:
    order: list[str] = []

    def plain(_: SqliteLedger) -> None:
        order.append("claim")
        if order.count("bulk") < 3 and len(order) < 20:
            store._writer.queue.submit(Call(plain, urgent=urgent))

    calls = (
        store._ask(store._writer.queue, bulk_call(lambda _: order.append("bulk"), first=n * 1_000))
        for n in range(3)
    )
    await gathered(store, path, store._decide(plain), *calls)
    assert order[:6] == ["claim", "bulk"] * 3


@pytest.mark.usefixtures("one_call_a_group")
async def test_calls_without_time_keep_their_order(store: SqliteStore, path: Path) -> None:
    order: list[int] = []

    def noted(number: int) -> Call[None]:
        return Call(lambda _: order.append(number))

    await gathered(store, path, *(store._ask(store._writer.queue, noted(n)) for n in range(5)))
    assert order == list(range(5))


@pytest.mark.usefixtures("one_call_a_group")
async def test_calls_without_time_after_a_failed_one_are_served_later(
    store: SqliteStore, path: Path
) -> None:
    order: list[int] = []

    def fail(_: SqliteLedger) -> None:
        raise LookupError

    calls = (store._decide(lambda _, n=n: order.append(n)) for n in range(3))
    async with asyncio.timeout(LIMIT):
        failed, *_ = await gathered(store, path, store._decide(fail), *calls)
    assert isinstance(failed, LookupError)
    assert order == list(range(3))


async def test_enqueues_of_a_group_are_stored_together_up_to_the_largest_batch(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def noted(ledger: SqliteLedger, given: Sequence[NewJob]) -> list[Sent]:
        sizes.append(len(given))
        return enqueue(ledger, given)

    monkeypatch.setattr(writer, "enqueue", noted)
    monkeypatch.setattr(call_queue, "MOST_JOBS", MAX_BATCH)
    await gathered(
        store, path, *(store.enqueue(jobs(first, 400)) for first in range(0, 1_200, 400))
    )
    assert sizes == [800]
    assert await count(store, "waiting") == 1_200


def test_only_calls_submitted_before_the_limit_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = CallQueue("never-started", lambda _: True, lambda: None)
    calls: list[Call[None]] = []
    for at in (1.0, 2.0, 3.0):
        monkeypatch.setattr(call_queue, "monotonic", lambda at=at: at)
        calls.append(Call(lambda _: None))
    queue._calls.extend(calls)
    refused = StoreUnavailable("late")
    queue.give_up(2.0, refused)
    assert [call.error for call in calls] == [refused, None, None]
    assert queue.take(9) == calls[1:]


@pytest.mark.usefixtures("one_call_a_group")
async def test_enqueues_stored_together_are_not_stored_again_when_time_is_over(
    store: SqliteStore, path: Path
) -> None:
    first, _, last = await gathered(
        store,
        path,
        store.enqueue([job(1)]),
        store._decide(lambda _: None),
        store.enqueue([job(2)]),
    )
    assert [one.created for one in (*first, *last)] == [True, True]  # type: ignore[misc]


async def test_wakes_are_sent_after_the_commit(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def announce(commit: int, _: object) -> None:
        told.append((commit, number(path, WAKES)))

    monkeypatch.setattr(store._writer, "_announce", announce)
    await store.enqueue([job(1)])
    await store.enqueue([job(2)])
    assert len(told) == 2
    assert all(commit == seen for commit, seen in told)


@pytest.mark.parametrize(
    ("many", "size", "bulk"), [(1, 10, False), (17, 10, True), (1, 70_000, True), (7, 9_000, False)]
)
def test_bulk_is_many_jobs_or_much_to_write(many: int, size: int, bulk: bool) -> None:
    args = b'{"a":"' + b"x" * (size - 8) + b'"}'
    call: Call[None] = Call(lambda _: None, jobs=[job(n, args=args) for n in range(many)])
    assert (call.rank == BULK) is bulk
