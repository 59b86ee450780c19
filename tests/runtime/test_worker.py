"""A worker runs jobs and reports the outcome of each."""

from __future__ import annotations

import asyncio
import math
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest

import headway as hw
from headway.contract.definitions import CloseGate, DefineRequest, LaneSpec, ResetLane, SetLane
from headway.contract.store import Sent
from headway.contract.views import GatesQuery
from headway.core.job import NewJob
from headway.runtime.worker.claimer import CHECK_EVERY
from headway.stores.ledger.lane_claim import FLOWS
from tests.runtime.observed_store import ObservedStore, beat_soon, soon, working


async def test_job_runs_with_its_arguments_and_its_result_is_kept(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def add(job: hw.Job, left: int, right: int = 30) -> dict[str, int]:
        return {"sum": left + right, "attempt": job.attempt}

    sent = await app.send_async(add, left=12)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, view.result) == ("succeeded", b'{"sum":42,"attempt":1}')


async def test_handler_sees_what_its_job_was_sent_with(app: hw.App, store: ObservedStore) -> None:
    seen: list[Any] = []
    line = hw.Pool("line", {"+1": 1})

    @app.job(lane="calls", gates=[line])
    async def call(job: hw.Job, phone: str) -> None:
        seen.append((job.ref, job.lane, job.tenant, job.subject, job.priority, job.stage))
        seen.append((dict(job.permits), job.due_at.isoformat(), job.signal_url, job.cancelled))

    sent = await app.send_async(
        call,
        phone="+49",
        tenant="acme",
        subject="Ms. F",
        priority=7,
        due="2020-01-02T03:04:05.006Z",
    )
    async with working(app, signal_base="http://127.0.0.1:8080/"):
        await store.ends(sent.id)
    assert seen[0] == (f"{sent.id}:1", "calls", "acme", "Ms. F", 7, "")
    url = f"http://127.0.0.1:8080/v1/signals/{sent.id}%3A1"
    assert seen[1] == ({"line": "+1"}, "2020-01-02T03:04:05.006000+00:00", url, False)


async def test_failed_attempt_is_recorded_with_its_traceback_and_retried(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(retry=hw.Backoff(attempts=3, base="1ms", cap="2ms"))
    async def flaky(job: hw.Job) -> None:
        if job.attempt < 3:
            message = f"no luck in attempt {job.attempt}"
            raise ValueError(message)

    sent = await app.send_async(flaky)
    async with working(app):
        view = await store.ends(sent.id)
    assert view.state == "succeeded"
    assert [run.outcome for run in view.runs] == ["failed", "failed", "succeeded"]
    assert view.runs[0].error.startswith("ValueError: no luck in attempt 1\n")
    assert "in flaky" in view.runs[0].error


async def test_retry_sets_the_time_and_closes_a_gate_in_the_same_step(
    app: hw.App, store: ObservedStore
) -> None:
    twilio, line = hw.Slots("rate:twilio", 5), hw.Slots("line", 5)

    @app.job(gates=[twilio, line])
    async def dial(job: hw.Job) -> None:
        job.close("line", after="1m", reason="busy")
        raise hw.Retry("429", after="1h", close="rate:twilio")

    sent = await app.send_async(dial)
    async with working(app):
        view = await store.becomes(sent.id, "scheduled")
        closed, gate = (await store.read(GatesQuery(names=("line", "rate:twilio")))).rows
    run = view.runs[0]
    assert (run.outcome, run.error) == ("failed", "429")
    assert view.due_at - run.ended_at == 3_600_000
    assert (gate.open, gate.closed_reason) == (False, "429")
    assert gate.closed_until == view.due_at
    # What the handler closed before it raised.
    assert (closed.closed_reason, closed.closed_until) == ("busy", run.ended_at + 60_000)


async def test_snooze_closes_a_gate_in_the_same_step_and_uses_no_attempt(
    app: hw.App, store: ObservedStore
) -> None:
    twilio = hw.Slots("rate:twilio", 5)

    @app.job(gates=[twilio])
    async def dial(job: hw.Job) -> hw.Snooze:
        await job.hand_over()
        job.close("rate:twilio", after="1h", reason="429")
        return hw.Snooze(after="1h")

    sent = await app.send_async(dial)
    async with working(app):
        view = await store.becomes(sent.id, "scheduled")
        (gate,) = (await store.read(GatesQuery(names=("rate:twilio",)))).rows
    assert (view.attempt, view.runs[0].outcome) == (0, "snoozed")
    assert (gate.open, gate.closed_reason, gate.used) == (False, "429", 0)


async def test_dead_makes_no_further_attempt(app: hw.App, store: ObservedStore) -> None:
    @app.job()
    async def dial(job: hw.Job) -> None:
        raise hw.Dead("bad number")

    sent = await app.send_async(dial)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, view.reason, len(view.runs)) == ("dead", "bad number", 1)


