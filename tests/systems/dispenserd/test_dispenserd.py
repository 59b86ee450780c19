from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.views import JobsQuery, LanesQuery
from headway.core.errors import StoreUnavailable
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.systems.lanes.dispenserd import dispenserd
from tests.servers.stores import EVERYWHERE, NewUrl
from tests.systems.dispenserd.rig import Rig, serving


@pytest.fixture
async def rig(new_url: NewUrl) -> AsyncIterator[Rig]:
    async with serving(new_url("sqlite")) as rig:
        yield rig


async def test_status_shows_everything_that_clients_read(rig: Rig) -> None:
    said = await rig.get("/")
    assert list(said) == ["name", "version", "timestamp", "status", "payload"]
    assert (said["name"], said["status"]) == ("dispenserd", "ok")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", said["timestamp"])
    assert said["payload"] == {
        "system": {"pid": os.getpid(), "cpu_count": os.cpu_count()},
        "queued_jobs": {"main": 0},
        "idle_workers": {"main": 0},
    }


async def test_status_counts_jobs_and_receivers_of_each_lane(rig: Rig) -> None:
    await rig.schedule("a")
    await rig.schedule("b", lane="video")
    await rig.schedule("c", lane="video")
    writer = await rig.connect("/receive_block", {"lane": "idle"})
    await rig.receivers(1)
    payload = (await rig.get("/"))["payload"]
    assert payload["queued_jobs"] == {"idle": 0, "main": 1, "video": 2}
    assert payload["idle_workers"] == {"idle": 1, "main": 0, "video": 0}
    writer.transport.abort()
    await rig.receivers(0)
    assert (await rig.get("/"))["payload"]["idle_workers"]["idle"] == 0


@pytest.mark.parametrize("path", ["/nothing", "/jobs/", "/schedule/x", "/receive", "/%00"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_unknown_paths_answer_the_status(rig: Rig, path: str, method: str) -> None:
    reply = await rig.http.request(method, path)
    assert reply.status_code == 200
    assert reply.json()["name"] == "dispenserd"


async def test_any_method_is_accepted(rig: Rig) -> None:
    reply = await rig.http.put("/schedule", content='{"message": "a"}')
    assert reply.json() == {"status": "ok", "code": 0}
    assert (await rig.http.get("/receive_noblock")).json()["message"] == "a"


async def test_empty_queue_lists_main(rig: Rig) -> None:
    assert await rig.get("/jobs") == {"main": []}


async def test_jobs_are_listed_by_priority_and_then_by_time(rig: Rig) -> None:
    for number, priority in enumerate((512, 0, 7, 512, 0)):
        await rig.schedule(f"{priority}-{number}", priority=priority)
    await rig.schedule("last", priority=4_294_967_295)
    await rig.schedule("usual")
    jobs = (await rig.get("/jobs"))["main"]
    assert [job["message"] for job in jobs] == [
        "0-1",
        "0-4",
        "7-2",
        "512-0",
        "512-3",
        "usual",
        "last",
    ]
    assert [job["priority"] for job in jobs] == [0, 0, 7, 512, 512, 512, 4_294_967_295]
    assert len({job["job_num"] for job in jobs}) == 7
    assert len({job["hash"] for job in jobs}) == 7
    for job in jobs:
        assert list(job) == ["job_num", "hash", "timestamp", "lane", "priority", "message"]
        assert re.fullmatch("[0-9a-f]{40}", job["hash"])
        assert job["lane"] == "main"


async def test_jobs_are_received_in_the_order_in_which_they_are_listed(rig: Rig) -> None:
    for number in range(30):
        await rig.schedule(f"job #{number}", priority=number * 7 % 5)
    listed = await rig.messages()
    received = [(await rig.post("/receive_noblock"))["message"] for _ in range(30)]
    assert received == listed
    assert await rig.post("/receive_noblock") == {
        "status": "ok",
        "code": 2,
        "message": "empty queue",
    }
    assert await rig.messages() == []


async def test_received_job_is_done(rig: Rig) -> None:
    await rig.schedule("a")
    assert await rig.post("/receive_noblock") == {"status": "ok", "code": 0, "message": "a"}
    async with asyncio.timeout(120):
        while True:
            page = await rig.service.store.read(JobsQuery(lane="dispenserd/main"))
            if page.rows[0].state is State.SUCCEEDED:
                break
            await REAL.pause(0.001)


async def test_lanes_are_separate(rig: Rig) -> None:
    await rig.schedule("a", lane="video")
    assert (await rig.post("/receive_noblock"))["code"] == 2
    assert (await rig.post("/receive_noblock", {"lane": "audio"}))["code"] == 2
    assert (await rig.post("/receive_noblock", {"lane": "video"}))["message"] == "a"


@pytest.mark.parametrize("lane", ["*", "vide?", "[v]ideo"])
async def test_lane_whose_name_looks_like_a_pattern_is_a_lane_of_its_own(
    rig: Rig, lane: str
) -> None:
    receiving = asyncio.create_task(rig.post("/receive_block", {"lane": lane}))
    await rig.receivers(1)
    assert (await rig.get("/"))["payload"]["idle_workers"][lane] == 1
    await rig.schedule("theirs", lane="video")
    await rig.schedule("ours", lane=lane)
    assert (await receiving)["message"] == "ours"
    assert (await rig.post("/receive_noblock", {"lane": lane}))["message"] == "empty queue"
    await rig.schedule("ours again", lane=lane)
    assert (await rig.post("/receive_noblock", {"lane": lane}))["message"] == "ours again"
    assert await rig.messages("video") == ["theirs"]


async def test_lane_once_named_stays_listed(rig: Rig) -> None:
    await rig.schedule("a", lane="video")
    await rig.post("/receive_noblock", {"lane": "video"})
    await rig.post("/receive_noblock", {"lane": "asked"})
    assert await rig.get("/jobs") == {"asked": [], "main": [], "video": []}


@pytest.mark.parametrize("lane", [None, ""])
async def test_no_lane_means_main(rig: Rig, lane: str | None) -> None:
    await rig.schedule("a", lane=lane)
    assert (await rig.get("/jobs"))["main"][0]["lane"] == "main"
    assert (await rig.post("/receive_noblock", {"lane": lane}))["message"] == "a"


@pytest.mark.parametrize(
    "body",
    ["", "{}", "[]", "not JSON", '{"priority": 1}', '{"message": null}', "message=a", "[" * 9_999],
)
async def test_missing_message_is_refused(rig: Rig, body: str) -> None:
    reply = await rig.http.post("/schedule", content=body)
    assert reply.status_code == 400
    assert reply.json() == {"status": "error", "code": 1, "message": "missing message"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"message": 5},
        {"priority": -1},
        {"priority": 4_294_967_296},
        {"priority": "high"},
        {"priority": 1.5},
        {"priority": True},
        {"lane": 5},
        {"lane": "x" * 600},
        {"lane": "a\0b"},
    ],
)
async def test_unstorable_message_is_refused(rig: Rig, wrong: dict[str, Any]) -> None:
    reply = await rig.http.post("/schedule", content=json.dumps({"message": "a", **wrong}))
    assert reply.status_code == 400
    assert (reply.json()["status"], reply.json()["code"]) == ("error", 1)
    assert await rig.get("/jobs") == {"main": []}


