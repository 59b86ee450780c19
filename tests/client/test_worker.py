"""A worker of the runtime on a server: the same handlers, leases, stages and hand-overs."""

from __future__ import annotations

import asyncio

import pytest

import headway as hw
from headway.client.address import ServerAddress
from headway.client.remote_store import RemoteStore
from headway.contract.claims import BeatRequest, ClaimReply, ClaimRequest
from headway.contract.definitions import DefineRequest, LaneSpec, Role, SetLane
from headway.contract.operate import Acted, ActRequest, Edit, Verb
from headway.contract.outcomes import Succeeded, Verdict
from headway.contract.views import JobQuery, StatsQuery, WorkersQuery
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from tests.client.served import Served
from tests.client.waiting import Ended, at_work, final, until
from tests.plain_jobs import job
from tests.server.rig import Rig, serving


async def test_jobs_run_with_their_arguments_and_results_are_kept() -> None:
    app = hw.App("memory://")

    @app.job(lane="mail")
    async def send(to: str, n: int = 1) -> dict[str, object]:
        return {"to": to, "n": n}

    async with serving(tokens=False) as rig, at_work(rig.url, app) as client:
        sent = await client.send_async(send, to="ada@example.org")
        assert await final(rig, sent.id) is State.SUCCEEDED
        view = await client.job_async(sent.id)
        assert view is not None
        assert view.result == b'{"to":"ada@example.org","n":1}'
        assert view.run == 1


async def test_worker_runs_jobs_of_a_lane_whose_lease_is_longer_than_a_claim_may_have() -> None:
    app = hw.App("memory://")

    @app.job()
    async def work() -> None: ...

    async with serving(tokens=False) as rig:
        spec = LaneSpec(name="main", lease_ms=2 * 86_400_000)
        await rig.store.define(DefineRequest(items=(SetLane(spec=spec),), author="ada"))
        async with hw.Client(rig.url) as client:
            await client.send_async(work)
            worker = client.worker(app, until_idle=True)
            await worker.run()
        assert worker.ended == 1


async def test_job_that_arrives_while_the_worker_waits_runs_at_once() -> None:
    app, ended = hw.App("memory://"), Ended()

    @app.job(gates=[hw.Slots("line", 1)])
    async def call(n: int) -> None:
        ended.add(n)

    async with serving(tokens=False) as rig, at_work(rig.url, app) as client:
        for n in range(20):
            await until_polling(rig)
            await client.send_async(call, n=n)
            await ended.until(n + 1)
    assert ended.all == list(range(20))


async def until_polling(rig: Rig) -> None:
    async def waits() -> bool:
        return len(rig.service.long_polls) == 1

    await until(waits)


async def test_gated_jobs_never_exceed_the_capacity_and_none_is_lost() -> None:
    app, ended = hw.App("memory://"), Ended()
    inside: set[int] = set()

    @app.job(lane="calls", gates=[hw.Slots("line", 3)])
    async def call(n: int) -> None:
        inside.add(n)
        assert len(inside) <= 3
        await REAL.pause(0)
        inside.remove(n)
        ended.add(n)

    async with serving(tokens=False) as rig:
        async with (
            at_work(rig.url, app, concurrency=4) as client,
            at_work(rig.url, app, client=client, concurrency=4),
        ):
            # Sent by the App, so that its gates are declared first.
            await app.send_many_async([call.make(n=n) for n in range(300)])
            await ended.until(300)
        stats = await rig.store.read(StatsQuery())
        # A claim that is cancelled while its reply is on the way hands its jobs back: more starts.
        assert stats.totals["succeeded"] == 300
    assert sorted(ended.all) == list(range(300))


async def test_failed_attempt_is_retried_and_a_dead_one_says_why() -> None:
    app = hw.App("memory://")

    @app.job(retry=hw.Backoff(attempts=2, base="1ms", jitter="none"))
    async def fails() -> None:
        raise hw.Retry("not now", after="1ms")

    async with serving(tokens=False) as rig, at_work(rig.url, app) as client:
        sent = await client.send_async(fails)
        assert await final(rig, sent.id) is State.DEAD
        view = await client.job_async(sent.id)
        assert view is not None
        assert [run.outcome for run in view.runs] == ["failed", "failed"]
        assert "not now" in view.error


