"""On PostgreSQL an operation makes as many round trips for a thousand jobs as for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from headway.contract.claims import Claimed, ClaimReply, ClaimRequest, SweepReply
from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DeclareLane,
    DefineRequest,
    LaneSpec,
    OpenGate,
    SetGate,
)
from headway.contract.operate import ActRequest, Verb
from headway.contract.outcomes import Died, Failed, KnownAs, Returned, Succeeded, Verdict
from headway.contract.signals import Signal as Event
from headway.contract.signals import SignalKind, SignalResult
from headway.contract.views import (
    AuditQuery,
    FlowsQuery,
    GatesQuery,
    JobsQuery,
    LanesQuery,
    Page,
    Query,
    StatsQuery,
    WaitingFlow,
    WorkersQuery,
)
from headway.core.cascade import CANDIDATE
from headway.core.errors import InvalidState, UnknownGate
from headway.core.flow import Order
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import MAX_BATCH, JobPolicy, NewJob, derived_id
from headway.core.state import FINAL, State
from headway.stores.ledger.verbs.sweep import LANES
from headway.stores.postgres import low_water_marks
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.link import Link
from headway.stores.postgres.session import lock_key
from headway.stores.postgres.statement import Mode
from headway.stores.postgres.store import PostgresStore
from headway.stores.postgres.tables.job_statements import HEADS
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.jobs import use_of
from tests.scale.trips import (
    LANE,
    LINES,
    LOCK,
    ONE,
    PACE,
    PHONE,
    Site,
    at_once,
    counting,
    final,
    handed,
    settle_at_once,
    signal_at_once,
    site,
)
from tests.servers.stores import NewUrl

SIZES = [1, 20, 100, pytest.param(1_000, marks=pytest.mark.slow)]
Work = Callable[[], Awaitable[Any]]


@pytest_asyncio.fixture
async def here(new_url: NewUrl) -> AsyncIterator[Site]:
    async with site(new_url("postgresql")) as made:
        # Names that every process learns once.
        await made.worker.settle(*map(handed, await made.running(2, LOCK)))
        jobs = await made.awaiting(2, LINES)
        await signal_at_once(made.store, [final(job) for job in jobs])
        first = await made.with_followers(2)
        await made.worker.settle(*(Succeeded(job.id, job.run) for job in first))
        second = await made.take(2)
        await made.worker.settle(*(Failed(job.id, job.run, error="busy") for job in second))
        yield made
        assert not (await made.store.read(AuditQuery())).differences


async def trips(work: Work) -> int:
    with counting() as told:
        await work()
    return told.n


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("gate", [LINES, LOCK], ids=["shared", "keyed"])
async def test_simultaneous_signals_are_a_few_steps(here: Site, n: int, gate: Any) -> None:
    jobs = await here.awaiting(n, gate)
    replies: list[Any] = []

    async def work() -> None:
        replies.extend(await signal_at_once(here.store, [final(job) for job in jobs]))

    # Begin and read, then write; 256 signals share a step.
    assert await trips(work) <= 2 * (1 + n // 256)
    assert {reply.answer for reply in replies} == {SignalResult.APPLIED}


@pytest.mark.parametrize("n", SIZES)
async def test_signals_under_the_jobs_own_references_are_a_few_steps(here: Site, n: int) -> None:
    jobs = await here.awaiting(n, LOCK)
    events = [Event(key=f"{job.id}:{job.run}", event="end") for job in jobs]
    assert await trips(lambda: signal_at_once(here.store, events)) <= 2 * (1 + n // 256)


async def test_first_of_many_events_of_a_job_is_recognised_again(here: Site) -> None:
    (job,) = await here.awaiting(1)
    notes = [Event(key=f"key-{job.id}", event=f"note-{n}", kind=SignalKind.NOTE) for n in range(40)]
    await signal_at_once(here.store, notes)
    replies = await signal_at_once(here.store, notes)
    assert [reply.answer for reply in replies] == [SignalResult.ALREADY] * len(notes)


@pytest.mark.parametrize("n", SIZES)
async def test_simultaneous_notes_are_a_few_steps(here: Site, n: int) -> None:
    jobs = await here.awaiting(n)
    notes = [Event(key=f"key-{job.id}", event="note", kind=SignalKind.NOTE) for job in jobs]
    assert await trips(lambda: signal_at_once(here.store, notes)) <= 2 * (1 + n // 256)


@pytest.mark.parametrize("n", SIZES)
async def test_signals_that_nothing_awaits_are_kept_in_a_few_steps(here: Site, n: int) -> None:
    notes = [Event(key=f"nobody-{one}", event="end") for one in range(n)]
    assert await trips(lambda: signal_at_once(here.store, notes)) <= 4 * (1 + n // 256)


@pytest.mark.parametrize("n", SIZES)
async def test_hand_overs_of_one_request_are_one_step(here: Site, n: int) -> None:
    jobs = await here.running(n, LOCK)
    assert await trips(lambda: here.worker.settle(*map(handed, jobs))) <= 4


@pytest.mark.parametrize("n", SIZES)
async def test_gates_of_awaiting_jobs_are_not_read(here: Site, n: int) -> None:
    jobs = await here.running(n, LINES)
    assert await trips(lambda: here.worker.settle(*map(handed, jobs))) <= 3
    returned = [Returned(job.id, job.run) for job in jobs]
    assert await trips(lambda: here.worker.settle(*returned)) == 2


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("how", ["a cancel", "an early signal", "another outcome"])
async def test_hand_overs_after_which_jobs_end_are_one_step(here: Site, n: int, how: str) -> None:
    n = min(n, MAX_BATCH // 2)
    await here.add([here.new(here.use(LOCK), key=f"key {one}") for one in range(n)])
    jobs = await here.take(n)
    if how == "a cancel":
        ids = tuple(job.id for job in jobs)
        ask = ActRequest(request="c", ids=ids, verb=Verb.CANCEL, author="ann", reason="a drill")
        await here.store.act(ask)
    elif how == "an early signal":
        await signal_at_once(here.store, [final(job) for job in jobs])
    outcomes: list[Any] = [*map(handed, jobs)]
    if how == "another outcome":
        outcomes += [Died(job.id, job.run) for job in jobs]
    assert await trips(lambda: here.worker.settle(*outcomes)) <= 6
    assert (await here.store.read(JobsQuery(ids=(jobs[0].id,)))).rows[0].state in FINAL


@pytest.mark.parametrize("n", SIZES)
async def test_gates_without_waiters_are_opened_together(here: Site, n: int) -> None:
    gates = [here.use(LOCK).name for _ in range(n)]

    async def change(*items: CloseGate | OpenGate) -> None:
        await here.store.define(DefineRequest(items=items, author="ann", reason="a drill"))

    await change(*(CloseGate(name=gate, until_at=None, reason="") for gate in gates))
    opened = [OpenGate(name=gate) for gate in gates]
    assert await trips(lambda: change(*opened)) <= 6


@pytest.mark.parametrize("n", SIZES)
async def test_shared_gates_are_declared_together(here: Site, n: int) -> None:
    """Existing declarations are read once, not again for each gate."""
    items = tuple(DeclareGate(spec=Slots(f"declared {one}", 1)) for one in range(n))
    request = DefineRequest(items=items, author="ann", reason="a drill")
    assert await trips(lambda: here.store.define(request)) <= 6


async def test_settlement_and_claim_at_keyed_gates_need_five_trips(here: Site) -> None:
    held, took = await here.with_followers(20, 5), list[int]()
    for _ in range(5):
        ended = here.worker.settle(*(Succeeded(job.id, job.run) for job in held))
        with counting() as told:
            _, reply = await at_once(here.store._turn_queue, (ended, here.worker.ask(20, LANE)))
        took.append(told.n)
        held = reply.jobs
        assert len(held) == 20
    # Both feed from each gate, and the jobs parked there are read once.
    assert took[2:] == [5, 5, 5]


async def test_first_parked_job_is_found_at_a_gate_with_spaces_in_its_name(here: Site) -> None:
    seat = Slots("a seat of:{phone}", 1)
    await here.declare(seat)
    use = here.use(seat, phone=1)
    await here.add([here.new(use)])
    await here.take(1)
    await here.add([here.new(use, priority=priority) for priority in (7, 3, 5)])
    await here.worker.ask(9, LANE)

    def look(ledger: PostgresLedger) -> tuple[Order | None, Order]:
        (flow,) = ledger.jobs.parked_flows(use.name, -1, 9)
        (head,) = ledger.jobs.parked_heads(use.name, flow, 1)
        return ledger.jobs.parked_order(use.name, flow), head.order

    (order, first), _ = here.store._turns.run(Mode.EXCLUSIVE, look)
    assert order == first
    assert first.priority == 3


async def test_many_reused_gates_are_read_with_the_begin(here: Site) -> None:
    locks = [here.use(LOCK) for _ in range(150)]
    took: list[int] = []
    for _ in range(4):
        await here.add([here.new(use) for use in locks])
        with counting() as told:
            reply = await here.worker.ask(len(locks), LANE)
        took.append(told.n)
        assert len(reply.jobs) == len(locks)
        await here.worker.settle(*(Succeeded(job.id, job.run) for job in reply.jobs))
    # Two steps must have read them.
    assert took[2:] == [2, 2]


@pytest.mark.parametrize("flows", [20, 300])
async def test_gate_with_many_waiting_flows_is_read_together(here: Site, flows: int) -> None:
    wide = Slots("wide:{phone}", 3)
    await here.declare(wide)
    use = here.use(wide, phone=1)
    await here.add([here.new(use) for _ in range(3)])
    held = await here.take(3)
    for one in range(flows):
        await here.add([here.new(use, tenant=f"t{one}") for _ in range(3)])
    while (await here.worker.ask(1, LANE)).again:
        pass
    took: list[int] = []
    for job in held:
        took.append(await trips(lambda job=job: here.worker.settle(Succeeded(job.id, job.run))))
        took.append(await trips(lambda: here.worker.ask(1, LANE)))
    assert max(took) <= 16, took


@pytest.mark.parametrize("flows", [3, 100])
async def test_claim_at_a_rate_finds_when_it_opens_for_different_amounts_together(
    here: Site, flows: int
) -> None:
    tokens = Rate("tokens:{phone}", 100_000, per="1m")
    await here.declare(tokens)
    use = here.use(tokens, phone=1)
    for amount in (700, 49_600, 49_600):
        await here.add([here.new(replace(use, amount=amount))])
        await here.take(1)
        here.clock.advance(1_000)

    async def claim() -> None:
        while (await here.worker.ask(1, LANE)).again:
            pass

    await here.add(
        [here.new(replace(use, amount=701 + one), tenant=f"t{one}") for one in range(flows)]
    )
    # The rate has room for 100, and each flow's job requests another amount.
    assert await trips(claim) <= 16
    assert (await here.store.read(StatsQuery())).counts["parked"] == flows
    # When its timer is due it has room for any one of them: the others are parked again.
    here.clock.advance(57_000)
    assert await trips(claim) <= 27
    assert (await here.store.read(StatsQuery())).counts["parked"] == flows - 1


@pytest.mark.parametrize("n", SIZES)
async def test_hand_overs_of_many_callers_share_steps(here: Site, n: int) -> None:
    jobs = await here.running(n, LINES)
    assert await trips(lambda: settle_at_once(here, map(handed, jobs))) <= 4 * (1 + n // 256)


@pytest.mark.parametrize("n", SIZES)
async def test_keys_added_by_many_callers_share_steps(here: Site, n: int) -> None:
    jobs = await here.awaiting(n)
    known = [KnownAs(job.id, job.run, key=f"sid-{job.id}") for job in jobs]
    assert await trips(lambda: settle_at_once(here, known)) <= 3 * (1 + n // 256)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("own", [True, False], ids=["a lock each", "one lock"])
async def test_claim_that_parks_reads_more_heads_each_round(here: Site, n: int, own: bool) -> None:
    locks = [here.use(LOCK) for _ in range(n)]
    uses = locks if own else locks[:1] * n
    await here.add([here.new(use) for use in locks])
    assert len(await here.take(n)) == n
    await here.add([here.new(use) for use in uses])

    async def park() -> None:
        while (await here.worker.ask(1, LANE)).again:
            pass

    # A round writes and the next one reads in one trip, and each reads four times as many heads.
    assert await trips(park) <= 16
    assert (await here.store.read(StatsQuery())).counts["parked"] == n


async def test_one_of_many_flows_parks_its_jobs_in_few_rounds(here: Site) -> None:
    await here.add([here.new(here.use(LOCK), tenant="others")])
    busy = here.use(LOCK)
    await here.store.define(DefineRequest(items=(CloseGate(name=busy.name),), author="test"))
    await here.add([here.new(busy, tenant="busy") for _ in range(300)])
    await here.add([here.new(here.use(LOCK), tenant=f"t{n % 40}") for n in range(400)])

    async def claim() -> None:
        await here.worker.ask(10, LANE)

    assert await trips(claim) <= 25
    assert (await here.store.read(StatsQuery())).counts["parked"] == 300


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("own", [True, False], ids=["a lock each", "one lock"])
async def test_jobs_that_wait_for_their_other_gate_are_parked_there_together(
    here: Site, n: int, own: bool
) -> None:
    both = [[here.use(LOCK), here.use(PACE)] for _ in range(n if own else 1)]
    await here.add([here.new(*one) for one in both])
    first = await here.take(len(both))
    await here.add([here.new(*one) for _ in range(2 if own else n + 1) for one in both])

    async def park() -> None:
        while (reply := await here.worker.ask(1, LANE)).again:
            assert not reply.jobs

    await park()
    await here.worker.settle(*(Succeeded(job.id, job.run) for job in first))
    # Each lock is free, its pace is not: the first job is parked there, and the others follow it.
    # A round reads four times as many heads as the one before; a thousand jobs need two claims.
    assert await trips(park) <= (14 if n < 1_000 else 50)
    page = await here.store.read(JobsQuery(states=(State.PARKED,), limit=1_000))
    assert {(job.parked_at or "").partition(":")[0] for job in page.rows} == {"pace"}


@pytest.mark.parametrize("n", SIZES)
async def test_settlement_at_keyed_locks_with_followers_is_one_step(here: Site, n: int) -> None:
    jobs = await here.with_followers(n)
    ended = [Succeeded(job.id, job.run) for job in jobs]
    # A worker whose last settlement needed no turn starts without it, once.
    assert await trips(lambda: here.worker.settle(*ended)) <= 8
    followers = await here.take(n)
    assert len(followers) == n
    again = [Failed(job.id, job.run, error="busy") for job in followers]
    assert await trips(lambda: here.worker.settle(*again)) <= 4


@pytest.mark.parametrize("n", SIZES)
async def test_claim_of_followers_with_tickets_is_a_few_trips(here: Site, n: int) -> None:
    first = await here.with_followers(n, 3)
    await here.worker.settle(*(Succeeded(job.id, job.run) for job in first))
    taken: list[Claimed] = []

    async def work() -> None:
        taken.extend((await here.worker.ask(n, LANE)).jobs)

    # Heads, their gates, the jobs parked there, and the writes; many heads in two rounds.
    assert await trips(work) <= (5 if n < 1_000 else 7)
    assert len(taken) == n
    ended = here.worker.settle(*(Succeeded(job.id, job.run) for job in taken))
    calls = ended, here.worker.ask(n, LANE)
    with counting() as told:
        verdicts, reply = await at_once(here.store._turn_queue, calls)
    assert (verdicts, len(reply.jobs)) == ([Verdict.DONE] * n, n)
    assert told.n <= 7


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("busy", [0, 1, 9], ids=["all free", "the first is busy", "one is free"])
async def test_claim_of_cascades_reads_candidates_together(here: Site, n: int, busy: int) -> None:
    names = [[f"ann-{job}-{one}" for one in range(10)] for job in range(n)]
    await here.add([here.new(use_of(PHONE, name=one)) for own in names for one in own[:busy]])
    assert len(await here.take(n * busy)) == n * busy
    use = use_of(PHONE, name=CANDIDATE)
    await here.add(
        [here.new(use, candidates=tuple(own), policy=JobPolicy(cascade=True)) for own in names]
    )
    taken: list[Claimed] = []

    async def work() -> None:
        taken.extend((await here.worker.ask(n, LANE)).jobs)

    # Each further read fetches four times as many candidates.
    assert await trips(work) <= (7 if n < 1_000 else 8)
    assert [one.candidate for one in taken] == [own[busy] for own in names]


@pytest.mark.parametrize("n", SIZES)
async def test_claim_and_sweep_check_ended_keyed_rates_together(here: Site, n: int) -> None:
    jobs = await here.running(n, PACE)
    await here.worker.settle(*(Succeeded(job.id, job.run) for job in jobs))
    here.clock.advance(360_000)
    await here.worker.beat()
    assert await trips(lambda: here.worker.ask(1, LANE)) <= 12
    assert await trips(lambda: here.store.sweep(1_000)) <= 24


@pytest.mark.parametrize("n", SIZES)
async def test_claim_at_a_shared_gate_promotes_due_jobs_in_its_two_trips(
    here: Site, n: int
) -> None:
    def scheduled(after_ms: int) -> list[NewJob]:
        due_at = here.clock() + after_ms
        return [here.new(here.use(LINES), due_at=due_at) for _ in range(n)]

    first, second = scheduled(1_000), scheduled(2_000)
    await here.add([*first, *second])
    here.clock.advance(1_000)
    await here.take(n)
    here.clock.advance(1_000)
    replies: list[ClaimReply] = []

    async def work() -> None:
        replies.append(await here.worker.ask(n, LANE))

    assert await trips(work) == 2
    assert [one.id for one in replies[0].jobs] == [one.id for one in second]


@pytest.mark.parametrize("n", [1, 20, 100])
async def test_sweep_promotes_in_many_lanes_together(here: Site, n: int) -> None:
    due_at = here.clock() + 1_000
    jobs = [here.new(due_at=due_at).changed(lane=f"lane-{lane}") for lane in range(n)]
    await here.add(jobs)
    await here.store.sweep(1_000)
    here.clock.advance(1_000)
    replies: list[SweepReply] = []

    async def work() -> None:
        replies.append(await here.store.sweep(1_000))

    assert await trips(work) <= 12
    assert replies[0].promoted == min(n, LANES)


@pytest.mark.parametrize("n", SIZES)
async def test_sweep_handles_many_dead_workers_together(here: Site, n: int) -> None:
    await here.running(n, LOCK)
    here.clock.advance(60_000)
    replies: list[SweepReply] = []

    async def work() -> None:
        replies.append(await here.store.sweep(1_000))

    # The first sweep of a process first checks without the lock.
    assert await trips(work) <= 28
    # Two failed jobs are due again by now; they count towards the thousand.
    assert (replies[0].promoted, replies[0].lost) == (2, min(n, 998))


@pytest.mark.parametrize("n", SIZES)
async def test_sweep_asks_providers_of_many_tenants_together(here: Site, n: int) -> None:
    policy = JobPolicy(reconcile="ask", reconcile_within_ms=9_000)
    await here.add([here.new(tenant=f"t-{place}", policy=policy) for place in range(n)])
    taken = await here.take(n)
    await here.worker.settle(*(replace(handed(job), timeout_ms=1_000) for job in taken))
    here.clock.advance(1_000)
    replies: list[SweepReply] = []

    async def work() -> None:
        replies.append(await here.store.sweep(1_000))

    assert await trips(work) <= 28
    assert replies[0].deadlines == n


@pytest.mark.parametrize("n", SIZES)
async def test_new_flows_are_created_together(here: Site, n: int) -> None:
    jobs = [here.new(tenant=f"new-{next(here.numbers)}") for _ in range(n)]
    assert await trips(lambda: here.store.enqueue(jobs)) <= 5


@pytest.mark.parametrize("n", SIZES)
async def test_new_lanes_are_created_together_and_read_together_by_their_first_claim(
    here: Site, n: int
) -> None:
    jobs = [here.new().changed(lane=f"new-{next(here.numbers)}") for _ in range(n)]
    assert await trips(lambda: here.store.enqueue(jobs)) <= 10
    ids = tuple(job.id for job in jobs[:-1])
    verb = Verb.CANCEL
    await here.store.act(ActRequest(verb=verb, ids=ids, author="ann", request=f"drill-{n}"))
    claimed: list[str] = []

    async def work() -> None:
        lanes = tuple((job.lane, 1) for job in jobs)
        request = ClaimRequest(worker="w" * 32, request=1, lanes=lanes, order="strict", n=1, free=1)
        claimed.extend(one.id for one in (await here.store.claim(request)).jobs)

    # Flows are read for 1, 2, 4 and so on of the lanes.
    assert await trips(work) <= 22
    assert claimed == [jobs[-1].id]


@pytest.mark.parametrize("n", [1, 20, 100])
@pytest.mark.parametrize("gate", [LINES, None], ids=["gated", "plain"])
async def test_claims_from_many_lanes_read_them_together(
    here: Site, n: int, gate: Slots | None
) -> None:
    gates = () if gate is None else (here.use(gate),)
    lanes = [f"lane-{one}" for one in range(n)]
    await here.add([here.new(*gates).changed(lane=lane) for lane in lanes for _ in range(4)])

    async def work(number: int) -> None:
        places = tuple((lane, 1) for lane in lanes)
        # More than there are: each lane is examined again for what others leave over.
        most = 4 * n if number == 4 else n
        request = ClaimRequest(worker="w" * 32, request=number, lanes=places, n=most, free=most)
        reply = await here.store.claim(request)
        assert sorted(one.lane for one in reply.jobs) == sorted(lanes)

    for number in (1, 2):
        await work(number)
    for number in (3, 4):
        assert await trips(lambda number=number: work(number)) <= 3
    assert not (await here.store.read(AuditQuery())).differences


@pytest.mark.parametrize("n", [1, 20, 100])
@pytest.mark.parametrize("fair", ["tenant", None])
async def test_claims_from_many_lanes_with_new_tenants_read_them_together(
    here: Site, n: int, fair: Literal["tenant"] | None
) -> None:
    line = here.use(LINES)
    lanes = [f"lane-{one}" for one in range(n)]
    specs = [DeclareLane(spec=LaneSpec(name=lane, fair=fair)) for lane in lanes]
    await here.store.define(DefineRequest(items=tuple(specs), author="ann"))

    async def work(number: int) -> None:
        request = ClaimRequest(
            worker="w" * 32,
            request=number,
            lanes=tuple((lane, 1) for lane in lanes),
            n=2 * n,
            free=2 * n,
        )
        assert len((await here.store.claim(request)).jobs) == 2 * n

    for number in range(1, 5):
        jobs = [
            here.new(line, tenant=f"{lane}-{number}-{one}").changed(lane=lane)
            for lane in lanes
            for one in range(2)
        ]
        await here.add(jobs)
        # The flows are read of one lane, two, four and so on; so are their heads.
        most = 48 if number == 1 else 13
        assert await trips(lambda number=number: work(number)) <= most
    assert not (await here.store.read(AuditQuery())).differences


@pytest.mark.parametrize("n", SIZES)
async def test_operators_moves_are_one_step(here: Site, n: int) -> None:
    uses: list[GateUse] = [here.use(LOCK) for _ in range(n)]
    jobs: list[NewJob] = [here.new(use, key=f"key-{use.name}") for use in uses]
    await here.add(jobs)
    for verb in (Verb.CANCEL, Verb.RETRY):
        request = ActRequest(
            verb=verb,
            ids=tuple(job.id for job in jobs),
            author="ann",
            reason="a drill",
            request=f"{verb}-{n}",
        )
        assert await trips(lambda request=request: here.store.act(request)) <= 8


@pytest.mark.parametrize("n", SIZES)
async def test_page_of_jobs_is_read_together(here: Site, n: int) -> None:
    await here.add([here.new() for _ in range(n)])
    found: list[int] = []

    async def work() -> None:
        query = JobsQuery(newest=True, limit=n, runs=True, trail=True)
        found.append(len((await here.store.read(query)).rows))

    assert await trips(work) <= 12
    assert found == [n]


@pytest.mark.parametrize("n", [1, 20, 100])
async def test_page_of_flows_is_read_together(here: Site, n: int) -> None:
    use = here.use(LOCK)
    tenants = [f"t{flow}" for flow in range(n)]
    await here.add([here.new(use, tenant=one) for one in (*tenants, *tenants)])
    while (await here.worker.ask(1, LANE)).again:
        pass
    await here.add([here.new(tenant=one) for one in tenants])
    pages: list[Page[WaitingFlow]] = []

    async def work(query: FlowsQuery) -> None:
        pages.append(await here.store.read(query))

    assert await trips(lambda: work(FlowsQuery(lane=LANE, first=5))) <= 6
    assert await trips(lambda: work(FlowsQuery(gate=use.name, first=5))) <= 6
    assert [len(page.rows) for page in pages] == [n, n]


@pytest.mark.parametrize("n", [1, 20, 100])
async def test_lanes_gates_and_workers_are_read_together(here: Site, n: int) -> None:
    await here.declare(Pool("numbers:{phone}", {f"n{one}": 1 for one in range(n)}))
    await here.with_followers(n)
    locks = [one.name for one in (await here.store.read(GatesQuery(parked=True))).rows]
    for one in range(n):
        jobs = [here.new().changed(lane=f"lane{one}") for _ in range(2)]
        await here.store.enqueue(jobs)
        asked = ClaimRequest(
            worker=f"{one:032}", request=1, lanes=((f"lane{one}", 1),), n=1, free=1
        )
        assert len((await here.store.claim(asked)).jobs) == 1

    async def looked(query: Query[Any], most: int) -> Any:
        with counting() as told:
            found = await here.store.read(query)
        assert told.n <= most, query
        return found

    lanes = await looked(LanesQuery(), 8)
    assert sum(one.oldest_due_at is not None for one in lanes) == n
    gates = (await looked(GatesQuery(names=tuple(locks)), 6)).rows
    assert {(len(one.holders), one.used, one.parked) for one in gates} == {(1, 1, 1)}
    assert len((await looked(GatesQuery(limit=100), 8)).rows) == min(100, n + 7)
    (pool,) = (await looked(GatesQuery(names=("numbers:1",)), 6)).rows
    assert len(pool.members) == n
    workers = await looked(WorkersQuery(), 4)
    assert sorted(one.running for one in workers if one.id.isdigit()) == [1] * n
    assert not (await looked(AuditQuery(), 12)).differences


@pytest.mark.parametrize("n", SIZES)
async def test_audit_counts_the_starts_of_rates_together(here: Site, n: int) -> None:
    await here.declare(PACE)
    jobs = [here.new(here.use(PACE)) for _ in range(n)]
    await here.add(jobs)
    assert len(await here.take(n)) == n

    async def work() -> None:
        assert not (await here.store.read(AuditQuery())).differences

    assert await trips(work) <= 12


async def test_refused_signal_fails_alone(here: Site) -> None:
    jobs = await here.awaiting(8, LINES)
    events = [final(job) for job in jobs]
    bad = Event(
        key=f"key-{jobs[3].id}",
        event="bad",
        decided=events[0].decided.RETRY,
        stage="later",
        gates=(GateUse(name="nowhere", template="nowhere", amount=1, hold="settled", shared=True),),
    )
    events[3] = bad
    replies = await asyncio.gather(
        *(here.store.signal(event) for event in events), return_exceptions=True
    )
    assert isinstance(replies[3], UnknownGate)
    others = [reply for place, reply in enumerate(replies) if place != 3]
    assert [getattr(reply, "answer", reply) for reply in others] == [SignalResult.APPLIED] * 7


@pytest.mark.parametrize("n", [1, 3, 20, 100])
async def test_claim_at_a_shared_gate_is_two_trips_whatever_its_size(here: Site, n: int) -> None:
    await here.add([here.new(here.use(LINES)) for _ in range(110)])
    await here.take(10)
    assert await trips(lambda: here.worker.ask(n, LANE)) == 2


async def test_claims_that_empty_a_flow_read_from_its_mark_need_no_further_trip(
    here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_water_marks, "LEAST", 1)
    await here.add([here.new(here.use(LINES)) for _ in range(8)])
    await here.take(2)
    replies: list[ClaimReply] = []

    async def work() -> None:
        replies.append(await here.worker.ask(2 if len(replies) < 2 else 4, LANE))

    took = [await trips(work) for _ in range(4)]
    assert [len(reply.jobs) for reply in replies] == [2, 2, 2, 0]
    # The last one looks without the lock once more than a later one, as its kind is new.
    assert took == [2, 2, 2, 2]
    assert await trips(work) == 1


@pytest.mark.parametrize("n", SIZES)
async def test_plain_successes_of_any_number_are_settled_in_one_trip(here: Site, n: int) -> None:
    await here.add([here.new() for _ in range(n + 1)])
    first, *jobs = await here.take(n + 1)
    await here.worker.settle(Succeeded(first.id, first.run))
    before = await here.store.read(StatsQuery())
    said = [Succeeded(job.id, job.run) for job in jobs]
    verdicts: list[Verdict] = []

    async def work() -> None:
        verdicts.extend(await here.worker.settle(*said))

    assert await trips(work) == 1
    assert verdicts == [Verdict.DONE] * n
    after = await here.store.read(StatsQuery())
    assert after.totals["succeeded"] == before.totals["succeeded"] + n
    assert after.counts["succeeded"] == before.counts["succeeded"] + n
    assert "running" not in after.counts
    # Repeated, as after a lost reply, it is reported as already done.
    assert await here.worker.settle(*said) == [Verdict.ALREADY] * n


async def test_already_settled_or_lost_success_does_not_stop_the_others(here: Site) -> None:
    await here.add([here.new() for _ in range(5)])
    first, *jobs = await here.take(5)
    await here.worker.settle(Succeeded(first.id, first.run))
    said = [Succeeded(job.id, job.run) for job in (first, *jobs[:2])]
    assert await here.worker.settle(*said) == [Verdict.ALREADY, Verdict.DONE, Verdict.DONE]
    said = [Succeeded(job.id, job.run + place) for place, job in enumerate(jobs[2:])]
    assert await here.worker.settle(*said) == [Verdict.DONE, Verdict.LOST]


async def test_successes_of_a_worker_with_an_expired_lease_are_lost(here: Site) -> None:
    await here.add([here.new() for _ in range(3)])
    first, *jobs = await here.take(3)
    await here.worker.settle(Succeeded(first.id, first.run))
    here.clock.advance(30_001)
    said = [Succeeded(job.id, job.run) for job in jobs]
    assert await here.worker.settle(*said) == [Verdict.LOST] * 2


async def test_success_of_a_gated_job_among_plain_ones_releases_its_permit(
    here: Site,
) -> None:
    await here.add([here.new() for _ in range(3)])
    first, *jobs = await here.take(3)
    await here.worker.settle(Succeeded(first.id, first.run))
    lock = here.use(LOCK)
    await here.add([here.new(lock), here.new(lock)])
    jobs += await here.take(1)
    said = [Succeeded(job.id, job.run) for job in jobs]
    assert await here.worker.settle(*said) == [Verdict.DONE] * 3
    assert len((await here.worker.ask(1, LANE)).jobs) == 1


async def at_one(here: Site, n: int) -> list[NewJob]:
    """Create jobs that run one at a time; the first one's settlement is known to need a turn."""
    await here.declare(ONE)
    made = [here.new(here.use(ONE)) for _ in range(n + 1)]
    await here.add(made)
    (held,) = await here.take(1)
    await here.worker.settle(Succeeded(held.id, held.run))
    return made[1:]