async def test_too_large_message_is_refused(rig: Rig) -> None:
    reply = await rig.http.post("/schedule", content=json.dumps({"message": "x" * 1_000_001}))
    assert reply.status_code == 413
    assert reply.json()["code"] == 1


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "text/plain", "application/json", ""]
)
async def test_body_is_json_whatever_its_content_type(rig: Rig, kind: str) -> None:
    headers = {"Content-Type": kind}
    body = '{"Message": "a", "lane": "b"}'
    reply = await rig.http.post("/schedule", content=body, headers=headers)
    assert reply.json() == {"status": "ok", "code": 0}
    reply = await rig.http.post("/receive_noblock", content='{"lane": "b"}', headers=headers)
    assert reply.json()["message"] == "a"


@pytest.mark.parametrize(
    "message", ["", "ünïcode 🚀", '{"nested": "json"}', "a\0b\n", "x" * 300_000]
)
async def test_message_arrives_as_it_was_sent(rig: Rig, message: str) -> None:
    await rig.schedule(message)
    assert await rig.messages() == [message]
    assert (await rig.post("/receive_block"))["message"] == message


async def test_receiver_waits_for_a_job(rig: Rig) -> None:
    waiting = asyncio.create_task(rig.post("/receive_block"))
    await rig.receivers(1)
    await rig.schedule("a", lane="other")
    assert not waiting.done()
    await rig.schedule("b")
    assert await waiting == {"status": "ok", "code": 0, "message": "b"}


async def test_blocked_receivers_are_served_in_order_of_arrival(rig: Rig) -> None:
    got: list[tuple[int, str]] = []

    async def receive(number: int) -> None:
        got.append((number, (await rig.post("/receive_block"))["message"]))

    waiting = []
    for number in range(20):
        waiting.append(asyncio.create_task(receive(number)))
        await rig.receivers(number + 1)
    for number in range(20):
        await rig.schedule(f"job {number}")
        await rig.receivers(19 - number)
    await asyncio.gather(*waiting)
    assert got == [(number, f"job {number}") for number in range(20)]