async def test_snooze_repeats_the_attempt_but_not_the_run(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def wait(job: hw.Job) -> hw.Snooze | None:
        return hw.Snooze(after="1ms") if job.run == 1 else None

    sent = await app.send_async(wait)
    async with working(app):
        view = await store.ends(sent.id)
    assert [(run.run, run.attempt, run.outcome) for run in view.runs] == [
        (1, 1, "snoozed"),
        (2, 1, "succeeded"),
    ]


async def test_next_continues_with_the_gates_of_the_next_stage(
    app: hw.App, store: ObservedStore
) -> None:
    line = hw.Slots("line:{phone}", 1)
    permits: list[list[str]] = []

    @app.job(stages={"check": [], "dial": [line]})
    async def call(job: hw.Job, phone: str, note: str = "") -> hw.Next:
        return hw.Next("dial")

    @call.stage("dial")
    async def dial(job: hw.Job, phone: str) -> str:
        view = await store.job(job.id)
        permits.append(list(view.runs[-1].permits))
        return f"{job.stage} {phone}"

    sent = await app.send_async(call, phone="+49", note="x")
    async with working(app):
        view = await store.ends(sent.id)
    assert view.result == b'"dial +49"'
    assert permits == [["line:+49"]]
    assert [(run.stage, run.attempt) for run in view.runs] == [("check", 1), ("dial", 1)]


async def test_follow_up_jobs_are_created_with_the_settlement(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def second(job: hw.Job, word: str) -> str:
        return word

    @app.job(retry=hw.Backoff(base="1ms", cap="1ms"))
    async def first(job: hw.Job) -> None:
        made = second.make(word=f"after attempt {job.attempt}")
        job.then(made)
        ids.append(made.id)
        if job.attempt == 1:
            raise ValueError

    ids: list[str] = []
    await app.send_async(first)
    async with working(app):
        view = await store.ends(await store.until(lambda: _second(ids)))
    assert view.result == b'"after attempt 2"'
    assert await store.job(ids[0]) is None


async def _second(ids: list[str]) -> str | None:
    return ids[1] if len(ids) > 1 else None


async def test_follow_up_of_a_dead_job_gets_its_id_and_reason(
    app: hw.App, store: ObservedStore
) -> None:
    alerts: list[tuple[str, str, str]] = []
    alerted = asyncio.Event()

    @app.job(lane="alerts")
    async def alert(this: hw.Job, job: str, state: str, reason: str) -> None:
        alerts.append((job, state, reason))
        alerted.set()

    @app.job(on_final=alert)
    async def dial(job: hw.Job) -> None:
        raise hw.Dead("exhausted")

    sent = await app.send_async(dial)
    async with working(app):
        await soon(alerted)
    assert alerts == [(sent.id, "dead", "exhausted")]


async def test_unknown_kind_fails_by_policy_and_says_so(app: hw.App, store: ObservedStore) -> None:
    job = NewJob(id="01890000-0000-7000-8000-000000000001", kind="of another app")
    assert await store.enqueue([job]) == [Sent(job.id, True)]
    async with working(app, lanes="main"):
        view = await store.becomes(job.id, "scheduled")
    assert "unknown_kind" in view.runs[0].error
    assert "no handler for the kind 'of another app'" in view.reason


async def test_unknown_kind_is_dead_at_once_if_the_worker_says_so(
    app: hw.App, store: ObservedStore
) -> None:
    job = NewJob(id="01890000-0000-7000-8000-000000000003", kind="of another app")
    await store.enqueue([job])
    async with working(app, lanes="main", unknown="dead"):
        view = await store.ends(job.id)
    assert (view.state, view.attempt) == ("dead", 1)
    assert view.reason == "unknown_kind: this worker has no handler for the kind 'of another app'"


async def test_stored_arguments_refused_by_the_handler_fail_the_attempt(
    app: hw.App, store: ObservedStore
) -> None:
    called: list[int] = []

    @app.job()
    async def add(job: hw.Job, left: int) -> None:
        called.append(left)

    job = NewJob(id="01890000-0000-7000-8000-000000000002", kind="add", args=b'{"left":"twelve"}')
    await store.enqueue([job])
    async with working(app):
        view = await store.becomes(job.id, "scheduled")
    assert "add: argument 'left': expected int, got str" in view.runs[0].error
    assert called == []


async def test_noop_is_built_in_and_takes_any_arguments(app: hw.App, store: ObservedStore) -> None:
    one = await app.send_async("noop", anything=[1, {"x": None}], more="yes")
    two = NewJob(id="01890000-0000-7000-8000-000000000003", kind="noop", args=b'{"job":1}')
    await store.enqueue([two])
    async with working(app):
        first, second = await store.ends(one.id), await store.ends(two.id)
    assert (first.state, second.state) == ("succeeded", "succeeded")


async def test_thousands_of_jobs_each_run_once(app: hw.App, store: ObservedStore) -> None:
    ran: list[int] = []

    @app.job()
    async def count(job: hw.Job, n: int) -> None:
        ran.append(n)

    sent = await app.send_many_async(count.make(n=n) for n in range(3_333))
    async with working(app, concurrency=7) as worker:
        await store.until(lambda: _enough(worker, 3_333))
    assert sorted(ran) == list(range(3_333))
    assert len({one.id for one in sent}) == 3_333
    assert all(one.created for one in sent)


async def _enough(worker: hw.Worker, n: int) -> bool:
    return worker.ended >= n


@dataclass
class Mean:
    value: float | None


@pytest.mark.parametrize("answer", [object(), {"mean": [math.nan]}, Mean(-math.inf)])
async def test_result_that_json_cannot_represent_does_not_repeat_the_work(
    app: hw.App, store: ObservedStore, answer: object
) -> None:
    @app.job()
    async def strange(job: hw.Job) -> object:
        return answer

    sent = await app.send_async(strange)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, view.reason, len(view.runs)) == ("dead", view.error, 1)
    assert "the result " in view.reason


async def test_follow_up_at_an_unknown_gate_fails_only_its_own_run(
    app: hw.App, store: ObservedStore
) -> None:
    other = hw.App(store=store)

    @other.job(gates=[hw.Slots("nobody declares this", 1)])
    async def elsewhere(job: hw.Job) -> None: ...

    @app.job(retry=hw.Backoff(attempts=1))
    async def first(job: hw.Job, bad: bool) -> None:
        if bad:
            job.then(elsewhere.make())

    sent = await app.send_many_async(first.make(bad=n == 3) for n in range(6))
    async with working(app):
        views = [await store.ends(one.id) for one in sent]
    assert [view.state for view in views].count("succeeded") == 5
    assert "nobody declares this" in views[3].runs[0].error


@pytest.mark.parametrize(
    ("gate", "error"),
    [
        ("rate:typo", "the gate 'rate:typo' is not declared"),
        ("own:{busy}", "'own:{busy}' is a template, not a single gate"),
    ],
)
async def test_outcome_is_kept_though_the_gate_to_close_is_unknown(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture, gate: str, error: str
) -> None:
    @app.job(retry=hw.Backoff(attempts=2), gates=[hw.Rate("own:{busy}", 9, per="1s")])
    async def send(job: hw.Job, busy: bool) -> str:
        if busy:
            raise hw.Retry("429", after="1h", close=gate)
        job.close(gate, after="60s")
        return "sent"

    busy, sent = await app.send_many_async(send.make(busy=busy) for busy in (True, False))
    async with working(app):
        done = await store.ends(sent.id)
        retried = await store.becomes(busy.id, "scheduled")
    assert (done.state, done.result) == ("succeeded", b'"sent"')
    assert (retried.reason, retried.due_at) == ("429", (retried.runs[0].ended_at or 0) + 3_600_000)
    assert caplog.text.count(f"gates not closed: {error}") == 2


async def test_context_variables_of_one_job_are_not_seen_by_the_next(
    app: hw.App, store: ObservedStore
) -> None:
    word: ContextVar[str] = ContextVar("word", default="clean")
    seen: list[str] = []

    @app.job()
    async def leave(job: hw.Job) -> None:
        seen.append(word.get())
        word.set("dirty")

    sent = await app.send_many_async(leave.make() for _ in range(5))
    async with working(app, concurrency=1):
        for one in sent:
            await store.ends(one.id)
    assert seen == ["clean"] * 5


async def test_handler_that_exits_or_cancels_itself_fails_like_any_other(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(retry=hw.Backoff(attempts=1))
    async def leave(job: hw.Job, how: str) -> None:
        if how == "exit":
            raise SystemExit(3)
        if how == "stop":
            raise StopIteration
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    @app.job()
    async def after(job: hw.Job) -> str:
        return "still here"

    sent = [await app.send_async(leave, how=how) for how in ("exit", "stop", "cancel")]
    last = await app.send_async(after)
    async with working(app, concurrency=1):
        views = [await store.ends(one.id) for one in [*sent, last]]
    assert [view.state for view in views] == ["dead", "dead", "dead", "succeeded"]
    assert "SystemExit: 3" in views[0].error
    assert "CancelledError" in views[2].error


async def test_waiting_worker_starts_jobs_sent_to_it(app: hw.App, store: ObservedStore) -> None:
    @app.job(lane="one")
    async def one(job: hw.Job) -> None: ...

    async with working(app, lanes={"one": 1, "two": 3}):
        await store.until(lambda: _waits(store))
        sent = await app.send_async(one)
        view = await store.ends(sent.id)
    assert view.state == "succeeded"


async def _waits(store: ObservedStore) -> bool:
    return any(not reply.jobs for _, reply in store.asked("claim"))


async def test_closed_lane_starts_nothing_until_opened(app: hw.App, store: ObservedStore) -> None:
    @app.job()
    async def work(job: hw.Job) -> None: ...

    await app.declare()
    await store.define(DefineRequest(items=(CloseGate(name="lane:main"),), author="tester"))
    sent = await app.send_async(work)
    async with working(app):
        await store.until(lambda: _waits(store))
        assert (await store.job(sent.id)).state == "waiting"
        await store.open_gate("lane:main")
        view = await store.ends(sent.id)
    assert view.state == "succeeded"


class OneLook(hw.Timing):
    """Once `begun`, checks the prefetched jobs one more time, when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = False
        self.holds, self.may_look = asyncio.Event(), asyncio.Event()

    async def pause(self, seconds: float) -> None:
        if not self.begun or seconds != CHECK_EVERY:
            await super().pause(seconds)
        elif self.holds.is_set():
            await asyncio.Event().wait()
        else:
            self.holds.set()
            await self.may_look.wait()


async def test_prefetched_jobs_of_a_busy_worker_go_to_an_idle_one(
    store: ObservedStore,
) -> None:
    timing = OneLook()
    app = hw.App(store=store, timing=timing)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.job()
    async def work(job: hw.Job, n: int) -> str:
        if not n:
            begun.set()
            await go_on.wait()
        return "done"

    first = await app.send_async(work, n=0)
    async with working(app, concurrency=1, name="busy", chores=False) as busy:
        await soon(begun)
        held = await app.send_many_async([work.make(n=n) for n in range(1, 9)])
        current: Any = busy._current
        # As if its handlers had been quick so far, with a backlog.
        current._claimer._prefetch.target = 20
        current._claimer._dry = False
        timing.begun = True
        current.queue.asked.set()
        await soon(timing.holds)
        assert len(current.queue.plain) == len(held)
        timing.may_look.set()
        async with working(app, concurrency=2, name="idle", chores=False) as idle:
            for sent in held:
                view = await store.ends(sent.id)
                assert (view.state, view.runs[-1].worker) == ("succeeded", idle.id)
                assert [run.outcome for run in view.runs[:-1]] == ["released"]
                assert view.attempt == 1
        go_on.set()
        assert (await store.ends(first.id)).runs[-1].worker == busy.id


async def test_worker_without_a_free_handler_leaves_new_jobs_to_others(
    app: hw.App, store: ObservedStore
) -> None:
    begun = asyncio.Event()

    @app.job()
    async def work(job: hw.Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    await app.send_async(work)
    async with working(app, concurrency=1, chores=False, grace="0s") as busy:
        await soon(begun)
        current: Any = busy._current
        current._claimer._prefetch.target = 20
        current._claimer._dry = True
        claims = len(store.asked("claim"))
        sent = await app.send_async(work)
        current.queue.asked.set()
        beats = len(store.asked("beat"))
        beat_soon(busy)

        async def beaten() -> bool:
            return len(store.asked("beat")) > beats

        await store.until(beaten)
        assert len(store.asked("claim")) == claims
        assert (await store.job(sent.id)).state == "waiting"


async def test_job_behind_more_closed_flows_than_a_claim_examines_is_started(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def work(job: hw.Job) -> None: ...

    tenants = [f"tenant-{number:03}" for number in range(FLOWS + 1)]
    closed = tuple(CloseGate(name=f"tenant:{tenant}") for tenant in tenants[:-1])
    await store.inner.define(DefineRequest(items=closed, author="tester"))
    sent = await app.send_many_async([work.make(tenant=tenant) for tenant in tenants])
    async with working(app):
        view = await store.ends(sent[-1].id)
    assert view.state == "succeeded"


@pytest.mark.parametrize(
    ("options", "lease_ms"),
    [({}, 5_000), ({"lanes": "mail,calls"}, 1_000), ({"lease": "9s"}, 9_000)],
)
async def test_worker_uses_the_shortest_lease_that_its_lanes_have_when_it_starts(
    app: hw.App, store: ObservedStore, options: dict[str, Any], lease_ms: int
) -> None:
    app.lane("main", lease="20s")
    app.lane("mail", lease="20s")

    @app.job()
    async def work() -> None: ...

    await app.declare()
    specs = [
        LaneSpec(name="main", lease_ms=5_000),
        LaneSpec(name="calls", lease_ms=1),  # below what `app.lane` accepts
    ]
    for spec in specs:
        await store.define(DefineRequest(items=(SetLane(spec=spec),), author="ada"))
    await app.worker(until_idle=True, **options).run()
    claims = store.asked("claim")
    assert claims
    assert {request.lease_ms for request, _ in claims} == {lease_ms}


async def test_worker_started_again_after_a_reset_of_its_lane_uses_the_default_lease(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job()
    async def work() -> None: ...

    await app.declare()
    worker = app.worker(until_idle=True)
    changes = (SetLane(spec=LaneSpec(name="main", lease_ms=5_000)), ResetLane(name="main"))
    for change, lease_ms in zip(changes, (5_000, 30_000), strict=True):
        await store.define(DefineRequest(items=(change,), author="ada"))
        await worker.run()
        assert store.asked("claim")[-1][0].lease_ms == lease_ms
