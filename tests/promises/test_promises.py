"""The fourteen promises of the model, each under its own sentence, on every store."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from random import Random

import pytest

from headway.contract.claims import Claimed
from headway.contract.definitions import (
    CloseGate,
    DeclareEntry,
    EntrySpec,
    FireRequest,
    SetGate,
)
from headway.contract.operate import Acted, Verb
from headway.contract.outcomes import (
    Closing,
    Died,
    Failed,
    HandedOver,
    Outcome,
    Released,
    Returned,
    Snoozed,
    Succeeded,
    Verdict,
)
from headway.contract.signals import Decided, Signal, SignalKind, SignalResult
from headway.contract.views import StatsQuery, TimetableQuery
from headway.core.gates.hours import hours_spec
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateKind, GateSpec
from headway.core.job import FollowUp
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.core.timetable.fires import MisfirePolicy, fires_between
from headway.core.timetable.schedule import Cron
from headway.stores import open_store
from headway.testing.conformance.rig import AUTHOR, REASON, Rig, dial, for_candidate, policy_with
from headway.testing.conformance.worker import LEASE_MS
from headway.testing.dump import every_job
from headway.testing.jobs import use_of
from tests.servers.stores import DURABLE, NewUrl

LINE = Slots("line", 3)
REPO = Slots("repo:{url}", 1)
NUMBERS = Pool("numbers", {"a": 2, "b": 1})
TWILIO = Rate("rate:twilio", 4, "5s")
TIRELESS = policy_with(retry=RetryPolicy(attempts=10**6, base_ms=1, jitter="none"))


@pytest.mark.parametrize("kind", DURABLE)
def test_1_an_enqueue_that_was_acknowledged_is_never_lost(new_url: NewUrl, kind: str) -> None:
    url = new_url(kind)
    command = [sys.executable, "-m", "tests.promises.producer", url]
    acknowledged: list[str] = []
    for kill_after in (3, 40, 100):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as producer:
            assert producer.stdout is not None
            for line in producer.stdout:
                acknowledged.append(line.strip())
                if len(acknowledged) % 1000 >= kill_after:
                    producer.kill()
                    break
            acknowledged += [line.strip() for line in producer.stdout if line.endswith("\n")]
        acknowledged = list(dict.fromkeys(acknowledged))
    stored = asyncio.run(ids_in(url))
    assert set(acknowledged) <= set(stored)
    assert len(stored) % 3 == 0, "a batch is there whole or not at all"


async def ids_in(url: str) -> list[str]:
    store = open_store(url)
    found = [job.id async for job in every_job(store)]
    await store.close()
    return found


async def test_2_at_most_one_live_lease_for_a_job_and_every_write_of_another_run_changes_nothing(
    rig: Rig,
) -> None:
    random = Random(2)
    await rig.declare(LINE)
    jobs = await rig.add_many(
        12, gates=(use_of(LINE),), policy=TIRELESS, expires_at=None, due_at=rig.clock()
    )
    workers = [rig.new_worker() for _ in range(4)]
    live: dict[str, tuple[int, int]] = {}
    ever: list[tuple[int, Claimed]] = []
    beaten: dict[int, int] = {}
    for _ in range(150):
        place = random.randrange(4)
        beaten.setdefault(place, rig.clock())
        for run in await workers[place].take(2):
            assert run.id not in live, "two live leases"
            assert all(run.run > old.run for _, old in ever if old.id == run.id)
            live[run.id] = (place, run.run)
            ever.append((place, run))
        if ever:
            owner, run = random.choice(ever)
            before = await rig.view(run.id)
            said = random.choice([Succeeded, Released, Failed])(run.id, run.run)
            verdict = await workers[owner].report(said)
            if live.get(run.id) == (owner, run.run):
                assert verdict is Verdict.DONE
                del live[run.id]
            else:
                assert verdict in {Verdict.LOST, Verdict.ALREADY}
                assert await rig.view(run.id) == before
        if random.random() < 0.15:
            # All leases end.
            await rig.pass_time(LEASE_MS)
            live.clear()
        rig.clock.advance(5)
    assert {(await rig.view(job.id)).state for job in jobs} <= set(State)
    assert len(ever) > 20


async def test_3_permits_in_use_never_exceed_capacity_and_each_is_released_exactly_once(
    rig: Rig,
) -> None:
    random = Random(3)
    await rig.declare(LINE, REPO, NUMBERS)
    workers = [rig.new_worker() for _ in range(3)]
    running: list[tuple[int, Claimed]] = []
    for turn in range(120):
        uses = [use_of(LINE, random.choice((1, 2))), use_of(NUMBERS)]
        uses.append(use_of(REPO, url=random.choice("ab")))
        await rig.add(gates=tuple(random.sample(uses, 2)), policy=TIRELESS, expires_at=None)
        place = turn % 3
        running += [(place, run) for run in await workers[place].take(2)]
        if running and random.random() < 0.7:
            place, run = running.pop(random.randrange(len(running)))
            outcomes: list[Outcome] = [
                Succeeded(run.id, run.run),
                Snoozed(run.id, run.run, after_ms=5),
                Released(run.id, run.run),
                Died(run.id, run.run),
            ]
            said = random.choice(outcomes)
            await workers[place].settle(said, said)
        if random.random() < 0.05:
            await rig.pass_time(LEASE_MS)
            running.clear()
        rig.clock.advance(10)
        await rig.check()
        for name, most in (("line", 3), ("repo:a", 1), ("repo:b", 1)):
            gate = await rig.gate(name)
            assert gate.used == sum(holder.amount for holder in gate.holders) <= most
        for member in (await rig.gate("numbers")).members:
            assert member.used <= (member.capacity or 0)
    await rig.pass_time(LEASE_MS)
    for name in ("line", "repo:a", "repo:b", "numbers"):
        assert (await rig.gate(name)).used == 0


async def test_4_a_rate_is_never_exceeded_and_nothing_is_claimed_outside_its_hours_or_when_closed(
    rig: Rig,
) -> None:
    random = Random(4)
    shop = GateSpec(
        name="hours:shop",
        kind=GateKind.HOURS,
        shared=True,
        hours=hours_spec("00:00-00:01,00:02-00:03", tz="UTC"),
    )
    await rig.declare(TWILIO, shop)
    await rig.add_many(400, gates=(use_of(TWILIO), use_of(shop)), expires_at=None)
    worker = rig.new_worker()
    starts: list[int] = []
    closed_until = 0
    while rig.clock() % 86_400_000 < 200_000:
        if random.random() < 0.1:
            closed_until = rig.clock() + random.choice((1, 700, 4_000))
            await rig.define(CloseGate(name="rate:twilio", until_at=closed_until))
        reply = await worker.ask(random.choice((1, 3, 9)))
        at = reply.now % 86_400_000
        if reply.jobs:
            assert at < 60_000 or 120_000 <= at < 180_000
            assert reply.now >= closed_until
        starts += [reply.now] * len(reply.jobs)
        await worker.settle(*(Succeeded(run.id, run.run) for run in reply.jobs))
        rig.clock.advance(random.choice((1, 333, 1_000, 4_999, 5_000)))
        if random.random() < 0.1:
            rig.clock.advance(-random.choice((1, 2_000)))
    assert len(starts) > 50
    assert all(starts[n + 4] - starts[n] >= 5_000 for n in range(len(starts) - 4))


async def test_5_a_handed_over_job_is_never_started_a_second_time(rig: Rig) -> None:
    await rig.declare(LINE)
    policy = policy_with(reconcile="ask", reconcile_within_ms=20_000)
    call = await dial(rig, gates=(use_of(LINE),), policy=policy, timeout_ms=60_000)
    # The worker dies; the provider is queried, and reports that the call is still active.
    await rig.pass_time(LEASE_MS)
    view = await rig.view(call.id)
    assert (view.state, view.in_doubt, view.run) == (State.AWAITING, True, 1)
    asker = rig.new_worker()
    question = await asker.take_one()
    assert question.kind == "ask"
    reference = f"{call.id}:{call.run}"
    goes_on = Signal(key=reference, event="1", kind=SignalKind.PROGRESS, extend_ms=500_000)
    assert (await rig.store.signal(goes_on)).answer is SignalResult.APPLIED
    await asker.report(Succeeded(question.id, question.run))
    assert await call.worker.report(Failed(call.id, call.run)) is Verdict.LOST
    await rig.pass_time(499_000)
    assert await rig.holders("line") == [call.id]
    assert await rig.new_worker().take(9) == []
    # The call ends, and the job with it.
    assert (await rig.signal(call.key)).answer is SignalResult.APPLIED
    view = await rig.view(call.id)
    assert (view.state, view.run) == (State.SUCCEEDED, 1)
    # A handler that returns after its hand-over settles nothing.
    other = await dial(rig, key="call-2")
    await other.worker.report(Returned(other.id, other.run, error="too late"))
    assert await rig.state(other.id) is State.AWAITING


async def test_6_a_signal_is_applied_once_by_event_id_kept_if_early_and_definite_if_late(
    rig: Rig,
) -> None:
    job = await rig.add()
    worker = rig.new_worker()
    run = await worker.take_one()
    early = Signal(key="call-1", event="ringing", kind=SignalKind.PROGRESS, body=b'{"r":1}')
    assert (await rig.store.signal(early)).answer is SignalResult.KEPT
    await worker.report(HandedOver(run.id, run.run, key="call-1", timeout_ms=60_000))
    assert (await rig.view(job.id)).progress == b'{"r":1}'
    assert (await rig.store.signal(early)).answer is SignalResult.ALREADY
    assert (await rig.signal("call-1", event="end")).answer is SignalResult.APPLIED
    assert (await rig.signal("call-1", event="end")).answer is SignalResult.ALREADY
    assert (await rig.signal("call-1", Decided.DEAD, event="end again")).answer is SignalResult.LATE
    note = Signal(key="call-1", event="dlr", kind=SignalKind.NOTE, label="DELIVERED")
    assert (await rig.store.signal(note)).answer is SignalResult.APPLIED
    assert await rig.state(job.id) is State.SUCCEEDED
    # The deadline came first, and the late signal is answered LATE.
    late = await dial(rig, key="call-2", timeout_ms=1_000)
    await rig.pass_time(1_000)
    reply = await rig.signal("call-2")
    assert (reply.answer, reply.state) == (SignalResult.LATE, State.DEAD)
    assert await rig.state(late.id) is State.DEAD


async def test_7_an_enqueue_with_a_key_creates_one_job_however_many_callers_race(
    rig: Rig,
) -> None:
    first = rig.jobs.make()
    callers = [first.changed(id=rig.jobs.make().id) for _ in range(50)]
    replies = [reply for (reply,) in await asyncio.gather(*(rig.enqueue(one) for one in callers))]
    assert sum(reply.created for reply in replies) == 1
    assert len({reply.id for reply in replies}) == 1
    assert await rig.total("enqueued") == 1


async def test_8_start_order_within_a_flow_is_priority_due_time_arrival(rig: Rig) -> None:
    random = Random(8)
    jobs = [
        await rig.add(priority=random.randrange(3), due_at=rig.clock() + random.randrange(5) * 100)
        for _ in range(60)
    ]
    rig.clock.advance(500)
    arrival = {job.id: place for place, job in enumerate(jobs)}
    expected = sorted(jobs, key=lambda job: (job.priority, job.due_at, arrival[job.id]))
    worker = rig.new_worker()
    got = [job for n in (1, 5, 17, 60) for job in await worker.take_ids(n)]
    assert got == [job.id for job in expected]


async def test_9_a_timetable_entry_fires_once_for_each_due_time_however_many_schedulers_run(
    rig: Rig,
) -> None:
    schedule = Cron("*/7 * * * *", tz="Europe/Berlin")
    job = rig.jobs.make(due_at=None, expires_at=None, key=None)
    spec = EntrySpec(
        name="often", schedule=schedule, job=job, overlap="all", misfire=MisfirePolicy.ALL
    )
    await rig.define(DeclareEntry(spec=spec))
    worker, start_at, day_ms = rig.new_worker(), rig.clock(), 86_400_000
    random = Random(9)
    started: list[int] = []

    async def scheduler() -> None:
        (entry,) = await rig.store.read(TimetableQuery())
        ahead = rig.clock() + random.choice((15, 30)) * 60_000
        known = entry.last_fired or start_at
        moments = tuple(fires_between(schedule, known, ahead, 1000))
        if moments:
            request = FireRequest(
                entry="often", revision=entry.revision, moments=moments, ahead_until=ahead
            )
            await rig.store.fire(request)

    while rig.clock() < start_at + day_ms:
        await asyncio.gather(*(scheduler() for _ in range(3)))
        runs = await worker.take(50)
        started += [run.due_at for run in runs]
        await worker.settle(*(Succeeded(run.id, run.run) for run in runs))
        rig.clock.advance(random.choice((60_000, 400_000, 1_300_000)))
    expected = fires_between(schedule, start_at, max(started), 10_000)
    assert started == expected
    assert len(started) > 150


async def test_10_a_cascade_has_at_most_one_outstanding_offer_and_at_most_one_acceptance_wins(
    rig: Rig,
) -> None:
    tech = Slots(for_candidate("tech"), 1)
    await rig.declare(tech)
    policy = policy_with(cascade=True)
    job = await rig.add(
        candidates=tuple("abcdef"), gates=(use_of(tech),), policy=policy, expires_at=None
    )
    worker = rig.new_worker()
    keys: list[str] = []
    accepted = 0
    for turn in range(5):
        run = await worker.take_one()
        assert await worker.take(9) == []
        key = f"{run.id}:{run.run}"
        keys.append(key)
        await worker.report(HandedOver(run.id, run.run, key=key, timeout_ms=1_000))
        open_offers = [one for one in (await rig.view(job.id)).runs if one.ended_at is None]
        assert len(open_offers) == 1
        if turn < 4:
            await (rig.signal(key, Decided.DECLINED) if turn % 2 else rig.pass_time(1_000))
    for key in (*keys, *keys):
        reply = await rig.signal(key, Decided.ACCEPTED)
        assert reply.answer in {SignalResult.APPLIED, SignalResult.LATE}
        accepted += reply.answer is SignalResult.APPLIED
    assert accepted == 1
    assert await rig.state(job.id) is State.SUCCEEDED


async def test_11_time_is_the_stores_time_and_never_goes_back(rig: Rig) -> None:
    random = Random(11)
    worker = rig.new_worker()
    last = 0
    for _ in range(60):
        await rig.add(due_at=None)
        reply = await worker.ask(1)
        assert reply.now >= last
        last = reply.now
        beat = await worker.beat(*reply.jobs)
        assert beat.now >= last
        assert beat.lost == (), "a clock that jumps back ends no lease"
        await worker.settle(*(Succeeded(run.id, run.run) for run in reply.jobs))
        rig.clock.advance(random.choice((1, 500, -400, -3_000, 2_500)))
    stats = await rig.store.read(StatsQuery())
    assert stats.now >= last


async def test_12_every_follow_up_of_a_settlement_is_created_by_it_also_by_a_sweep(
    rig: Rig,
) -> None:
    await rig.declare(TWILIO)
    alert = policy_with(on_final=FollowUp(kind="alert", states=(State.DEAD,)))
    jobs = await rig.add_many(3, policy=alert, expires_at=rig.clock() + 10_000)
    worker = rig.new_worker()
    one, two = await worker.take(2)
    child = rig.jobs.make(kind="child")
    closing = Closing(gate="rate:twilio", for_ms=9_000, reason="429")
    await worker.settle(
        Died(one.id, one.run, reason="bad", then=(child,), close=(closing,)),
        HandedOver(two.id, two.run, key="call-1", timeout_ms=5_000),
    )
    assert await rig.state(child.id) is State.WAITING
    assert (await rig.gate("rate:twilio")).closed_until == rig.clock() + 9_000
    await rig.pass_time(10_001)
    alerts = [job for job in (await rig.dump()).jobs if job.kind == "alert"]
    told = {(json.loads(job.args)["job"], json.loads(job.args)["reason"]) for job in alerts}
    assert {job for job, _ in told} == {job.id for job in jobs}
    assert {reason for _, reason in told} >= {"bad", "expired"}
    assert len(alerts) == 3


async def test_13_a_running_or_awaiting_job_asked_to_cancel_ends_cancelled_whatever_is_reported(
    rig: Rig,
) -> None:
    await rig.declare(LINE)
    running = await rig.add(gates=(use_of(LINE),), priority=0)
    worker = rig.new_worker()
    run = await worker.take_one()
    awaiting = await dial(rig, gates=(use_of(LINE),))
    assert await rig.cancel(running.id, awaiting.id) == [Acted.ASKED, Acted.ASKED]
    assert (await worker.beat(run)).cancel == ((run.id, run.run),)
    assert set(await rig.holders("line")) == {running.id, awaiting.id}
    assert await worker.report(Succeeded(run.id, run.run)) is Verdict.CANCELLED
    assert (await rig.signal(awaiting.key)).state == State.CANCELLED
    for job in (running.id, awaiting.id):
        view = await rig.view(job)
        assert (view.state, view.runs[-1].outcome) == (State.CANCELLED, "succeeded")
    assert await rig.holders("line") == []


async def test_14_every_operators_move_is_recorded_with_who_when_and_why(rig: Rig) -> None:
    await rig.declare(LINE)
    job, other = await rig.add_many(2, gates=(use_of(LINE),))
    worker = rig.new_worker()
    run = await worker.take_one()
    begun = len((await rig.dump()).trail)
    moves = [
        lambda: rig.close_gate("all"),
        lambda: rig.open_gate("all"),
        lambda: rig.define(SetGate(name="line", capacity=7)),
        lambda: rig.reset("line"),
        lambda: rig.store.release_permit("line", job.id, AUTHOR, REASON),
        lambda: rig.cancel(other.id),
        lambda: rig.act(Verb.RETRY, other.id),
        lambda: rig.act(Verb.KILL, other.id),
    ]
    for number, move in enumerate(moves, 1):
        rig.clock.advance(10)
        await move()
        trail = (await rig.dump()).trail[begun:]
        assert len(trail) == number
        line = trail[-1]
        assert (line.at, line.author, line.reason) == (rig.clock(), AUTHOR, REASON)
        assert line.verb
        assert line.target in {"all", "line", job.id, other.id}
    await worker.report(Succeeded(run.id, run.run))
