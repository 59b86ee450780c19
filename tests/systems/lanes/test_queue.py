"""The poll queue, used over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

import headway as hw
from headway.contract.definitions import Role
from headway.contract.store import Store
from headway.contract.views import JobsQuery
from headway.core.errors import InvalidValue
from headway.core.state import State
from headway.runtime.latency import MOST_LANES
from headway.stores import open_store
from headway.systems.lanes import make
from headway.testing.clock import FakeClock
from tests.server.rig import Rig, serving
from tests.systems.lanes.queue import Queue, queueing


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    async with queueing() as (_, queue):
        yield queue


# --------------------------------------------------------------------------------------- enqueue


async def test_job_goes_through_the_queue_in_an_undeclared_lane(queue: Queue) -> None:
    job_id = await queue.enqueue("never seen", payload={"to": "ada"}, type="send_email")
    assert await queue.status(job_id) == "queued"
    (job,) = await queue.pull("never seen")
    assert (job["job_id"], job["type"], job["payload"]) == (job_id, "send_email", {"to": "ada"})
    assert (job["run"], job["attempt"], job["lane"]) == (1, 1, "never seen")
    assert await queue.status(job_id) == "pulled"
    assert await queue.said("/ack", job, result={"sent": True}) == {
        "job_id": job_id,
        "answer": "done",
        "status": "done",
        "due_at": None,
    }
    shown = await queue.get(f"/jobs/{job_id}")
    assert (shown["status"], shown["state"], shown["result"]) == (
        "done",
        "succeeded",
        {"sent": True},
    )


async def test_lane_is_strictly_first_in_first_out(queue: Queue) -> None:
    made = [await queue.enqueue(payload={"n": n}) for n in range(30)]
    pulled = [job["job_id"] for _ in range(3) for job in await queue.pull(max=10)]
    assert pulled == made


async def test_job_id_of_any_text_creates_one_job_and_finds_it(queue: Queue) -> None:
    first = await queue.post("/enqueue", lane="mail", type="t", job_id="order 17/ü")
    again = await queue.post("/enqueue", lane="mail", type="t", job_id="order 17/ü")
    assert (first.status_code, again.status_code) == (201, 200)
    job_id = first.json()["job_id"]
    assert again.json() == {"job_id": job_id, "created": False}
    other = await queue.post("/enqueue", lane="mail", type="other", job_id="order 17/ü")
    assert (other.status_code, other.json()["code"]) == (409, "key_conflict")
    assert await queue.status("order 17/ü") == "queued"
    (job,) = await queue.pull()
    await queue.said("/extend", {**job, "job_id": "order 17/ü"})
    assert (await queue.said("/ack", {**job, "job_id": "order 17/ü"}))["job_id"] == job_id


async def test_job_id_that_is_a_uuid_is_the_jobs_id(queue: Queue) -> None:
    wanted = str(uuid4())
    reply = await queue.post("/enqueue", lane="mail", type="t", job_id=wanted.upper())
    assert reply.json() == {"job_id": wanted, "created": True}
    reply = await queue.post("/enqueue", lane="mail", type="t", job_id=wanted)
    assert reply.json() == {"job_id": wanted, "created": False}
    other = await queue.post("/enqueue", lane="mail", type="other", job_id=wanted)
    assert (other.status_code, other.json()["code"]) == (409, "id_conflict")
    assert (await queue.get(f"/jobs/{wanted.upper()}"))["key"] is None


async def test_job_due_later_waits_in_its_lane(queue: Queue) -> None:
    job_id = await queue.enqueue(due="1h")
    assert await queue.pull() == []
    assert await queue.status(job_id) == "queued"


@pytest.mark.parametrize(
    "body",
    [
        {"type": "t"},
        {"lane": "mail"},
        {"lane": "", "type": "t"},
        {"lane": "mail", "type": "t", "payload": [1]},
        {"lane": "mail", "type": "t", "due": "soon"},
        {"lane": "mail", "type": "t", "job_id": ""},
        {"lane": "mail", "type": "t", "prio": 1},
    ],
)
async def test_invalid_job_is_refused_and_nothing_is_created(
    queue: Queue, body: dict[str, object]
) -> None:
    reply = await queue.post("/enqueue", **body)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_value")
    assert (await queue.get("/lanes"))["lanes"] == []


# ------------------------------------------------------------------------------------------ pull


async def test_lanes_are_pulled_by_pattern(queue: Queue) -> None:
    for lane in ("send_email", "send_outreach", "notify"):
        await queue.enqueue(lane)
    assert sorted(job["lane"] for job in await queue.pull("send_*")) == [
        "send_email",
        "send_outreach",
    ]
    assert [job["lane"] for job in await queue.pull("*")] == ["notify"]


async def test_strict_order_empties_an_earlier_lane_first(queue: Queue) -> None:
    for _ in range(4):
        await queue.enqueue("a")
        await queue.enqueue("b")
    pulled = [job["lane"] for job in await queue.pull("b,a", order="strict", max=6)]
    assert pulled == ["b"] * 4 + ["a"] * 2


async def test_weighted_order_takes_turns_by_weight(queue: Queue) -> None:
    for _ in range(12):
        await queue.enqueue("a")
        await queue.enqueue("b")
    lanes = ["a", {"name": "b", "weight": 2}]
    pulled = [job["lane"] for job in await queue.pull(lanes, max=9)]
    assert (pulled.count("a"), pulled.count("b")) == (3, 6)


async def test_waiting_pull_is_woken_by_the_first_job(queue: Queue) -> None:
    waiting = asyncio.create_task(queue.pull("mail", wait="20s"))
    job_id = await queue.enqueue()
    assert [job["job_id"] for job in await waiting] == [job_id]


@pytest.mark.parametrize("wait", ["0s", "1ms"])
async def test_timed_out_pull_returns_nothing(queue: Queue, wait: str) -> None:
    reply = await queue.post("/pull", worker="w", lanes="mail", wait=wait)
    assert (reply.json()["jobs"], reply.json()["lease_until"]) == ([], None)


# -------------------------------------------------------------------------- acknowledge and fail


async def test_acknowledging_a_done_job_is_a_no_op(queue: Queue) -> None:
    await queue.enqueue()
    (job,) = await queue.pull()
    await queue.said("/ack", job, result=1)
    for worker in ("w", "another"):
        again = await queue.said("/ack", job, worker=worker, result=2)
        assert (again["answer"], again["status"]) == ("already", "done")
    assert (await queue.get(f"/jobs/{job['job_id']}"))["result"] == 1


async def test_done_job_cannot_be_failed_or_extended(queue: Queue) -> None:
    await queue.enqueue()
    (job,) = await queue.pull()
    await queue.said("/ack", job)
    for path in ("/fail", "/extend"):
        reply = await queue.say(path, job, worker="another")
        assert (reply.status_code, reply.json()["code"]) == (409, "lease_lost"), path
    assert await queue.status(job["job_id"]) == "done"


async def test_only_the_holder_can_report_about_a_job(queue: Queue) -> None:
    await queue.enqueue()
    (job,) = await queue.pull()
    for path in ("/ack", "/fail", "/extend"):
        for wrong in ({"worker": "another"}, {"run": 2}):
            reply = await queue.say(path, job, **wrong)
            assert (reply.status_code, reply.json()["code"]) == (409, "lease_lost"), path
    assert await queue.status(job["job_id"]) == "pulled"
    unknown = await queue.say("/ack", {**job, "job_id": "nobody's"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_job")


async def test_failed_attempt_waits_and_is_retried(queue: Queue) -> None:
    job_id = await queue.enqueue()
    (job,) = await queue.pull()
    said = await queue.said("/fail", job, error="no luck", after="1h")
    assert (said["answer"], said["status"]) == ("done", "failed")
    shown = await queue.get(f"/jobs/{job_id}")
    assert (shown["status"], shown["error"], shown["attempts"]) == ("failed", "no luck", 1)
    assert said["due_at"] == shown["due_at"] > shown["created_at"] + 3_000_000
    assert (await queue.lane())["statuses"]["failed"] == 1
    assert await queue.pull() == []


async def test_job_postponed_by_its_worker_is_queued_and_has_not_failed(queue: Queue) -> None:
    job_id = await queue.enqueue()
    (job,) = await queue.pull()
    snoozed = {"outcome": "snoozed", "job": job_id, "run": job["run"], "after": "1h"}
    reply = await queue.post("/v1/settlements", worker="w", outcomes=[snoozed])
    assert reply.json() == {"verdicts": ["done"]}
    assert await queue.status(job_id) == "queued"
    statuses = (await queue.lane())["statuses"]
    assert (statuses["queued"], statuses["failed"]) == (1, 0)


async def test_failure_without_a_delay_waits_at_most_an_hour_by_the_policy(
    queue: Queue,
) -> None:
    job_id = await queue.enqueue()
    (job,) = await queue.pull()
    said = await queue.said("/fail", job, error="no luck")
    assert said["status"] in {"failed", "queued"}  # full jitter may draw no delay at all
    shown = await queue.get(f"/jobs/{job_id}")
    assert shown["max_attempts"] == 5
    assert shown["due_at"] <= shown["created_at"] + 3_600_000


async def test_job_is_dead_after_five_attempts_and_listed_with_its_error(queue: Queue) -> None:
    job_id = await queue.enqueue(payload={"to": "nobody"}, job_id="letter 1")
    for attempt in range(1, 6):
        (job,) = await queue.pull(wait="20s")
        assert job["attempt"] == attempt
        said = await queue.said("/fail", job, error=f"attempt {attempt}", after=0)
    assert said["status"] == "dead"
    page = await queue.get("/dead")
    (dead,) = page["rows"]
    assert (dead["job_id"], dead["key"], dead["error"]) == (job_id, "letter 1", "attempt 5")
    assert (dead["attempts"], dead["payload"], page["cursor"]) == (5, {"to": "nobody"}, None)
    assert await queue.pull() == []


async def test_job_can_be_dead_at_once(queue: Queue) -> None:
    await queue.enqueue()
    (job,) = await queue.pull()
    both = await queue.say("/fail", job, dead=True, after="1s")
    assert both.status_code == 422
    said = await queue.said("/fail", job, error="bad address\nas the server said", dead=True)
    assert said["status"] == "dead"
    shown = await queue.get(f"/jobs/{job['job_id']}")
    assert (shown["reason"], shown["error"]) == ("bad address", "bad address\nas the server said")
    await queue.enqueue()
    (job,) = await queue.pull()
    assert (await queue.said("/fail", job, error="long " * 100, dead=True))["status"] == "dead"
    assert len((await queue.get(f"/jobs/{job['job_id']}"))["reason"]) == 200


async def test_type_that_the_server_knows_keeps_its_own_policy() -> None:
    app = hw.App("memory://")

    @app.job(name="t", retry=hw.Backoff(attempts=3))
    async def work() -> None: ...

    async with queueing(app=app) as (_, queue):
        for lane, attempts in (("mail", 3), ("other", 5)):
            job_id = await queue.enqueue(lane, type="t" if attempts == 3 else "unknown")
            assert (await queue.get(f"/jobs/{job_id}"))["max_attempts"] == attempts
    await app.close_async()


# ------------------------------------------------------------------------------------ dead jobs


async def test_one_dead_job_is_retried_with_another_payload(queue: Queue) -> None:
    (job_id,) = await dead(queue, 1)
    said = await queue.post("/retry", job_ids=[job_id], payload={"to": "ada"}, reason="typo")
    assert said.json() == {
        "done": 1,
        "refused": 0,
        "unknown": 0,
        "more": None,
        "jobs": [{"job_id": job_id, "answer": "done"}],
    }
    (job,) = await queue.pull()
    assert (job["payload"], job["attempt"], job["run"]) == ({"to": "ada"}, 1, 2)
    await queue.said("/ack", job)
    again = await queue.post("/retry", job_ids=[job_id])
    assert again.json()["refused"] == 1


async def test_job_id_that_no_job_has_is_counted_as_unknown_and_the_others_are_retried(
    queue: Queue,
) -> None:
    (job_id,) = await dead(queue, 1)
    said = await queue.post("/retry", job_ids=["never-sent", job_id])
    assert said.json() == {
        "done": 1,
        "refused": 0,
        "unknown": 1,
        "more": None,
        "jobs": [
            {"job_id": "never-sent", "answer": "unknown"},
            {"job_id": job_id, "answer": "done"},
        ],
    }


async def test_many_dead_jobs_are_retried_by_lane_and_type(queue: Queue) -> None:
    await dead(queue, 3, "mail")
    await dead(queue, 2, "other")
    said = await queue.post("/retry", lane="mail", type="t", limit=2)
    assert (said.json()["done"], said.json()["more"], said.json()["jobs"]) == (2, True, None)
    assert len((await queue.get("/dead", lane="mail"))["rows"]) == 1
    assert len((await queue.get("/dead", lane="other", type="t"))["rows"]) == 2
    assert (await queue.post("/retry", type="t")).json()["done"] == 3
    assert (await queue.get("/dead"))["rows"] == []


async def test_page_of_large_dead_jobs_ends_early_and_continues(queue: Queue) -> None:
    made = [await queue.enqueue(payload={"text": "x" * 900_000}) for _ in range(30)]
    while jobs := await queue.pull():
        for job in jobs:
            await queue.said("/fail", job, dead=True)
    first = await queue.get("/dead")
    assert len(first["rows"]) < len(made)
    second = await queue.get("/dead", cursor=first["cursor"])
    assert [one["job_id"] for one in first["rows"] + second["rows"]] == made[::-1]


async def test_retry_repeated_under_its_key_returns_what_the_first_did() -> None:
    async with queueing() as (rig, queue):
        (job_id,) = await dead(queue, 1)
        headers = {"Idempotency-Key": "again"}
        replies = [
            (await rig.http.post("/retry", json={"job_ids": [job_id]}, headers=headers)).json()
            for _ in range(2)
        ]
        assert replies[0] == replies[1]
        assert replies[0]["done"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"job_ids": []},
        {"job_ids": ["a"], "lane": "mail"},
        {"job_ids": ["a", "b"], "payload": {}},
        {"lane": "mail", "payload": {}},
    ],
)
async def test_retry_must_say_clearly_which_jobs(queue: Queue, body: dict[str, object]) -> None:
    reply = await queue.post("/retry", **body)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_value")


async def test_dead_jobs_are_listed_page_by_page_newest_first(queue: Queue) -> None:
    made = await dead(queue, 5)
    first = await queue.get("/dead", limit=3)
    second = await queue.get("/dead", limit=3, cursor=first["cursor"])
    listed = [row["job_id"] for page in (first, second) for row in page["rows"]]
    assert listed == made[::-1]


async def test_dead_jobs_of_other_lanes_are_not_listed_to_a_token(rig: Rig) -> None:
    everyone = Queue(rig.http, rig.tokens[Role.ADMIN])
    (ours,) = await dead(everyone, 1, "send_email")
    await dead(everyone, 1, "other")
    viewer = Queue(rig.http, await rig.token(Role.VIEWER, lanes=["send_*"]))
    assert [row["job_id"] for row in (await viewer.get("/dead"))["rows"]] == [ours]


async def dead(queue: Queue, count: int, lane: str = "mail") -> list[str]:
    made = [await queue.enqueue(lane) for _ in range(count)]
    for job in await queue.pull(lane):
        await queue.said("/fail", job, error="no", dead=True)
    return made


# ------------------------------------------------------------------------------------- statuses


async def test_lane_shows_every_status_beside_the_engines_states(queue: Queue) -> None:
    for _ in range(6):
        await queue.enqueue()
    await queue.enqueue(due="1h")
    jobs = await queue.pull(max=5)
    await queue.said("/ack", jobs[0])
    await queue.said("/fail", jobs[1], after="1h")
    await queue.said("/fail", jobs[2], dead=True)
    lane = await queue.lane()
    assert lane["statuses"] == {
        "queued": 2,
        "pulled": 2,
        "failed": 1,
        "done": 1,
        "dead": 1,
        "cancelled": 0,
    }
    assert lane["states"] == {
        "scheduled": 2,
        "waiting": 1,
        "running": 2,
        "succeeded": 1,
        "dead": 1,
    }
    assert (lane["exact"], lane["workers"], lane["paused"]) == (True, 1, False)


async def test_listing_for_retries_ends_at_the_last_scheduled_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with queueing() as (rig, queue):
        for _ in range(3):
            await queue.enqueue(due="1h")
        limits: list[int] = []
        read = rig.store.read

        async def observed(query: Any) -> Any:
            if isinstance(query, JobsQuery) and query.states == (State.SCHEDULED,):
                limits.append(query.limit)
            return await read(query)

        monkeypatch.setattr(rig.store, "read", observed)
        assert (await queue.lane())["statuses"]["queued"] == 3
        assert limits == [3]


async def test_lane_says_that_not_all_of_very_many_scheduled_jobs_were_examined(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await queue.enqueue(due="1h")
    assert (await queue.lane())["exact"]
    monkeypatch.setattr("headway.systems.lanes.views.PAGES", 0)
    assert not (await queue.lane())["exact"]


async def test_lanes_target_is_shown_beside_its_latency() -> None:
    settings = {"mail": {"target": "1h"}, "slow": {"target": "0s"}}
    async with queueing(settings) as (_, queue):
        for lane in settings:
            await queue.enqueue(lane)
            await queue.enqueue(lane)
        assert len(await queue.pull("mail")) == 2
        mail, slow = (await queue.get("/lanes"))["lanes"]
        assert (mail["latency"]["target_ms"], mail["latency"]["starts"]) == (3_600_000, 2)
        assert mail["latency"]["p95_ms"] is not None
        assert not mail["latency"]["breached"]
        assert slow["latency"]["handlers_missing"] or slow["latency"]["head_ms"] == 0


async def test_paused_lane_is_shown_as_paused_and_returns_nothing() -> None:
    async with queueing() as (rig, queue):
        await queue.enqueue()
        paused = await rig.call(None, "POST", "/v1/lanes/mail/pause", {"reason": "a test"})
        assert paused.status_code == 200, paused.text
        assert await queue.pull() == []
        assert (await queue.lane())["paused"]


# -------------------------------------------------------------------------------------- settings


async def test_configured_lanes_are_declared_when_the_server_starts() -> None:
    settings = {"send_email": {"target": "5s", "concurrency": 3, "lease": "20s"}}
    async with queueing(settings) as (_, queue):
        for _ in range(5):
            await queue.enqueue("send_email")
        assert len(await queue.pull("send_email")) == 3
        lane = await queue.lane("send_email")
        assert (lane["latency"]["target_ms"], lane["concurrency"]) == (5_000, 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mail": 5}, "[lanes]: mail is not a table"),
        ({"mail": {"targt": "5s"}}, "[lanes.mail]: the lane 'mail' has an unknown option 'targt'"),
        (
            {"mail": {"target": "soon"}},
            "[lanes.mail]: target of the lane 'mail': the duration 'soon'",
        ),
        ({"mail": {"concurrency": -1}}, "[lanes.mail]: "),
    ],
)
def test_unusable_settings_are_refused_with_their_place(
    settings: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        make(settings)
    assert refused.value.message.startswith(said)


# ---------------------------------------------------------------------------------------- tokens


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving(systems=[make({})]) as rig:
        yield rig


ROUTES = {
    ("POST", "/enqueue"): {Role.PRODUCER, Role.OPERATOR, Role.ADMIN},
    ("POST", "/pull"): {Role.WORKER, Role.ADMIN},
    ("POST", "/ack"): {Role.WORKER, Role.ADMIN},
    ("POST", "/fail"): {Role.WORKER, Role.ADMIN},
    ("POST", "/extend"): {Role.WORKER, Role.ADMIN},
    ("POST", "/retry"): {Role.OPERATOR, Role.ADMIN},
    ("GET", "/dead"): set(Role),
    ("GET", "/jobs/some"): set(Role),
    ("GET", "/lanes"): {Role.VIEWER, Role.OPERATOR, Role.ADMIN},
}


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_each_route_is_only_for_its_roles(rig: Rig, method: str, path: str) -> None:
    for who in (None, *Role):
        reply = await rig.call(who, method, path, {} if method == "POST" else None)
        allowed = who in ROUTES[method, path]
        refused = 401 if who is None else 403
        assert (reply.status_code != refused) == allowed, (who, reply.text)


async def test_token_pulls_and_settles_only_in_its_lanes(rig: Rig) -> None:
    ours = Queue(rig.http, await rig.token(Role.WORKER, lanes=["send_*"]))
    theirs = Queue(rig.http, await rig.token(Role.WORKER))
    producer = Queue(rig.http, rig.tokens[Role.PRODUCER])
    await producer.enqueue("send_email")
    await producer.enqueue("other", job_id="hidden")
    refused = await ours.post("/pull", worker="w", lanes="other")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    (job,) = await ours.pull("*")
    assert job["lane"] == "send_email"
    assert (await theirs.say("/ack", job)).status_code == 409
    assert (await ours.say("/ack", {"job_id": "hidden", "run": 1})).status_code == 404
    assert (await ours.said("/ack", job))["answer"] == "done"


async def test_reply_hides_from_a_token_that_a_job_of_another_lane_is_done(rig: Rig) -> None:
    ours = Queue(rig.http, await rig.token(Role.WORKER, lanes=["send_*"]))
    all_lanes = Queue(rig.http, await rig.token(Role.WORKER))
    await Queue(rig.http, rig.tokens[Role.PRODUCER]).enqueue("other")
    (job,) = await all_lanes.pull("other")
    assert (await all_lanes.said("/ack", job))["answer"] == "done"
    assert (await all_lanes.said("/ack", job))["answer"] == "already"
    assert (await ours.say("/ack", job)).status_code == 409


async def test_token_lists_its_lanes_however_many_others_come_first(rig: Rig) -> None:
    producer = Queue(rig.http, rig.tokens[Role.PRODUCER])
    for n in range(MOST_LANES):
        await producer.enqueue(f"a{n:03}")
    await producer.enqueue("zoo")
    viewer = Queue(rig.http, await rig.token(Role.VIEWER, lanes=["z*"]))
    assert [one["lane"] for one in (await viewer.get("/lanes"))["lanes"]] == ["zoo"]


async def test_tenants_producer_sees_and_creates_only_its_own(rig: Rig) -> None:
    acme = Queue(rig.http, await rig.token(Role.PRODUCER, tenants=["acme"]))
    other = Queue(rig.http, await rig.token(Role.PRODUCER, tenants=["other"]))
    job_id = await acme.enqueue(job_id="order 1")
    assert await acme.status("order 1") == "queued"
    headers = {"Authorization": f"Bearer {await rig.token(Role.PRODUCER, tenants=['other'])}"}
    for name in (job_id, "order 1"):
        assert (await rig.http.get(f"/jobs/{name}", headers=headers)).status_code == 404
    assert await other.enqueue(job_id="order 1") != job_id
    # Without a tenant, the name is one of jobs without a tenant.
    assert (await rig.call(Role.VIEWER, "GET", "/jobs/order 1")).status_code == 404
    stolen = await other.post("/enqueue", lane="mail", type="t", tenant="acme")
    assert stolen.status_code == 403


# ------------------------------------------------------------------------------ retries and bodies


@pytest.fixture
async def timed() -> AsyncIterator[tuple[Queue, FakeClock, Store]]:
    """Run a queue whose clock the test advances."""
    clock = FakeClock()
    store = open_store("memory://", clock=clock)
    async with queueing(app=hw.App(store=store)) as (_, queue):
        yield queue, clock, store
    await store.close()


async def test_five_attempts_reach_the_cap_of_an_hour_and_survive_half_an_hour_of_outage(
    timed: tuple[Queue, FakeClock, Store],
) -> None:
    queue, clock, _ = timed
    began = clock()
    job_id = await queue.enqueue()
    waits: list[int] = []
    for _ in range(4):
        (job,) = await queue.pull()
        due_at = (await queue.said("/fail", job, error="out of reach"))["due_at"]
        waits.append(due_at - clock())
        clock.jump_to(due_at)
    (job,) = await queue.pull()
    assert clock() - began > 30 * 60_000
    assert await queue.status(job_id) == "pulled"
    assert (await queue.said("/fail", job))["status"] == "dead"
    wholes = (10_000, 80_000, 640_000, 3_600_000)
    for waited, whole in zip(waits, wholes, strict=True):
        assert whole // 2 <= waited <= whole


async def test_bodies_are_json_whatever_their_content_type(queue: Queue) -> None:
    """`curl -d` sends a form's content type, and a few programs send none."""
    http = queue.http
    types = ("application/x-www-form-urlencoded", "text/plain", "application/json", None)
    for said in types:
        headers = {} if said is None else {"Content-Type": said}

        async def post(path: str, body: dict[str, object]) -> httpx.Response:
            content = json.dumps(body).encode()
            return await http.post(path, content=content, headers=headers)  # noqa: B023  (at once)

        assert (await post("/enqueue", {"lane": "mail", "type": "t"})).status_code == 201
        pulled = await post("/pull", {"worker": "w", "lanes": "mail"})
        (job,) = pulled.json()["jobs"]
        which = {"worker": "w", "job_id": job["job_id"], "run": job["run"]}
        assert (await post("/extend", which)).status_code == 200
        assert (await post("/ack", which)).json()["status"] == "done"
    form = await http.post("/enqueue", data={"lane": "mail"})
    assert form.status_code == 400