async def test_settlement_and_claim_of_a_process_are_one_step_of_two_trips(here: Site) -> None:
    jobs = await at_one(here, 4)
    (held,) = await here.take(1)
    took: list[int] = []
    for job in jobs[1:]:
        calls = here.worker.ask(1, LANE), here.worker.settle(Succeeded(held.id, held.run))
        with counting() as told:
            reply, verdicts = await at_once(here.store._turn_queue, calls)
        took.append(told.n)
        # Capacity freed by the settlement starts the next job, although the claim came first.
        assert (verdicts, [one.id for one in reply.jobs]) == (["done"], [job.id])
        (held,) = reply.jobs
    # The first step of this kind reads a lane's flows once more.
    assert took[1:] == [2, 2]


async def test_claim_shares_no_step_that_changes_what_it_has_read(here: Site) -> None:
    await here.add([here.new(here.use(LINES)) for _ in range(40)])
    took: list[int] = []
    for _ in range(3):
        jobs = await here.take(3)
        other = handed(jobs[0]), Failed(jobs[1].id, jobs[1].run, error="busy")
        calls = [here.worker.settle(one) for one in other] + [here.worker.ask(3, LANE)]
        with counting() as told:
            *verdicts, reply = await at_once(here.store._turn_queue, calls)
        took.append(told.n)
        assert (verdicts, len(reply.jobs)) == ([["done"]] * 2, 3)
        await here.worker.settle(handed(jobs[2]), *map(handed, reply.jobs))
    # The settlements alone take five trips, and a claim two.
    assert took[-1] <= 7