async def test_stages_continue_with_their_gates() -> None:
    app, ended = hw.App("memory://"), Ended()

    @app.job(stages={"check": [], "dial": [hw.Slots("phone:{phone}", 1)]})
    async def call(job: hw.Job, phone: str) -> hw.Next:
        ended.add(("check", job.stage))
        return hw.Next("dial")

    @call.stage("dial")
    async def dial(job: hw.Job, phone: str) -> None:
        ended.add(("dial", phone))

    async with serving(tokens=False) as rig, at_work(rig.url, app) as client:
        sent = await client.send_async(call, phone="+1555")
        assert await final(rig, sent.id) is State.SUCCEEDED
    assert ended.all == [("check", "check"), ("dial", "+1555")]


async def test_hand_over_awaits_a_signal_sent_to_the_handlers_url() -> None:
    app, urls = hw.App("memory://"), Ended()

    @app.job()
    async def call(job: hw.Job) -> None:
        await job.hand_over(job.ref, timeout="1h")
        urls.add(job.signal_url)

    async with serving(tokens=False) as rig, at_work(rig.url, app) as client:
        sent = await client.send_async(call)
        await urls.until(1)
        reply = await rig.http.post(urls.all[0], json={"event": "end-1", "final": "succeeded"})
        assert reply.json()["answer"] == "applied"
        assert await final(rig, sent.id) is State.SUCCEEDED
        again = await client.signal_async(f"{sent.id}:1", event="end-1", final="succeeded")
        assert again.answer is hw.SignalResult.ALREADY


async def test_follow_up_jobs_are_created_in_the_settlement() -> None:
    app, ended = hw.App("memory://"), Ended()

    @app.job(lane="first")
    async def first(job: hw.Job) -> None:
        job.then(second.make(n=7))

    @app.job(lane="second")
    async def second(n: int) -> None:
        ended.add(n)

    async with serving(tokens=False) as rig, at_work(rig.url, app) as client:
        await client.send_async(first)
        await ended.until(1)
    assert ended.all == [7]


async def test_cancelled_job_is_reported_by_the_next_beat_and_ends_cancelled() -> None:
    app, started, never = hw.App("memory://"), Ended(), asyncio.Event()

    @app.job()
    async def long() -> None:
        started.add(1)
        await never.wait()

    async with serving(tokens=False) as rig, at_work(rig.url, app, lease="1s") as client:
        sent = await client.send_async(long)
        await started.until(1)
        assert await client.cancel_async(sent.id, reason="a drill") == "running"
        assert await final(rig, sent.id) is State.CANCELLED


async def test_stopping_worker_hands_back_what_it_waits_for_and_leaves() -> None:
    app = hw.App("memory://")

    @app.job()
    async def work() -> None: ...

    async with serving(tokens=False) as rig:
        async with at_work(rig.url, app):
            await until_polling(rig)
        assert len(rig.service.long_polls) == 0
        workers = await rig.store.read(WorkersQuery())
        now = (await rig.store.read(StatsQuery())).now
        assert [one.lease_until <= now for one in workers] == [True]
        sent = await rig.send(None, kind="work")
        view = await rig.ask(None, f"/v1/jobs/{sent}")
        assert view["state"] == "waiting"


async def test_worker_with_a_refused_token_exits_with_the_reason_after_one_try() -> None:
    app = hw.App("memory://")

    @app.job()
    async def work() -> None: ...

    async with serving() as rig:
        client = hw.Client(rig.url, "hw_0123456789abcdef_" + "A" * 43)
        with pytest.raises(hw.Unauthenticated) as refused:
            await client.worker(app).run()
        assert "A" * 43 not in f"{refused.value!r} {refused.value}"
        await client.close_async()


