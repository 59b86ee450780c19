"""Hand-over: the outside world has the job, and a signal reports how it ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import headway as hw
from headway.contract.operate import Verb
from headway.contract.outcomes import (
    Closing,
    Failed,
    HandedOver,
    Outcome,
    Returned,
    SettleRequest,
    Succeeded,
    Verdict,
)
from headway.contract.views import GatesQuery, JobsQuery, StatsQuery
from headway.core.errors import (
    Forbidden,
    HandlerCancelled,
    LeaseLost,
    StoreUnavailable,
    UnknownGate,
)
from headway.lab.virtual_time import VirtualLoop, VirtualTiming, run_virtually
from headway.runtime.timing import Timing, pause
from headway.runtime.worker.lease import Held
from headway.runtime.worker.settler import Settler
from headway.stores import open_store
from headway.testing.clock import FakeClock
from headway.testing.jobs import JobFactory
from tests.runtime.observed_store import ObservedStore, beat_soon, soon, working


class NoStore:
    """For tests that never reach a store."""


def returned(store: ObservedStore) -> Callable[[], Awaitable[bool]]:
    """Return whether the settlement of a handler that handed over has been written."""

    async def settled() -> bool:
        outcomes = [one for request, _ in store.asked("settle") for one in request.outcomes]
        return any(type(one) is Returned for one in outcomes)

    return settled


async def test_signal_settles_a_handed_over_job(app: hw.App, store: ObservedStore) -> None:
    @app.job()
    async def call(job: hw.Job) -> str:
        await job.hand_over("CA17", timeout="30m")
        return "only recorded"

    sent = await app.send_async(call)
    async with working(app):
        await store.becomes(sent.id, "awaiting")
        reply = await app.signal_async("CA17", event="e1", final="succeeded", body={"s": 31})
        view = await store.ends(sent.id)
    assert (reply.answer, reply.job, reply.state) == ("applied", sent.id, "succeeded")
    assert (view.state, view.result, len(view.runs)) == ("succeeded", b'{"s":31}', 1)


async def test_early_signal_with_a_nontext_reason_is_applied_at_the_hand_over(
    app: hw.App, store: ObservedStore
) -> None:
    """The reason may be a provider's code, for example. It is kept and reaches the job's worker."""
    go_on = asyncio.Event()

    @app.job()
    async def call(job: hw.Job) -> None:
        await go_on.wait()
        await job.hand_over()

    code: Any = 404
    async with working(app):
        sent = await app.send_async(call)
        await store.becomes(sent.id, "running")
        reply = await app.signal_async(f"{sent.id}:1", event="e1", final="dead", reason=code)
        go_on.set()
        view = await store.ends(sent.id)
    assert reply.answer == "kept"
    assert (view.state, view.reason) == ("dead", "404")


async def test_job_is_known_by_its_reference_and_by_the_providers_id(
    app: hw.App, store: ObservedStore
) -> None:
    refs: list[str] = []
    known = asyncio.Event()

    @app.job()
    async def call(job: hw.Job) -> None:
        await job.hand_over()
        await job.known_as("SM9")
        refs.append(job.ref)
        known.set()

    sent = await app.send_async(call)
    async with working(app):
        await soon(known)
        label = await app.signal_async("SM9", event="e1", note="RINGING")
        extended = await app.signal_async(refs[0], event="e2", progress=True, extend="5m")
        retried = await app.signal_async("SM9", event="e3", final="retry", after="1h")
        again = await app.signal_async("SM9", event="e3", final="retry", after="1h")
        late = await app.signal_async(refs[0], event="e4", final="succeeded")
        view = await store.becomes(sent.id, "scheduled")
    answers = [label.answer, extended.answer, retried.answer, again.answer, late.answer]
    assert answers == ["applied", "applied", "applied", "already", "late"]
    assert "RINGING" in str([note.reason + note.what for note in view.trail])


@pytest.mark.parametrize("place", ["loop", "thread"])
async def test_hand_over_refused_for_its_key_leaves_the_follow_ups_to_the_next_settlement(
    app: hw.App, store: ObservedStore, place: str
) -> None:
    @app.job()
    async def first(job: hw.Job) -> None:
        await job.hand_over("line-7")

    @app.job(gates=[hw.Slots("line", 1)])
    async def land(ref: str) -> None: ...

    async def in_loop(job: hw.Job) -> None:
        job.then(land.make(ref=job.ref))
        job.close("line", after="1h")
        with pytest.raises(hw.KeyConflict):
            await job.hand_over("line-7")
        await job.hand_over()

    def in_thread(job: hw.Job) -> None:
        job.then(land.make(ref=job.ref))
        job.close("line", after="1h")
        with pytest.raises(hw.KeyConflict):
            job.sync.hand_over("line-7")
        job.sync.hand_over()

    call = app.job(name="call")(in_loop if place == "loop" else in_thread)
    async with working(app):
        held = await app.send_async(first)
        await store.becomes(held.id, "awaiting")
        sent = await app.send_async(call)
        await store.becomes(sent.id, "awaiting")
    (after,) = (await store.read(JobsQuery(kind="land"))).rows
    (gate,) = (await store.read(GatesQuery(names=("line",)))).rows
    assert json.loads(after.args) == {"ref": f"{sent.id}:1"}
    assert gate.closed_until is not None


async def test_exception_after_the_hand_over_is_only_recorded(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def call(job: hw.Job) -> None:
        await job.hand_over("CA18")
        message = "the provider's reply was cut off"
        raise OSError(message)

    sent = await app.send_async(call)
    async with working(app):

        async def recorded() -> bool:
            return "cut off" in (await store.job(sent.id)).error

        await store.until(recorded)
        view = await store.job(sent.id)
        assert (view.state, view.in_doubt) == ("awaiting", False)
        await app.signal_async("CA18", event="e", final="dead", reason="no answer")
        view = await store.ends(sent.id)
    assert (view.state, view.reason, len(view.runs)) == ("dead", "no answer", 1)


async def test_handler_stopped_by_a_cancel_after_its_hand_over_ends_nothing(
    app: hw.App, store: ObservedStore
) -> None:
    dialled = asyncio.Event()

    @app.job()
    async def call(job: hw.Job) -> None:
        await job.hand_over("CA19")
        dialled.set()
        await asyncio.Event().wait()

    sent = await app.send_async(call)
    async with working(app) as worker:
        await soon(dialled)
        assert await store.move(Verb.CANCEL, sent.id) == ["asked"]
        beat_soon(worker)

        async def recorded() -> bool:
            return bool((await store.job(sent.id)).error)

        await store.until(recorded)
        assert (await store.job(sent.id)).state == "awaiting"
        await app.signal_async("CA19", event="e", final="succeeded")
        view = await store.ends(sent.id)
    assert (view.state, view.runs[0].outcome) == ("cancelled", "succeeded")


async def test_explicit_outcome_after_the_hand_over_settles(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(retry=hw.Backoff(base="1ms", cap="1ms"))
    async def call(job: hw.Job) -> None:
        await job.hand_over()
        if job.attempt == 1:
            raise hw.Retry("refused before it rang", after="1ms")
        raise hw.Dead("number blocked")

    sent = await app.send_async(call)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, view.reason) == ("dead", "number blocked")
    assert [run.outcome for run in view.runs] == ["failed", "dead"]


async def test_follow_up_jobs_are_created_with_the_hand_over(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def land(job: hw.Job, ref: str) -> None:
        reply = await app.signal_async(ref, event=f"landed:{ref}", final="succeeded")
        assert reply.answer == "applied"

    @app.job()
    async def fly(job: hw.Job) -> None:
        job.then(land.make(ref=job.ref))
        await job.hand_over(timeout="2h")

    sent = await app.send_async(fly)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, len(view.runs)) == ("succeeded", 1)


async def test_second_hand_over_of_a_run_is_refused(app: hw.App, store: ObservedStore) -> None:
    refused: list[str] = []

    @app.job()
    async def call(job: hw.Job) -> None:
        await job.hand_over("first")
        try:
            await job.hand_over("second")
        except hw.InvalidValue as error:
            refused.append(str(error))

    sent = await app.send_async(call)
    async with working(app):
        await store.becomes(sent.id, "awaiting")
        await app.signal_async("first", event="e", final="succeeded")
        await store.ends(sent.id)
    assert "has already handed over (add another key with known_as)" in refused[0]


@pytest.mark.parametrize(
    ("verb", "what", "given"),
    [
        ("hand_over", "hand-over", ()),
        ("offer", "hand-over", ()),
        ("known_as", "known_as", ("CA17",)),
        ("give_back", "give_back", ("agents",)),
    ],
)
async def test_job_with_an_unawaited_verb_dies_with_what_to_write(
    app: hw.App, store: ObservedStore, verb: str, what: str, given: tuple[str, ...]
) -> None:
    @app.job()
    async def call(job: hw.Job) -> str:
        getattr(job, verb)(*given)
        await job.progress("another verb that is awaited")
        return "dialled"

    sent = await app.send_async(call)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, view.result, len(view.runs)) == ("dead", None, 1)
    assert view.reason == (
        f"invalid_state: the handler of 'call' ended without its {what} "
        f"(write `await` before job.{verb})"
    )


async def test_unawaited_verb_is_found_among_awaited_ones(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def both(job: hw.Job) -> None:
        await asyncio.gather(job.known_as("a"), job.known_as("b"))

    @app.job()
    async def one(job: hw.Job) -> None:
        await job.known_as("c")
        job.known_as("d")  # pyright: ignore[reportUnusedCoroutine]

    sent = [await app.send_async(kind) for kind in (both, one)]
    async with working(app):
        states = [(await store.ends(job.id)).state for job in sent]
    assert states == ["succeeded", "dead"]


async def test_unawaited_verb_after_the_hand_over_leaves_the_job_to_its_signal(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job()
    async def call(job: hw.Job) -> None:
        await job.hand_over("CA17")
        job.known_as("CA18")  # pyright: ignore[reportUnusedCoroutine]

    sent = await app.send_async(call)
    async with working(app):
        await store.until(returned(store))
        await app.signal_async("CA17", event="e", final="succeeded")
        view = await store.ends(sent.id)
    assert view.state == "succeeded"
    assert "write `await` before job.known_as" in caplog.text


@pytest.mark.parametrize(
    ("verb", "value"),
    [("hand_over", ()), ("offer", ()), ("known_as", "x"), ("give_back", "x"), ("progress", "x")],
)
async def test_handler_in_a_thread_cannot_call_what_must_be_awaited(
    app: hw.App, store: ObservedStore, verb: str, value: str
) -> None:
    went_on = False

    @app.job(retry=hw.Backoff(attempts=1))
    def call(job: hw.Job) -> None:
        nonlocal went_on
        getattr(job, verb)(*value)
        went_on = True

    sent = await app.send_async(call)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, went_on) == ("dead", False)
    assert view.reason == (
        f"InvalidState: the handler of 'call' is not async, and cannot await job.{verb} "
        f"(call job.sync.{verb})"
    )


async def test_permits_are_kept_while_awaiting_unless_given_back(
    app: hw.App, store: ObservedStore
) -> None:
    agents = hw.Pool("agents:{place}", {"ann": 1, "bob": 1}, shared=True)
    plane = hw.Slots("plane:{tail}", 1)
    desk = hw.Slots("desk", 3)
    handed = asyncio.Event()

    @app.job(gates=[agents.take(hold="run"), plane, desk])
    async def depart(job: hw.Job, place: str, tail: str) -> None:
        assert job.permits == {"agents:JFK": "ann"}
        await job.hand_over()
        await job.give_back("desk")
        handed.set()

    await app.send_async(depart, place="JFK", tail="N1")
    async with working(app):
        await soon(handed)
        names = ("agents:JFK", "plane:N1", "desk")
        gates = (await store.read(GatesQuery(names=names))).rows
    assert {gate.name: gate.used for gate in gates} == {"agents:JFK": 0, "plane:N1": 1, "desk": 0}


async def test_hand_over_of_a_cancelled_job_is_refused_before_it_does_anything(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    touched: list[str] = []

    @app.job()
    async def message() -> None: ...

    @app.job()
    async def call(job: hw.Job) -> None:
        begun.set()
        await go_on.wait()
        job.then(message.make())
        await job.hand_over()
        touched.append(job.id)

    sent = await app.send_async(call)
    async with working(app):
        await soon(begun)
        assert await store.move(Verb.CANCEL, sent.id) == ["asked"]
        go_on.set()
        view = await store.ends(sent.id)
    assert (view.state, touched) == ("cancelled", [])
    assert (await store.read(JobsQuery(kind="message"))).rows == ()
    # A cancel does not count as a failure of the handler that it stops.
    assert [one.getMessage() for one in caplog.records if one.levelname != "DEBUG"] == []


class Slow:
    """A store whose settlements take two seconds of virtual time, one of them for the reply.

    Attributes:
        refuses: how many settlements it refuses at first.
    """

    def __init__(self, inner: Any, refuses: int) -> None:
        self._inner = inner
        self.refuses = refuses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        await pause(1)
        if self.refuses:
            self.refuses -= 1
            message = "away"
            raise StoreUnavailable(message)
        verdicts = await self._inner.settle(request)
        await pause(1)
        return verdicts


@pytest.mark.parametrize(
    ("timeout", "refuses", "goes_on"),
    # A refused settlement was not written: the deadline counts from the accepted attempt.
    [("1500ms", 0, False), ("2s", 0, False), ("3s", 0, True), ("3s", 4, True), ("2s", 4, False)],
)
def test_handler_does_not_continue_if_the_reply_arrives_after_the_timeout(
    timeout: str, refuses: int, goes_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(loop: VirtualLoop) -> bool:
        timing, touched, over = VirtualTiming(loop), list[str](), asyncio.Event()
        store = Slow(open_store("memory://", clock=loop.clock), refuses)
        app = hw.App(store=store, timing=timing)

        @app.job()
        async def call(job: hw.Job) -> None:
            try:
                await job.hand_over(timeout=timeout)
                touched.append(job.id)
            except LeaseLost:
                assert job.stop == "lost"
            finally:
                over.set()

        await app.send_async(call)
        worker = app.worker(heartbeat="task", chores=False)
        running = asyncio.ensure_future(worker.run())
        await over.wait()
        worker.stop()
        await running
        return bool(touched)

    assert run_virtually(work, 1_700_000_000_000) is goes_on
    assert ("the answer to its hand-over came after 2000 ms" in caplog.text) is not goes_on


@pytest.mark.parametrize("together", [False, True])
def test_beat_before_the_reply_to_a_cancelled_hand_over_is_no_lost_run(
    caplog: pytest.LogCaptureFixture, *, together: bool
) -> None:
    class Late(Slow):
        """The job is cancelled just before its hand-over, whose reply takes three beats."""

        async def settle(self, request: SettleRequest) -> list[Verdict]:
            if isinstance(request.outcomes[0], HandedOver):
                await cancel(request.outcomes[0].job)
            verdicts = await self._inner.settle(request)
            await pause(1)
            return verdicts

    async def cancel(job: str) -> None:
        await apps[0].cancel_async(job)

    async def work(loop: VirtualLoop) -> str | None:
        timing, over = VirtualTiming(loop), asyncio.Event()
        store = Late(open_store("memory://", clock=loop.clock), 0)
        app = hw.App(store=store, timing=timing)
        apps.append(app)
        stops: list[str | None] = []

        @app.job()
        async def call(job: hw.Job) -> None:
            current: Any = worker._current
            if together:
                # The reply has arrived, but the handler does not have it yet.
                lost = frozenset({(job.id, job.run)})
                current.settler.on_batch(
                    lambda: current._apply_reply(lost, frozenset(), lambda: None)
                )
            try:
                await job.hand_over()
            except HandlerCancelled:
                stops.append(job.stop)
                raise
            finally:
                over.set()

        await app.send_async(call)
        worker = app.worker(heartbeat="task", chores=False, lease="1s")
        running = asyncio.ensure_future(worker.run())
        await over.wait()
        worker.stop()
        await running
        return stops[0]

    apps: list[hw.App] = []
    assert run_virtually(work, 1_700_000_000_000) == "cancel"
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == []


async def test_refused_hand_over_of_a_cancelled_handler_stops_no_worker() -> None:
    refused, waits = asyncio.Event(), asyncio.Event()

    class Refusing:
        async def settle(self, _: SettleRequest) -> list[Verdict]:
            waits.set()
            await refused.wait()
            message = "no such gate"
            raise UnknownGate(message)

    settler = Settler(Refusing(), "w", Held(), Timing())
    running = asyncio.ensure_future(settler.run())
    handler = asyncio.ensure_future(settler.write(HandedOver("job", 1, key="k", timeout_ms=1)))
    await waits.wait()
    handler.cancel()
    await asyncio.gather(handler, return_exceptions=True)
    refused.set()
    settler.close()
    await running


@pytest.mark.parametrize(
    "forbidden",
    [
        Succeeded("second", 1, then=(JobFactory(FakeClock()).make(),)),
        Succeeded("second", 1, close=(Closing(gate="all", for_ms=1),)),
    ],
)
async def test_what_the_token_forbids_fails_only_its_own_run(forbidden: Succeeded) -> None:
    written: list[Outcome] = []

    class Forbidding:
        async def settle(self, request: SettleRequest) -> list[Verdict]:
            if forbidden in request.outcomes:
                message = "the token may not do this"
                raise Forbidden(message)
            written.extend(request.outcomes)
            return [Verdict.DONE] * len(request.outcomes)

    settler = Settler(Forbidding(), "w", Held(), Timing())
    settler.put(Succeeded("first", 1))
    settler.put(forbidden)
    settler.put(Succeeded("third", 1))
    settler.close()
    await settler.run()
    assert [(type(one), one.job) for one in written] == [
        (Succeeded, "first"),
        (Failed, "second"),
        (Succeeded, "third"),
    ]


async def test_settler_distinguishes_runs_of_one_job_while_a_verdict_is_pending() -> None:
    """A stale run of a job is stopped, although a later one waits for its verdict here."""
    settler = Settler(NoStore(), "w", Held(), Timing())
    handler = asyncio.ensure_future(settler.write(HandedOver("job", 2, key="k", timeout_ms=1)))
    await pause(0)
    assert settler.asks(("job", 2))
    assert not settler.asks(("job", 1))
    assert not settler.asks(("other", 2))
    handler.cancel()


async def test_reconcile_handler_decides_when_no_signal_arrived(
    app: hw.App, store: ObservedStore
) -> None:
    asked: list[hw.Awaited] = []

    @app.job(lane="calls", gates=[hw.Pool("lines", {"+1": 1})])
    async def call(job: hw.Job, phone: str) -> None:
        await job.hand_over(timeout="1ms")

    @call.reconcile
    async def ask(awaited: hw.Awaited) -> hw.Running | hw.Ended:
        asked.append(awaited)
        if len(asked) == 1:
            return hw.Running(extend="1ms")
        return hw.Ended("dead", body={"status": "no-answer"}, reason="no answer")

    sent = await app.send_async(call, phone="+49", subject="Ms. F")
    async with working(app):

        async def swept() -> bool:
            # Exactly at the deadline, not at the next sweep of the worker. While the provider is
            # being queried, the deadline is minutes in the future.
            view, now = await store.job(sent.id), (await store.read(StatsQuery())).now
            if view.state == "awaiting" and view.deadline_at < now + 1_000:
                await store.inner.wait((), view.deadline_at, 10**9)
                await store.inner.sweep(100)
            return view.state == "dead"

        await store.until(swept)
        view = await store.job(sent.id)
    assert (view.state, view.reason, len(view.runs)) == ("dead", "no answer", 1)
    one = asked[0]
    assert (one.id, one.run, one.ref, one.kind) == (sent.id, 1, f"{sent.id}:1", "call")
    assert (dict(one.args), dict(one.permits)) == ({"phone": "+49"}, {"lines": "+1"})
    assert (one.subject, one.lane, one.in_doubt) == ("Ms. F", "calls", False)
    assert one.handed_at is not None


async def test_cascade_asks_one_after_another_until_one_accepts(
    app: hw.App, store: ObservedStore
) -> None:
    offers: list[tuple[str, str]] = []
    offered = asyncio.Event()

    @app.job(cascade=True, gates=[hw.Slots("technician:{candidate}", 1)])
    async def offer(job: hw.Job, request: str) -> hw.Unfit | None:
        if job.candidate == "ann":
            return hw.Unfit("off duty")
        await job.offer(timeout="5m")
        offers.append((job.candidate, job.ref))
        offered.set()
        return None

    sent = await app.send_async(offer, request="R1", candidates=["ann", "bob", "eve"])
    async with working(app):
        await soon(offered)
        offered.clear()
        first = await app.signal_async(offers[0][1], event="1", final="declined", reason="busy")
        await soon(offered)
        second = await app.signal_async(offers[1][1], event="2", final="accepted")
        late = await app.signal_async(offers[0][1], event="3", final="accepted")
        view = await store.ends(sent.id)
    assert [who for who, _ in offers] == ["bob", "eve"]
    assert [one.answer for one in (first, second, late)] == ["applied", "applied", "late"]
    assert [(one.candidate, one.answer) for one in view.cascade.asked] == [
        ("ann", "unfit"),
        ("bob", "declined"),
        ("eve", "accepted"),
    ]


async def test_nothing_is_claimed_after_a_hand_over_or_return_that_releases_no_gate() -> None:
    # Only the memory store wakes no worker for jobs that its own process has just claimed.
    app, store = hw.App(), ObservedStore(open_store("memory://"))
    app.use(store)
    started: asyncio.Queue[str] = asyncio.Queue()

    @app.job(gates=[hw.Slots("line", 1)])
    async def call(job: hw.Job) -> None:
        await started.put(job.id)
        await job.hand_over(job.id, timeout="30m")

    first, second = [await app.send_async(call) for _ in range(2)]
    async with working(app):
        assert await started.get() == first.id
        await store.until(returned(store))
        for _ in range(50):
            # Everything woken by the settlements runs: this store and the worker share a loop.
            await pause(0)
        await app.signal_async(first.id, event="end", final="succeeded")
        assert await started.get() == second.id
        assert len(store.asked("claim")) == 2
    await store.inner.close()


@pytest.mark.parametrize("other", [{"lane": "theirs"}, {"tenant": "theirs"}])
async def test_reconcile_job_sent_for_a_job_of_another_scope_asks_nothing(
    app: hw.App, store: ObservedStore, other: dict[str, str]
) -> None:
    """A caller limited to a lane or a tenant could have any awaiting job settled."""

    @app.job(lane="calls")
    async def call(job: hw.Job) -> None:
        await job.hand_over(timeout="1h")

    @call.reconcile
    async def ask(awaited: hw.Awaited) -> hw.Ended:
        return hw.Ended("dead", reason=f"asked for {awaited.id}")

    app.lane("theirs")
    async with working(app):
        sent = await app.send_async(call)
        await store.becomes(sent.id, "awaiting")
        facts = {"job": sent.id, "run": 1, "asked": 1}
        forged = app.kind("call.reconcile").make(**other, **facts)
        await app.store.enqueue([forged])
        await store.ends(forged.id)
        assert (await store.job(sent.id)).state == "awaiting"
        genuine = app.kind("call.reconcile").make(**facts)
        await app.store.enqueue([genuine])
        assert (await store.ends(sent.id)).reason == f"asked for {sent.id}"