@pytest.mark.parametrize("flows", [20, 250])
async def test_claim_of_one_permit_among_many_flows(here: Site, flows: int) -> None:
    await here.add([here.new(here.use(LINES), tenant=f"t{n % flows}") for n in range(4 * flows)])
    one_line = SetGate(name=LINES.name, capacity=1)
    await here.store.define(DefineRequest(items=(one_line,), author="test"))
    took: list[int] = []
    for _ in range(4):
        jobs: list[Any] = []

        async def claim(jobs: list[Any] = jobs) -> None:
            jobs += (await here.worker.ask(10, LANE)).jobs

        took.append(await trips(claim))
        (one,) = jobs
        await here.worker.settle(Succeeded(one.id, one.run))
    # The first claim does not know which heads it will need, and reads them together.
    assert took[0] <= 6
    assert took[-1] <= 2


async def test_claim_after_a_small_one_reads_few_heads_of_many_flows(here: Site) -> None:
    for tenant in range(32):
        await here.add([here.new(here.use(LINES), tenant=f"t{tenant}") for _ in range(10)])
    await here.take(1)
    read: list[int] = []
    run = Link.run

    def watched(self: Link, batch: Sequence[Any]) -> Any:
        answers = run(self, batch)
        heads = [rows for (text, _), rows in zip(batch, answers, strict=True) if text == HEADS]
        read.extend(map(len, heads))
        return answers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "run", watched)
        assert len((await here.worker.ask(100, LANE)).jobs) == 100
    # The heads requested with the begin; later rounds read as many as their decisions need.
    assert read[0] <= 2 * 100 + 16 * 32


