"""Claims and long polls of one worker, on a store without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from headway.client.poller import KEPT_FOR_S, WorkerPoller
from headway.contract.claims import BeatRequest, Claimed, ClaimReply, ClaimRequest
from headway.contract.outcomes import Released, SettleRequest
from headway.contract.views import JobQuery
from headway.core.errors import StoreUnavailable
from headway.core.job import DEFAULT_POLICY
from headway.core.state import State
from headway.runtime.timing import Timing
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.jobs import JobFactory

LIMIT_S = 240.0


class Hand(Timing):
    """A clock that the test advances; a pause ends once its time has passed."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._moved = asyncio.Event()

    def monotonic(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            await self._moved.wait()

    async def move(self, seconds: float) -> None:
        self.now += seconds
        self._moved.set()
        for _ in range(20):
            await asyncio.sleep(0)  # noqa: TID251  (lets woken tasks run; no time passes)
        self._moved.clear()


class Far:
    """A store that behaves like a remote one: the test decides when replies arrive.

    Attributes:
        asked: number and maximum wait of each request.
        lost: number of the next replies that are lost.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.jobs = JobFactory(self.clock)
        self.asked: list[tuple[int, float]] = []
        self.lost = 0
        self.let_through = asyncio.Event()
        self.let_through.set()
        self.claimed = asyncio.Event()
        self._waiting: list[asyncio.Event] = []

    async def ask(self, request: ClaimRequest, wait_s: float) -> ClaimReply:
        self.asked.append((request.request, wait_s))
        self._send_home()
        home = asyncio.Event()
        reply = await self.store.claim(request)
        if not reply.jobs and wait_s:
            self._waiting.append(home)
            await home.wait()
            reply = await self.store.claim(request)
        self.claimed.set()
        await self.let_through.wait()
        if self.lost:
            self.lost -= 1
            message = "lost on the way"
            raise StoreUnavailable(message)
        return reply

    async def give_back(self, worker: str, jobs: Sequence[Claimed]) -> None:
        outcomes = tuple(Released(job.id, job.run) for job in jobs)
        await self.store.settle(SettleRequest(worker=worker, outcomes=outcomes))

    async def send(self, **fields: object) -> str:
        """Create a job, and wake the waiters."""
        job = self.jobs.make(gates=(), due_at=None, expires_at=None, **fields)  # type: ignore[arg-type]
        await self.store.enqueue([job])
        self._send_home()
        return job.id

    def _send_home(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.set()


@pytest.fixture
async def far() -> AsyncIterator[Far]:
    one = Far()
    yield one
    await one.store.close()


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def pull(far: Far, hand: Hand) -> WorkerPoller:
    return WorkerPoller(far.ask, far.give_back, hand, seen=7)


def claim(number: int, n: int = 2, free: int = 2) -> ClaimRequest:
    return ClaimRequest(worker="w", request=number, lanes=(("calls", 1),), n=n, free=free)


async def waiting(pull: WorkerPoller) -> asyncio.Task[None]:
    """Return a wait that is in progress."""
    task = asyncio.create_task(pull.wait())
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251  (lets the poll start)
    return task


async def ended(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(LIMIT_S):
        await task


async def test_poll_result_is_given_to_the_next_claim_without_a_request(
    far: Far, pull: WorkerPoller
) -> None:
    assert (await pull.claim(claim(1))).jobs == []
    task = await waiting(pull)
    job = await far.send()
    await ended(task)
    asked = len(far.asked)
    reply = await pull.claim(claim(2))
    assert ([one.id for one in reply.jobs], reply.again, reply.seen) == ([job], True, 7)
    assert len(far.asked) == asked


async def test_first_claim_keeps_the_workers_number(far: Far, pull: WorkerPoller) -> None:
    await pull.claim(claim(5))
    assert far.asked == [(5, 0.0)]


async def test_beat_names_no_request_still_in_flight(far: Far, pull: WorkerPoller) -> None:
    await pull.claim(claim(1))
    task = await waiting(pull)
    far.let_through.clear()
    far.claimed.clear()
    job = await far.send()
    await far.claimed.wait()
    # The store has returned the job, but the worker has not received it yet.
    beat = BeatRequest(worker="w", running=pull.kept, request=pull.received(1))
    await far.store.beat(beat)
    far.let_through.set()
    await ended(task)
    assert [run for run, _ in pull.kept] == [job]
    reply = await pull.claim(claim(2))
    running = tuple((one.id, one.run) for one in reply.jobs)
    beat = BeatRequest(worker="w", running=running, request=pull.received(2))
    assert (await far.store.beat(beat)).lost == ()


async def test_kept_job_is_listed_as_held_until_its_claim_arrives(
    far: Far, pull: WorkerPoller
) -> None:
    await pull.claim(claim(1))
    task = await waiting(pull)
    await far.send()
    await ended(task)
    assert len(pull.kept) == 1
    await pull.claim(claim(2))
    # The worker has the reply, but its beat names the claim before.
    beat = BeatRequest(worker="w", running=pull.kept, request=pull.received(1))
    await far.store.beat(beat)
    (job,) = (await far.store.claim(claim(2))).jobs
    assert job.run == 1


async def test_beat_names_no_request_of_a_kept_job(far: Far, pull: WorkerPoller) -> None:
    await pull.claim(claim(1))
    task = await waiting(pull)
    sent = await far.send()
    await ended(task)
    await far.store.beat(BeatRequest(worker="w", running=(), request=pull.received(1)))
    view = await far.store.read(JobQuery(id=sent))
    assert view is not None
    assert view.state is State.RUNNING


async def test_job_of_a_lost_reply_is_handed_back_by_the_next_beat(
    far: Far, pull: WorkerPoller
) -> None:
    job = await far.send()
    far.lost = 1
    with pytest.raises(StoreUnavailable):
        await pull.claim(claim(1))
    # Repeating the claim uses a new number, so that no reply can arrive twice.
    assert (await pull.claim(claim(1))).jobs == []
    assert [number for number, _ in far.asked] == [1, 2]
    await far.store.beat(BeatRequest(worker="w", running=(), request=pull.received(1)))
    reply = await pull.claim(claim(2))
    assert [(one.id, one.attempt) for one in reply.jobs] == [(job, 1)]


async def test_claim_ends_the_poll_and_returns_what_it_had(far: Far, pull: WorkerPoller) -> None:
    await pull.claim(claim(1))
    task = await waiting(pull)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await pull.claim(claim(2))).jobs == []
    # Number 2 was used by the poll.
    assert [number for number, _ in far.asked] == [1, 2, 3]
    assert pull.received(2) == 3


async def test_poll_requests_a_gated_job_only_while_a_handler_is_free(
    far: Far, pull: WorkerPoller
) -> None:
    seen: list[tuple[int, int]] = []
    ask = far.ask

    async def watched(request: ClaimRequest, wait_s: float) -> ClaimReply:
        seen.append((request.n, request.free))
        return await ask(request, wait_s)

    pull._ask = watched
    await pull.claim(claim(1, n=5, free=1))
    (await waiting(pull)).cancel()
    await far.send()
    await pull.claim(claim(2, n=5, free=1))
    (await waiting(pull)).cancel()
    polls = [one for one in seen if one[0] == 1]
    assert polls == [(1, 1), (1, 0)]


@pytest.mark.parametrize(("kept_s", "state"), [(0.4, State.RUNNING), (0.6, State.WAITING)])
async def test_gated_job_of_a_poll_is_given_back_if_the_claim_comes_late(
    far: Far, hand: Hand, pull: WorkerPoller, kept_s: float, state: State
) -> None:
    ask = far.ask

    async def gated(request: ClaimRequest, wait_s: float) -> ClaimReply:
        reply = await ask(request, wait_s)
        jobs = [one._replace(gated=True, policy=DEFAULT_POLICY) for one in reply.jobs]
        return replace(reply, jobs=jobs)

    pull._ask = gated
    await pull.claim(claim(1))
    task = await waiting(pull)
    job = await far.send()
    await ended(task)
    await hand.move(kept_s)
    reply = await pull.claim(claim(2))
    view = await far.store.read(JobQuery(id=job))
    assert view is not None
    assert (view.state, len(reply.jobs)) == (state, int(state is State.RUNNING))
    # The rest of the second in which it must start.
    assert [one.policy.start_within_ms for one in reply.jobs] == [600] * len(reply.jobs)


async def test_unwanted_job_is_given_back_after_a_moment(
    far: Far, hand: Hand, pull: WorkerPoller
) -> None:
    await pull.claim(claim(1))
    task = await waiting(pull)
    far.let_through.clear()
    far.claimed.clear()
    job = await far.send()
    await far.claimed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    far.let_through.set()
    await hand.move(KEPT_FOR_S + 0.1)
    assert pull.kept == ()
    other = ClaimRequest(worker="other", request=1, lanes=(("calls", 1),))
    assert [one.id for one in (await far.store.claim(other)).jobs] == [job]


async def test_leaving_ends_the_poll_and_gives_back_kept_jobs(far: Far, pull: WorkerPoller) -> None:
    await pull.claim(claim(1))
    task = await waiting(pull)
    job = await far.send()
    await ended(task)
    await pull.leave("w")
    other = ClaimRequest(worker="other", request=1, lanes=(("calls", 1),))
    assert [one.id for one in (await far.store.claim(other)).jobs] == [job]


async def test_lease_of_a_kept_reply_is_not_overstated(
    far: Far, hand: Hand, pull: WorkerPoller
) -> None:
    await pull.claim(claim(1))
    task = await waiting(pull)
    await hand.move(20)
    await far.send()
    await ended(task)
    await hand.move(0.5)
    reply = await pull.claim(claim(2))
    assert reply.now == far.clock() + 500
    # The lease ends at most thirty seconds after the poll was sent.
    assert reply.lease_until - reply.now <= 10_000


async def test_polls_answered_at_once_with_nothing_are_throttled(
    far: Far, hand: Hand, pull: WorkerPoller
) -> None:
    await pull.claim(claim(1))
    # Polls that wait are not, although they end with nothing as well.
    for asked, seconds in enumerate((20, 20, 0, 0), 2):
        task = await waiting(pull)
        assert len(far.asked) == asked
        await hand.move(seconds)
        far._send_home()
        await ended(task)
    asked = len(far.asked)
    task = await waiting(pull)
    assert len(far.asked) == asked
    await hand.move(1)
    assert len(far.asked) == asked + 1
    far._send_home()
    await ended(task)
