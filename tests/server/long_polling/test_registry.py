from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.definitions import CloseGate, DefineRequest, LaneSpec, SetLane
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.contract.views import JobsQuery, Query, WhyQuery, WorkersQuery
from headway.core.errors import StoreUnavailable
from headway.core.job import MAX_ARGS
from headway.core.state import State
from headway.runtime.timing import REAL, Timing
from headway.server.long_polling import registry as attendance
from headway.server.long_polling.claiming import MOST_ARGS, LaneSelection
from headway.server.long_polling.registry import LongPollRegistry
from headway.stores import open_store
from headway.testing.clock import START_AT
from tests.server.long_polling.rig import Counted, Pullers, job, pull, until
from tests.servers.stores import EVERYWHERE, NewUrl


@pytest.fixture(params=EVERYWHERE)
async def store(request: pytest.FixtureRequest, new_url: NewUrl) -> AsyncIterator[Counted]:
    opened = open_store(new_url(request.param))
    yield Counted(opened)
    await opened.close()


@pytest.fixture
async def registry(store: Counted) -> AsyncIterator[LongPollRegistry]:
    registry = LongPollRegistry(store, REAL)
    yield registry
    registry.close()
    await registry.finish()


@pytest.fixture
async def pullers(registry: LongPollRegistry) -> AsyncIterator[Pullers]:
    pullers = Pullers(registry)
    yield pullers
    await pullers.leave()


async def test_available_job_is_returned_at_once(
    store: Counted, registry: LongPollRegistry
) -> None:
    await store.enqueue([job(1)])
    pulled = await registry.pull(pull("w"), 50)
    assert [one.id for one in pulled.jobs] == [job(1).id]
    assert pulled.lease_until == pulled.now + 30_000


class Apart(Timing):
    """A clock that advances by a fixed number of milliseconds on each read."""

    def __init__(self, ms: int) -> None:
        self.ms = ms
        self.at = START_AT

    def wall_at(self) -> int:
        self.at += self.ms
        return self.at


@pytest.mark.parametrize("apart", [0, 1, 7])
@pytest.mark.parametrize(
    ("weights", "expected"), [((1, 1), (10, 10)), ((1, 3), (5, 15)), ((2, 3), (8, 12))]
)
async def test_pulls_of_one_job_take_turns_by_weight_whatever_the_clock_says(
    store: Counted, weights: tuple[int, int], expected: tuple[int, int], apart: int
) -> None:
    registry = LongPollRegistry(store, Apart(apart))
    await store.enqueue([job(n, lane) for lane in ("a", "b", "c", "d") for n in range(20)])
    one = LaneSelection(lanes=(("a", weights[0]), ("b", weights[1])))
    other = LaneSelection(lanes=(("c", weights[0]), ("d", weights[1])))
    got: Counter[str] = Counter()
    for wanted in 20 * (one, other):
        (taken,) = (await registry.pull(pull("w", wanted=wanted))).jobs
        got[taken.lane] += 1
    assert (got["a"], got["b"]) == expected
    assert (got["c"], got["d"]) == expected
    registry.close()
    await registry.finish()


async def test_pull_that_finds_nothing_uses_up_no_turn(
    store: Counted, registry: LongPollRegistry
) -> None:
    assert not (await registry.pull(pull("w", "a", "b"))).jobs
    await store.enqueue([job(1, "a"), job(1, "b")])
    assert [one.lane for one in (await registry.pull(pull("w", "a", "b"))).jobs] == ["a"]