async def test_beats_of_workers_that_never_start_a_job_leave_nothing_behind(here: Site) -> None:
    options = here.store._options
    table = sql.Identifier(options.namespace, "word")
    words = sql.SQL("SELECT count(*) FROM {}").format(table)
    with psycopg.connect(options.conninfo, autocommit=True) as db:
        before = db.execute(words).fetchone()
        for n in range(20):
            await PlayedWorker(here.store, f"idle-{n}").beat()
        assert db.execute(words).fetchone() == before
    idle = PlayedWorker(here.store, "idle-1")
    assert await trips(idle.beat) == 2
    assert await trips(here.worker.beat) == 2


async def test_worker_without_a_free_handler_looks_without_the_lock(here: Site) -> None:
    await here.add([here.new(here.use(LINES)) for _ in range(6)])
    busy = PlayedWorker(here.store, "busy")
    await busy.beat()
    took: list[int] = []
    for _ in range(3):
        await here.take(1)
        took.append(await trips(lambda: busy.ask(1, LANE, free=0)))
    assert took[1:] == [1, 1]


async def test_claims_beside_a_refused_settlement_and_each_other_are_answered(here: Site) -> None:
    jobs = await at_one(here, 1)
    (held,) = await here.take(1)
    await here.add([here.new(here.use(LINES)) for _ in range(2)])
    other = PlayedWorker(here.store, "other")
    await other.beat()
    bad = Returned(held.id, held.run)
    calls = here.worker.ask(1, LANE), here.worker.settle(bad), other.ask(1, LANE)
    first, refused, second = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(refused, InvalidState)
    assert isinstance(first, ClaimReply)
    assert isinstance(second, ClaimReply)
    assert [len(reply.jobs) for reply in (first, second)] == [1, 1]
    assert [one.id for one in jobs] == [held.id]