async def test_workers_token_runs_jobs_without_permission_to_declare() -> None:
    app, ended = hw.App("memory://"), Ended()
    line = hw.Slots("line", 1)

    @app.job(lane="calls", gates=[line])
    async def call(n: int) -> None:
        ended.add(n)

    async with serving() as rig:
        operator = hw.Client(rig.url, rig.tokens[Role.OPERATOR])
        await operator.send_async(call, n=1)
        token = await rig.token(Role.WORKER, lanes=["calls"])
        async with at_work(rig.url, app, token=token):
            await ended.until(1)
        await operator.close_async()


async def test_outcome_beyond_the_tokens_scope_fails_its_run_and_not_the_worker() -> None:
    app = hw.App("memory://")

    @app.job(lane="first", retry=hw.Backoff(attempts=1))
    async def first(job: hw.Job, follow: bool) -> None:
        if follow:
            job.then(first.make(follow=False))

    async with serving() as rig:
        token = await rig.token(Role.WORKER, lanes=["first"])
        async with at_work(rig.url, app, token=token):
            refused = await rig.send(
                kind="first", lane="first", args={"follow": True}, retry={"attempts": 1}
            )
            assert await final(rig, refused) is State.DEAD
            plain = await rig.send(kind="first", lane="first", args={"follow": False})
            assert await final(rig, plain) is State.SUCCEEDED
        error = (await rig.ask(Role.VIEWER, f"/v1/jobs/{refused}"))["error"]
    assert "does not have the permission 'send'" in error
    assert "producer" in error


async def test_worker_of_another_token_cannot_settle_under_the_same_name() -> None:
    async with serving() as rig:
        one, two = await rig.token(Role.WORKER), await rig.token(Role.WORKER)
        mine, theirs = hw.Client(rig.url, one), hw.Client(rig.url, two)
        await rig.send()
        (job,) = (await mine.claim_async("w")).jobs
        lost = await theirs.settle_async("w", [Succeeded(job.id, job.run)])
        done = await mine.settle_async("w", [Succeeded(job.id, job.run)])
        assert (lost, done) == ([Verdict.LOST], [Verdict.DONE])
        for client in (mine, theirs):
            await client.close_async()


async def test_polled_run_that_was_lost_since_is_given_to_no_handler() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    with Served(store) as served:
        remote = RemoteStore(ServerAddress(url=served.url))

        async def claimed(request: int) -> ClaimReply:
            lanes = (("main", 1),)
            return await remote.claim(
                ClaimRequest(worker="w", request=request, lanes=lanes, n=1, free=1)
            )

        seen = (await claimed(1)).seen
        await remote.enqueue([job(1)])
        await remote.wait((), None, seen)
        clock.advance(60_000)
        served.run(store.sweep(10))
        beat = BeatRequest(worker="w", running=(), request=1, lease_ms=30_000)
        assert (await remote.beat(beat)).lost == ()
        assert (await claimed(2)).jobs == []
        await remote.close()
    await store.close()


async def test_signal_url_of_the_oldest_run_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.client.remote_store.MOST_URLS", 2)
    async with serving(tokens=False) as rig:
        remote = RemoteStore(ServerAddress(url=rig.url))
        for _ in range(3):
            await rig.send(None)
        request = ClaimRequest(worker="w", request=1, lanes=(("main", 1),), n=3, free=3)
        runs = [f"{one.id}:{one.run}" for one in (await remote.claim(request)).jobs]
        assert [remote.signal_url(run) is None for run in runs] == [True, False, False]
        await remote.close()


async def test_edit_changes_priority_due_time_and_arguments() -> None:
    async with serving(tokens=False) as rig:
        remote = RemoteStore(ServerAddress(url=rig.url))
        id = await rig.send(None)
        due_at = remote.wall_at() + 3_600_000
        edit = Edit(priority=9, due_at=due_at, args=b'{"n":2}')
        request = ActRequest(request="1", ids=(id,), verb=Verb.EDIT, edit=edit, author="ada")
        assert [one.answer for one in await remote.act(request)] == [Acted.DONE]
        view = await rig.store.read(JobQuery(id=id))
        assert view is not None
        assert (view.priority, view.due_at, view.args) == (9, due_at, b'{"n":2}')
        await remote.close()