async def test_jobs_that_a_pull_finds_expired_are_logged(
    store: Counted, registry: LongPollRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    await store.enqueue([job(1, expires_at=1)])
    assert not (await registry.pull(pull("w"))).jobs
    (line,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert line == f"job dead kind=dial id={job(1).id} attempt=0 error='expired'"


async def test_pull_without_waiting_returns_nothing(registry: LongPollRegistry) -> None:
    pulled = await registry.pull(pull("w"))
    assert not pulled.jobs
    assert not pulled.again


async def test_timed_out_pull_returns_nothing(store: Counted, registry: LongPollRegistry) -> None:
    pulled = await registry.pull(pull("w"), 0.05)
    assert not pulled.jobs
    assert not pulled.again
    assert len(registry) == 0
    await until(lambda: not store.open["wait"])


async def test_thousand_waiters_cost_one_sleep_and_no_claims(
    store: Counted, registry: LongPollRegistry, pullers: Pullers
) -> None:
    await pullers.wait(1)
    # A store may wake the first waiter spuriously, once it can be notified by other processes.
    await until(lambda: store.open["wait"] == 1)
    await REAL.pause(0.3)
    await until(lambda: store.open["wait"] == 1)
    before = store.calls.copy()
    await pullers.wait(999)
    assert len(registry) == 1_000
    # Except for one beat every ten seconds, which covers all of them.
    del store.calls["beat"], before["beat"]
    assert store.calls == before
    assert store.open["wait"] == 1


async def test_each_of_a_thousand_jobs_goes_to_one_of_a_thousand_in_order_of_arrival(
    store: Counted, pullers: Pullers
) -> None:
    await pullers.wait(1_000)
    jobs = [job(number) for number in range(1_000)]
    before = store.calls["claim"]
    await store.enqueue(jobs)
    await until(lambda: len(pullers.got) == 1_000, 50)
    assert sorted(pullers.jobs) == sorted(one.id for one in jobs)
    assert all(len(pulled.jobs) == 1 for _, pulled in pullers.got)
    # No poll is served before earlier ones, except that a few claim at the same time.
    places = {worker: place for place, worker in enumerate(sorted(pullers.workers))}
    assert all(abs(places[worker] - at) < 32 for at, worker in enumerate(pullers.workers))
    assert store.calls["claim"] - before <= 1_100


async def test_jobs_that_arrive_one_by_one_go_to_the_longest_waiting(
    store: Counted, pullers: Pullers
) -> None:
    await pullers.wait(40)
    for number in range(10):
        before = store.calls["claim"]
        await store.enqueue([job(number)])
        await until(lambda wanted=number + 1: len(pullers.got) == wanted)
        await until(lambda: store.open["wait"] == 1)
        assert store.calls["claim"] - before <= 5
    assert pullers.workers == [f"w{number:04}" for number in range(10)]
    assert pullers.jobs == [job(number).id for number in range(10)]


async def test_job_that_arrives_while_others_claim_is_not_missed(
    store: Counted, pullers: Pullers
) -> None:
    await pullers.wait(300)
    senders = [store.enqueue([job(number)]) for number in range(300)]
    await asyncio.gather(*senders)
    await until(lambda: len(pullers.got) == 300, 30)
    assert len(set(pullers.jobs)) == 300


async def test_job_that_becomes_due_wakes_waiters(store: Counted, pullers: Pullers) -> None:
    await pullers.wait(3)
    now = (await store.claim(ClaimRequest(worker="c", request=1, lanes=(("x", 1),)))).now
    await store.enqueue([job(1, due_at=now + 300)])
    await until(lambda: pullers.got)
    assert pullers.workers == ["w0000"]
    assert pullers.got[0][1].now >= now + 300


async def test_released_permit_wakes_waiters(store: Counted, pullers: Pullers) -> None:
    spec = LaneSpec(name="calls", concurrency=1)
    await store.define(DefineRequest(items=(SetLane(spec=spec),), author="test"))
    await store.enqueue([job(1), job(2)])
    holder = ClaimRequest(worker="holder", request=1, lanes=(("calls", 1),))
    held = (await store.claim(holder)).jobs
    assert len(held) == 1
    await pullers.wait(3)
    done = Succeeded(held[0].id, held[0].run)
    await store.settle(SettleRequest(worker="holder", outcomes=(done,)))
    await until(lambda: pullers.got)
    assert pullers.jobs == [job(2).id]


async def test_job_scheduled_earlier_wakes_waiters_when_due(
    store: Counted, registry: LongPollRegistry
) -> None:
    now = (await store.claim(ClaimRequest(worker="c", request=1, lanes=(("x", 1),)))).now
    await store.enqueue([job(1, due_at=now + 300)])
    pulled = await registry.pull(pull("w"), 30)
    assert [one.id for one in pulled.jobs] == [job(1).id]


async def test_commit_between_a_claim_and_the_sleep_is_not_missed(
    store: Counted, registry: LongPollRegistry
) -> None:
    # A store may wake the first waiter spuriously.
    await registry.pull(pull("w"), 0.3)
    looks = 0

    async def then_sent(request: ClaimRequest) -> ClaimReply:
        nonlocal looks
        reply = await store.store.claim(request)
        looks += 1
        if looks == 1:
            await store.store.enqueue([job(1)])
        return reply

    store.claim = then_sent  # pyright: ignore[reportAttributeAccessIssue]
    pulled = await registry.pull(pull("w"), 20)
    assert [one.id for one in pulled.jobs] == [job(1).id]


async def test_leaving_waiter_passes_on_its_turn(
    store: Counted, registry: LongPollRegistry, pullers: Pullers
) -> None:
    await pullers.wait(3, "send_*")
    await store.enqueue([job(1, "send_push")])
    # The turn is assigned, and the first poll's client disconnects before it takes the turn.
    registry.note_lanes(["send_push"])
    pullers.tasks[0].cancel()
    await until(lambda: pullers.got)
    assert pullers.workers == ["w0001"]
    await until(lambda: store.open["wait"] == 1)
    assert len(registry) == 1


async def test_jobs_claimed_for_a_leaving_waiter_are_given_back_at_once(
    store: Counted, registry: LongPollRegistry, pullers: Pullers
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    real = store.store.claim

    async def slow(request: ClaimRequest) -> object:
        reply = await real(request)
        reached.set()
        await go_on.wait()
        return reply

    await store.enqueue([job(1)])
    store.claim = slow  # pyright: ignore[reportAttributeAccessIssue]
    leaving = asyncio.create_task(registry.pull(pull("gone"), 50))
    await reached.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    del store.claim  # pyright: ignore[reportAttributeAccessIssue]
    assert registry.giving_back == 1
    await pullers.wait(1)
    go_on.set()
    await until(lambda: pullers.got)
    assert pullers.jobs == [job(1).id]
    assert pullers.got[0][1].jobs[0].attempt == 1
    await registry.finish()
    assert registry.giving_back == 0


async def test_reply_to_a_repeated_number_is_never_given_back(
    store: Counted, registry: LongPollRegistry
) -> None:
    await store.enqueue([job(1)])
    await registry.pull(pull("w", request=5))
    again = await registry.pull(pull("w", request=5))
    registry.give_back(again)
    reached = asyncio.Event()

    async def slow(request: ClaimRequest) -> ClaimReply:
        reached.set()
        return await store.store.claim(request)

    store.claim = slow  # pyright: ignore[reportAttributeAccessIssue]
    leaving = asyncio.create_task(registry.pull(pull("w", request=5), 50))
    await reached.wait()
    leaving.cancel()
    await asyncio.wait((leaving,))
    await registry.finish()
    # The first reply may have arrived: the worker still holds the job.
    page = await store.read(JobsQuery(ids=(job(1).id,)))
    assert page.rows[0].state is State.RUNNING


async def test_arguments_beyond_the_limit_of_a_reply_are_given_back_unused(
    store: Counted, registry: LongPollRegistry
) -> None:
    args = b'{"text": "' + b"x" * (MAX_ARGS - 12) + b'"}'
    jobs = [job(number, args=args) for number in range(20)]
    for at in range(0, 20, 10):
        await store.enqueue(jobs[at : at + 10])
    ids = [one.id for one in jobs]
    first = await registry.pull(pull("w", request=1, n=20))
    fits = MOST_ARGS // MAX_ARGS
    assert [one.id for one in first.jobs] == ids[:fits]
    assert first.again
    await registry.finish()
    repeat = await registry.pull(pull("w", request=1, n=20))
    assert [one.id for one in repeat.jobs] == ids[:fits]
    rest = await registry.pull(pull("v", n=20))
    assert [one.id for one in rest.jobs] == ids[fits:]
    assert {one.attempt for one in rest.jobs} == {1}
    assert not rest.again


async def test_nothing_remains_when_all_have_left(
    store: Counted, registry: LongPollRegistry, pullers: Pullers
) -> None:
    before = asyncio.all_tasks()
    await store.enqueue([job(1)])
    await registry.pull(pull("w"))
    await pullers.wait(50)
    await pullers.leave()
    await registry.finish()
    assert len(registry) == 0
    await until(lambda: not store.open["wait"])
    await until(lambda: not asyncio.all_tasks() - before)
    workers = await store.read(WorkersQuery())
    assert sum(worker.running for worker in workers) == 1


async def test_waiters_are_shown_to_those_who_ask_why_nothing_runs(
    store: Counted, pullers: Pullers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "BEAT_EVERY_S", 0.01)
    await store.define(DefineRequest(items=(CloseGate(name="all"),), author="test"))
    await store.enqueue([job(1, "send_mail"), job(2, "calls")])
    await pullers.wait(2, "send_*")
    await pullers.wait(1, "calls", "never")
    lanes: set[str] = set()
    async with asyncio.timeout(120):
        while lanes != {"calls", "never", "send_mail"}:
            workers = await store.read(WorkersQuery())
            lanes = {lane for one in workers if one.name == "long polls" for lane in one.lanes}
            await REAL.pause(0.01)
    why = await store.read(WhyQuery(id=job(1, "send_mail").id))
    assert why is not None
    assert "no live worker" not in why.sentence


async def test_closed_registry_dismisses_every_waiter(
    registry: LongPollRegistry, pullers: Pullers
) -> None:
    await pullers.wait(20)
    registry.close()
    await until(lambda: len(pullers.got) == 20)
    assert not pullers.jobs
    assert not (await registry.pull(pull("late"), 50)).jobs


async def test_waiter_without_gated_jobs_does_not_delay_one_that_wants_them(
    store: Counted, pullers: Pullers
) -> None:
    spec = LaneSpec(name="calls", concurrency=1)
    await store.define(DefineRequest(items=(SetLane(spec=spec),), author="test"))
    await pullers.wait(1, free=0)
    await pullers.wait(1, free=1)
    await store.enqueue([job(1)])
    await until(lambda: pullers.got)
    assert pullers.workers == ["w0001"]


async def test_used_number_is_answered_at_once_with_its_jobs(
    store: Counted, registry: LongPollRegistry
) -> None:
    await store.enqueue([job(1)])
    one = pull("w", request=7)
    first = await registry.pull(one, 50)
    again = await registry.pull(one, 50)
    assert [job.id for job in again.jobs] == [job.id for job in first.jobs]
    older = await registry.pull(replace(one, request=6), 50)
    assert not older.jobs
    assert older.again


async def test_worker_that_counted_ahead_of_the_clock_is_overtaken(
    store: Counted, registry: LongPollRegistry
) -> None:
    year_ahead = (REAL.wall_at() + 365 * 86_400_000) * 1_000
    await store.enqueue([job(1), job(2)])
    await registry.pull(pull("w", request=year_ahead))
    pulled = await registry.pull(pull("w"), 5)
    assert [one.id for one in pulled.jobs] == [job(2).id]
    assert pulled.request > year_ahead


async def test_unreachable_store_fails_one_and_keeps_the_others(
    store: Counted, registry: LongPollRegistry, pullers: Pullers
) -> None:
    await pullers.wait(3)
    real, failed = store.store.claim, []

    async def away(request: ClaimRequest) -> object:
        if not failed:
            failed.append(request)
            message = "away"
            raise StoreUnavailable(message)
        return await real(request)

    store.claim = away  # pyright: ignore[reportAttributeAccessIssue]
    await store.enqueue([job(1)])
    await until(lambda: pullers.got)
    assert pullers.workers == ["w0001"]
    with pytest.raises(StoreUnavailable):
        await pullers.tasks[0]


async def test_lanes_that_match_a_pattern_are_pulled_from(
    store: Counted, registry: LongPollRegistry
) -> None:
    await store.enqueue([job(1, "send_email"), job(2, "enrich")])
    pulled = await registry.pull(pull("w", "send_*", n=10), 50)
    assert [one.lane for one in pulled.jobs] == ["send_email"]


def test_lane_has_the_weight_of_the_first_name_or_pattern_that_matches() -> None:
    known = ["send_sms", "send_mail", "enrich"]
    named_first = LaneSelection(lanes=(("send_mail", 3), ("send_*", 1), ("*", 2)))
    assert named_first.expand(known) == (("send_mail", 3), ("send_sms", 1), ("enrich", 2))
    named_last = LaneSelection(lanes=(("*_mail", 5), ("send_*", 1), ("send_mail", 3)))
    assert named_last.expand(known) == (("send_mail", 5), ("send_sms", 1))


async def test_new_lane_wakes_waiters_of_its_pattern(
    store: Counted, registry: LongPollRegistry, pullers: Pullers
) -> None:
    await pullers.wait(2, "send_*")
    await store.enqueue([job(1, "send_push")])
    registry.note_lanes(["send_push"])
    await until(lambda: pullers.got)
    assert pullers.jobs == [job(1, "send_push").id]


async def test_lane_of_another_process_is_found_by_listing(
    store: Counted, pullers: Pullers
) -> None:
    await pullers.wait(2, "send_*")
    await store.enqueue([job(1, "enrich"), job(2, "send_push")])
    await until(lambda: pullers.got)
    assert pullers.jobs == [job(2, "send_push").id]


async def test_lanes_are_listed_again_after_the_store_was_unreachable(
    store: Counted, pullers: Pullers
) -> None:
    await pullers.wait(1, "send_*")
    real, failed = store.store.read, []

    async def away(query: Query[Any]) -> object:
        if not failed:
            failed.append(query)
            message = "away"
            raise StoreUnavailable(message)
        return await real(query)

    store.read = away  # pyright: ignore[reportAttributeAccessIssue]
    await until(lambda: failed)
    await store.enqueue([job(1, "send_push")])
    await until(lambda: pullers.got)
    assert pullers.jobs == [job(1, "send_push").id]


async def test_pattern_reaches_no_lane_beyond_its_callers_scope(
    store: Counted, registry: LongPollRegistry
) -> None:
    await store.enqueue([job(1, "send_email"), job(2, "send_push")])
    wanted = LaneSelection(lanes=(("send_*", 1),), reach=("*_push",))
    pulled = await registry.pull(pull("w", wanted=wanted, n=10), 50)
    assert [one.lane for one in pulled.jobs] == ["send_push"]


async def test_new_lane_wakes_a_permitted_waiter_beside_a_forbidden_one(
    store: Counted, registry: LongPollRegistry, pullers: Pullers
) -> None:
    for reach in ("*_email", "*_push"):
        wanted = LaneSelection(lanes=(("send_*", 1),), reach=(reach,))
        await pullers.wait(1, wanted=wanted)
    await store.enqueue([job(1, "send_push")])
    registry.note_lanes(["send_push"])
    await until(lambda: pullers.got)
    assert (pullers.workers, pullers.jobs) == (["w0001"], [job(1, "send_push").id])


async def test_more_lanes_than_one_claim_takes_are_all_pulled_from(
    store: Counted, registry: LongPollRegistry
) -> None:
    lanes = [f"send_{number:03}" for number in range(600)]
    await store.enqueue([job(1, lane) for lane in lanes])
    met: set[str] = set()
    while len(met) < 600:
        pulled = await registry.pull(pull("w", "send_*", n=200), 5)
        assert pulled.jobs
        met.update(one.lane for one in pulled.jobs)


async def test_strict_order_empties_the_earlier_lane_first(
    store: Counted, registry: LongPollRegistry
) -> None:
    await store.enqueue([job(n, "b") for n in range(3)] + [job(n, "a") for n in range(3)])
    wanted = LaneSelection(lanes=(("b", 1), ("a", 5)), order="strict")
    pulled = await registry.pull(pull("w", wanted=wanted, n=4))
    assert [one.lane for one in pulled.jobs] == ["b", "b", "b", "a"]


async def test_weights_share_a_pull(store: Counted, registry: LongPollRegistry) -> None:
    await store.enqueue([job(n, lane) for lane in ("a", "b") for n in range(9)])
    wanted = LaneSelection(lanes=(("a", 1), ("b", 2)))
    pulled = await registry.pull(pull("w", wanted=wanted, n=9))
    assert sum(one.lane == "b" for one in pulled.jobs) == 6


async def test_job_released_without_a_reader_has_used_no_attempt(
    store: Counted, registry: LongPollRegistry
) -> None:
    await store.enqueue([job(1)])
    pulled = await registry.pull(pull("w"))
    registry.give_back(pulled)
    await registry.finish()
    page = await store.read(JobsQuery(ids=(job(1).id,)))
    assert page.rows[0].state is State.WAITING
    assert (await registry.pull(pull("w"))).jobs[0].attempt == 1
