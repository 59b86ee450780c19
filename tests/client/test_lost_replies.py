"""A proxy loses the reply to each call once: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from threading import get_ident

import pytest

import headway as hw
from headway.client.address import read_address
from headway.client.calls import HttpCall, HttpCalls, Method
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import Role
from headway.contract.operate import ActRequest, Verb
from headway.contract.outcomes import Succeeded, Verdict
from headway.contract.views import TrailQuery
from headway.core.job import MAX_BATCH
from headway.core.state import State
from tests.client.waiting import Ended, at_work, final, until
from tests.server.rig import serving
from tests.servers.proxy import Proxy


async def test_job_whose_reply_was_lost_is_sent_once() -> None:
    async with serving(tokens=False) as rig:
        with Proxy(rig.url) as proxy:
            client = hw.Client(proxy.url)
            await client.job_async("01a1fd7c-0000-7000-8000-000000000000")
            proxy.lose_reply_to(b"/v1/jobs")
            sent = await client.send_async("noop")
            assert proxy.cut.is_set()
            # The job already existed when the call was repeated.
            assert not sent.created
            assert [one.id for one in (await client.jobs_async()).rows] == [sent.id]
            await client.close_async()


async def test_forced_release_whose_reply_was_lost_takes_one_permit_and_says_so() -> None:
    async with serving(tokens=False) as rig:
        await rig.call(None, "PUT", "/v1/gates/line", {"kind": "slots", "capacity": 1})
        job = await rig.send(None, lane="calls", gates=["line"])
        await rig.store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=(("calls", 1),)))
        with Proxy(rig.url) as proxy:
            client = hw.Client(proxy.url)
            await client.job_async(job)
            proxy.lose_reply_to(b"/v1/permits")
            assert await client.remote.release_permit("line", job, "ann", "stuck")
            assert proxy.cut.is_set()
            assert not await client.remote.release_permit("line", job, "ann", "stuck")
            await client.close_async()
        trail = await rig.store.read(TrailQuery())
        assert [one.verb for one in trail.rows].count("release_permit") == 1


async def test_lost_reply_is_reported_as_unknown_without_patience() -> None:
    async with serving(tokens=False) as rig:
        with Proxy(rig.url) as proxy:
            client = hw.Client(proxy.url, patience="0s")
            proxy.lose_reply_to(b"/v1/jobs")
            with pytest.raises(hw.OutcomeUnknown):
                await client.send_async("noop", key="order-17")
            again = await client.send_async("noop", key="order-17")
            assert not again.created
            await client.close_async()


async def test_synchronous_call_iterates_its_jobs_in_the_thread_of_its_caller() -> None:
    threads: list[int] = []

    def jobs() -> Iterator[dict[str, object]]:
        for _ in range(MAX_BATCH + 1):
            threads.append(get_ident())
            yield {"kind": "noop"}

    def send(url: str) -> int:
        with hw.Client(url) as client:
            assert len(client.send_many(jobs())) == MAX_BATCH + 1
        return get_ident()

    async with serving(tokens=False) as rig:
        assert {await asyncio.to_thread(send, rig.url)} == set(threads)


@pytest.mark.parametrize("make", [hw.Client, hw.App])
async def test_call_in_progress_when_another_task_closes_has_an_unknown_outcome(
    make: type[hw.Client] | type[hw.App],
) -> None:
    asked = asyncio.Event()

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as server:
        client = make(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        sending = asyncio.create_task(client.send_async("noop"))
        await asked.wait()
        await client.close_async()
        with pytest.raises(hw.OutcomeUnknown, match="was closed by another caller"):
            await sending
        again = asyncio.create_task(client.send_async("noop"))
        asked.clear()
        await asked.wait()
        again.cancel()
        with pytest.raises(asyncio.CancelledError):
            await again
        await client.close_async()


class Leaping(hw.Timing):
    """A clock that each pause advances at once."""

    now = 0.0

    def __init__(self) -> None:
        self.limits: list[float | None] = []

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        self.limits.append(seconds)
        return super().limit(seconds)

    def monotonic(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.now += seconds
        await super().pause(0)


@asynccontextmanager
async def refusing(
    first: int, clock: Leaping, retry_after: bytes = b"7", later: int = 503
) -> AsyncIterator[HttpCalls]:
    """Serve one status for the first call, and another for every later one."""
    statuses = iter([first])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        status = next(statuses, later)
        writer.write(b"HTTP/1.1 %d .\r\nContent-Length: 0\r\n" % status)
        writer.write(b"Retry-After: %s\r\nConnection: close\r\n\r\n" % retry_after)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = read_address(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        calls = HttpCalls(address, timeout_s=60, timing=clock)
        yield calls
        await calls.close()


@pytest.mark.parametrize("later", [429, 503])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_possibly_written_call_is_reported_even_if_later_tries_were_refused(
    method: Method, later: int
) -> None:
    clock = Leaping()
    async with refusing(502, clock, later=later) as calls:
        with pytest.raises(hw.OutcomeUnknown):
            await calls.ask(HttpCall(method=method, path="/v1/jobs", patience_s=20))
    assert clock.now == 14  # Retry-After, waited for twice


async def test_call_waits_until_the_date_of_retry_after_but_at_most_a_minute() -> None:
    clock = Leaping()
    async with refusing(503, clock, b"Fri, 01 Jan 2999 00:00:00 GMT") as calls:
        with pytest.raises(hw.StoreUnavailable):
            await calls.ask(HttpCall(method="POST", path="/v1/jobs", patience_s=100))
    assert clock.now == 60


async def test_long_poll_adds_its_wait_to_the_call_timeout() -> None:
    clock = Leaping()
    async with refusing(503, clock) as calls:
        with pytest.raises(hw.StoreUnavailable):
            await calls.ask(HttpCall(method="POST", path="/v1/claims", waits_s=25))
    assert clock.limits == [85]


async def test_unreachable_server_is_reported_as_unavailable() -> None:
    async with serving(tokens=False) as rig:
        with Proxy(rig.url) as proxy:
            client = hw.Client(proxy.url, patience="0s")
            proxy.refuse()
            with pytest.raises(hw.StoreError):
                await client.send_async("noop")
            proxy.resume()
            assert (await client.send_async("noop")).created
            await client.close_async()


@pytest.mark.parametrize("path", [b"/v1/claims", b"/v1/settlements", b"/v1/leases"])
async def test_worker_call_whose_reply_was_lost_runs_each_job_once(path: bytes) -> None:
    app, ended = hw.App("memory://"), Ended()

    @app.job(lane="mail")
    async def send(n: int) -> None:
        ended.add(n)

    async with serving(tokens=False) as rig:
        with Proxy(rig.url) as proxy:
            producer = hw.Client(rig.url)
            async with at_work(proxy.url, app, lease="1500ms", concurrency=2):
                job = {"kind": "send", "lane": "mail"}
                first = await producer.send_many_async([{**job, "args": {"n": 0}}])
                await ended.until(1)
                proxy.lose_reply_to(path)
                rest = [{**job, "args": {"n": n}} for n in range(1, 9)]
                sent = await producer.send_many_async(rest)
                for one in (*first, *sent):
                    assert await final(rig, one.id) is State.SUCCEEDED

                async def was_cut() -> bool:
                    return proxy.cut.is_set()

                await until(was_cut)
            await producer.close_async()
    assert sorted(ended.all) == list(range(9))


async def test_job_claimed_by_a_lost_poll_is_returned_with_its_attempt() -> None:
    app, ended = hw.App("memory://"), Ended()

    @app.job(lane="calls", gates=[hw.Slots("line", 1)])
    async def call(job: hw.Job, n: int) -> None:
        ended.add((n, job.attempt))

    async with serving(tokens=False) as rig:
        with Proxy(rig.url) as proxy:
            producer = hw.Client(rig.url)
            async with at_work(proxy.url, app, lease="1500ms"):

                async def waits() -> bool:
                    return len(rig.service.long_polls) == 1

                await until(waits)
                proxy.cut_after(1)
                await producer.send_async(call, n=1)
                await ended.until(1)
            await producer.close_async()
    assert ended.all == [(1, 1)]


async def test_signal_whose_reply_was_lost_is_applied_once() -> None:
    async with serving(tokens=False) as rig:
        with Proxy(rig.url) as proxy:
            client = hw.Client(proxy.url)
            proxy.lose_reply_to(b"/v1/signals")
            reply = await client.signal_async("CA17", event="end", final="succeeded")
            assert reply.answer in {hw.SignalResult.ALREADY, hw.SignalResult.KEPT}
            await client.close_async()


async def test_repeat_of_a_cancel_returns_what_the_first_did() -> None:
    async with serving(tokens=False) as rig:
        with Proxy(rig.url) as proxy:
            client = hw.Client(proxy.url)
            sent = await client.send_async("noop")
            proxy.lose_reply_to(b"/v1/moves")
            assert await client.cancel_async(sent.id) == "cancelled"
            await client.close_async()


async def test_action_that_a_program_repeats_is_applied_once() -> None:
    async with serving(tokens=False) as rig:
        client = hw.Client(rig.url)
        sent = await client.send_async("noop")

        def request(name: str, verb: Verb) -> ActRequest:
            return ActRequest(request=name, ids=(sent.id,), verb=verb, author="ann")

        cancelled = await client.remote.act(request("1", Verb.CANCEL))
        await client.remote.act(request("2", Verb.RETRY))
        assert await client.remote.act(request("1", Verb.CANCEL)) == cancelled
        view = await client.job_async(sent.id)
        assert (cancelled[0].answer, view and view.state) == ("done", State.WAITING)
        await client.close_async()


async def test_manual_settlement_whose_reply_was_lost_is_written_once() -> None:
    async with serving(tokens=False) as rig:
        with Proxy(rig.url) as proxy:
            client = hw.Client(proxy.url)
            await client.send_async("noop")
            (job,) = (await client.claim_async("w", request=1)).jobs
            proxy.lose_reply_to(b"/v1/settlements")
            verdicts = await client.settle_async("w", [Succeeded(job.id, job.run)])
            assert verdicts == [Verdict.ALREADY]
            await client.close_async()


async def test_wrong_token_is_reported_at_once_without_retry() -> None:
    asked: list[bytes] = []
    async with serving() as rig:
        with Proxy(rig.url) as proxy:
            proxy.show(asked.append)
            token = "hw_0123456789abcdef_" + "A" * 43
            client = hw.Client(proxy.url, token)
            with pytest.raises(hw.Unauthenticated) as refused:
                await client.send_async("noop")
            assert len([one for one in asked if one.startswith(b"POST")]) == 1
            assert token not in f"{client!r} {client.store!r} {refused.value!r} {refused.value}"
            await client.close_async()


async def test_expired_token_is_reported_as_expired() -> None:
    async with serving() as rig:
        client = hw.Client(rig.url, await rig.token(Role.PRODUCER, expires_at=1))
        with pytest.raises(hw.Unauthenticated):
            await client.send_async("noop")
        await client.close_async()