async def test_disconnected_receiver_takes_no_job(rig: Rig) -> None:
    writer = await rig.connect("/receive_block")
    await rig.receivers(1)
    writer.transport.abort()
    await rig.receivers(0)
    await rig.schedule("a")
    assert await rig.messages() == ["a"]


async def test_reply_that_cannot_be_written_puts_the_job_back(rig: Rig) -> None:
    store, reached, go_on = rig.service.store, asyncio.Event(), asyncio.Event()
    real = type(store).claim

    async def slow(request: ClaimRequest) -> Any:
        reply = await real(store, request)
        reached.set()
        await go_on.wait()
        return reply

    await rig.schedule("a")
    await rig.schedule("b")
    vars(store)["claim"] = slow
    writer = await rig.connect("/receive_block")
    await reached.wait()
    assert await rig.messages() == ["b"]
    writer.transport.abort()
    async with asyncio.timeout(120):
        while not rig.service.long_polls.giving_back:
            await REAL.pause(0.001)
    del vars(store)["claim"]
    go_on.set()
    await rig.service.long_polls.finish()
    assert await rig.messages() == ["a", "b"]
    assert (await rig.post("/receive_noblock"))["message"] == "a"


async def test_lanes_in_the_store_are_its_own(rig: Rig) -> None:
    await rig.schedule("a")
    lanes = await rig.service.store.read(LanesQuery())
    assert [lane.name for lane in lanes] == ["dispenserd/main"]


async def test_unreachable_store_is_reported_as_an_error(rig: Rig) -> None:
    async def away(*_: object) -> object:
        message = "the disk is gone"
        raise StoreUnavailable(message)

    vars(rig.service.store)["enqueue"] = away
    reply = await rig.http.post("/schedule", content='{"message": "a"}')
    assert reply.status_code == 503
    assert (reply.json()["status"], reply.json()["code"]) == ("error", 1)
    del vars(rig.service.store)["enqueue"]


async def test_blocked_receivers_are_answered_when_it_stops(rig: Rig) -> None:
    waiting = asyncio.create_task(rig.http.post("/receive_block"))
    await rig.receivers(1)
    rig.service.begin_stop()
    reply = await waiting
    assert (reply.status_code, reply.json()["status"]) == (503, "error")


async def test_page_of_another_site_can_take_nothing(rig: Rig) -> None:
    await rig.schedule("a")
    headers = {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
    reply = await rig.http.post("/receive_noblock", headers=headers)
    assert reply.status_code == 403
    assert await rig.messages() == ["a"]


@pytest.mark.parametrize("kind", EVERYWHERE)
async def test_every_store_works(new_url: NewUrl, kind: str) -> None:
    async with serving(new_url(kind)) as rig:
        waiting = asyncio.create_task(rig.post("/receive_block"))
        await rig.receivers(1)
        await rig.schedule("0")
        assert (await waiting)["message"] == "0"
        for number in (1, 2):
            await rig.schedule(f"{number}", priority=5 - number)
        assert await rig.messages() == ["2", "1"]
        assert (await rig.post("/receive_noblock"))["message"] == "2"
        assert (await rig.get("/"))["payload"]["queued_jobs"] == {"main": 1}


async def test_interrupted_reply_puts_the_job_back_in_its_place(rig: Rig) -> None:
    app = dispenserd(rig.service)
    body, gone = [b""], asyncio.Event()
    written: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        # A server does not report that a client disconnects while the reply is written.
        gone.set()
        written.append(message.get("body", b""))

    scope = {"type": "http", "method": "POST", "path": "/receive_block", "headers": []}
    await rig.schedule("a")
    await rig.schedule("b")
    await app({**scope, "query_string": b"", "root_path": "", "state": {}}, receive, send)
    with pytest.raises(json.JSONDecodeError):
        json.loads(b"".join(written))
    await rig.service.long_polls.finish()
    assert await rig.messages() == ["a", "b"]


async def test_job_in_flight_when_its_server_died_is_received_again(rig: Rig) -> None:
    await rig.schedule("a")
    # As if a server had died before its client had read the job, twice.
    for n in (1, 2):
        gone = ClaimRequest(worker="gone", request=n, lanes=(("dispenserd/main", 1),), lease_ms=1)
        async with asyncio.timeout(120):
            while not (await rig.service.store.claim(gone)).jobs:
                await REAL.pause(0.01)
    assert (await rig.post("/receive_block"))["message"] == "a"