async def test_first_claim_of_a_process_holds_the_lock_for_few_trips(here: Site) -> None:
    await here.add([here.new(here.use(LINES), here.use(LOCK)) for _ in range(20)])
    locked: list[int] = []
    run = Link.run

    def watched(self: Link, batch: Sequence[Any]) -> Any:
        texts = [text for text, _ in batch]
        if any("pg_advisory_xact_lock(" in text for text in texts):
            locked.append(0)
        if locked and self is store._turns.session.link:
            locked[-1] += 1
        return run(self, batch)

    store = PostgresStore(here.store._options, here.clock)
    try:
        cold = PlayedWorker(store, "cold")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Link, "run", watched)
            assert len((await cold.ask(20, LANE)).jobs) == 20
    finally:
        await store.close()
    # Begin, with the reads made before the lock; what the keyed gates need; write.
    assert len(locked) == 1
    assert locked[0] <= 4


async def test_first_sweep_of_a_process_takes_no_lock_if_nothing_is_due(here: Site) -> None:
    await here.running(2, LINES)
    await here.store.sweep(1_000)
    store = PostgresStore(here.store._options, here.clock)
    try:
        with psycopg.connect(here.store._options.conninfo) as other:
            key = lock_key(here.store._options.namespace)
            other.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
            # It would wait for the other transaction forever.
            reply = await asyncio.wait_for(store.sweep(1_000), 60)
        assert (reply.lost, reply.workers) == (0, 1)
    finally:
        await store.close()


async def test_refused_settlement_fails_alone(here: Site) -> None:
    jobs = await here.running(8, LINES)
    said: list[Any] = [handed(job) for job in jobs]
    said[5] = Returned(jobs[5].id, jobs[5].run)
    replies = await asyncio.gather(
        *(here.worker.settle(one) for one in said), return_exceptions=True
    )
    assert isinstance(replies[5], InvalidState)
    assert [reply for place, reply in enumerate(replies) if place != 5] == [["done"]] * 7


async def test_claim_that_returns_to_a_lane_reads_its_heads_together(here: Site) -> None:
    jobs = [
        NewJob(id=derived_id("two lanes", n), kind="k", lane="few" if n < 3 else "many")
        for n in range(203)
    ]
    jobs = [job.changed(tenant=f"tenant-{n}") for n, job in enumerate(jobs)]
    await here.store.enqueue(jobs)
    lanes = (("many", 1), ("few", 1))
    ask = ClaimRequest(worker="w" * 32, request=1, lanes=lanes, n=20, free=20)
    # The shares of the lanes are 10 and 10; `few` leaves 7 of its share to `many`.
    assert await trips(lambda: here.store.claim(ask)) <= 40
