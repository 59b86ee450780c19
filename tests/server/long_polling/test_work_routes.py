from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from headway.contract.definitions import DeclareGate, DefineRequest, Role
from headway.contract.views import JobQuery, WhyQuery, WorkersQuery
from headway.core.gates.spec import GateKind, GateSpec
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.server.long_polling import registry
from tests.server.long_polling.rig import until
from tests.server.problems import problem
from tests.server.rig import Rig, serving


@pytest.fixture
async def rig(tmp_path: Any) -> AsyncIterator[Rig]:
    async with serving(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal") as rig:
        worker = await rig.token(Role.WORKER, Role.PRODUCER, closes=["rate"])
        rig.tokens[Role.WORKER] = worker
        yield rig


async def claim(rig: Rig, worker: str = "w", who: Any = Role.WORKER, **more: Any) -> dict[str, Any]:
    body = {"worker": worker, "lanes": "main", **more}
    reply = await rig.call(who, "POST", "/v1/claims", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def settle(rig: Rig, *outcomes: dict[str, Any], worker: str = "w") -> list[str]:
    body = {"worker": worker, "outcomes": outcomes}
    reply = await rig.call(Role.WORKER, "POST", "/v1/settlements", body)
    assert reply.status_code == 200, reply.text
    return reply.json()["verdicts"]


async def state(rig: Rig, job: str) -> State:
    found = await rig.store.read(JobQuery(id=job))
    assert found is not None
    return found.state


def of(claimed: dict[str, Any]) -> dict[str, Any]:
    return {"job": claimed["id"], "run": claimed["run"]}


async def test_claim_returns_every_field_of_a_job(rig: Rig) -> None:
    job = await rig.send(kind="mail", args={"to": "ada"}, priority=7, subject="s", tenant="acme")
    reply = await claim(rig)
    (one,) = reply["jobs"]
    assert one["id"] == job
    assert (one["run"], one["attempt"], one["kind"], one["args"]) == (1, 1, "mail", {"to": "ada"})
    assert (one["priority"], one["subject"], one["tenant"]) == (7, "s", "acme")
    assert one["ref"] == f"{job}:1"
    assert f"/v1/signals/{job}%3A1" in one["signal_url"]
    assert one["policy"]["retry"]["attempts"] == 5
    assert reply["lease_until"] == reply["now"] + 30_000
    assert reply["again"] is True


async def test_long_poll_is_answered_when_a_job_arrives(rig: Rig) -> None:
    poll = asyncio.create_task(claim(rig, wait="20s"))
    await until(lambda: len(rig.service.long_polls) == 1)
    job = await rig.send()
    assert [one["id"] for one in (await poll)["jobs"]] == [job]


async def test_claim_waits_no_longer_than_the_server_allows() -> None:
    async with serving(longest_wait_s=0.05) as rig:
        assert (await claim(rig, wait="24h"))["jobs"] == []


async def test_claim_without_jobs_is_empty(rig: Rig) -> None:
    reply = await claim(rig, wait=30)
    assert reply["jobs"] == []
    assert reply["again"] is False


async def test_lanes_can_be_listed_and_be_patterns(rig: Rig) -> None:
    await rig.send(lane="send_mail")
    await rig.send(lane="calls")
    reply = await claim(rig, lanes=["calls", {"name": "send_*", "weight": 2}], max=10)
    assert sorted(one["lane"] for one in reply["jobs"]) == ["calls", "send_mail"]


async def test_repeated_number_returns_the_same_jobs(rig: Rig) -> None:
    job = await rig.send()
    first = await claim(rig, request=5)
    again = await claim(rig, request=5)
    assert [one["id"] for one in again["jobs"]] == [one["id"] for one in first["jobs"]] == [job]


async def test_later_number_of_a_worker_ends_its_waiting_poll(rig: Rig) -> None:
    first = asyncio.create_task(claim(rig, wait="20s", request=1))
    await until(lambda: len(rig.service.long_polls) == 1)
    second = asyncio.create_task(claim(rig, wait="20s", request=2))
    ended = await first
    assert (ended["jobs"], ended["again"]) == ([], True)
    await claim(rig, request=3)
    ended = await second
    assert (ended["jobs"], ended["again"]) == ([], True)


async def test_worker_without_numbers_can_have_two_polls(rig: Rig) -> None:
    polls = [asyncio.create_task(claim(rig, wait="20s")) for _ in range(2)]
    await until(lambda: len(rig.service.long_polls) == 2)
    jobs = {await rig.send() for _ in range(2)}
    found = [one["id"] for poll in polls for one in (await poll)["jobs"]]
    assert set(found) == jobs


@pytest.mark.parametrize(
    "wrong",
    [
        {"lanes": ""},
        {"lanes": ","},
        {"lanes": ",".join(f"lane-{n}" for n in range(257))},
        {"lanes": []},
        {"lanes": ["x" * 513]},
        {"lanes": [{"name": "a", "weight": 0}]},
        {"lanes": "a:0"},
        {"max": 0},
        {"max": 1_001},
        {"free": -1},
        {"lease": "0s"},
        {"lease": "25h"},
        {"lease": "never"},
        {"request": 0},
        {"request": 2**53},
        {"after": {"main": 2**63}},
        {"after": {"main": -(2**63) - 1}},
        {"worker": ""},
        {"worker": "x" * 512},
        {"wait": -1},
        {"order": "random"},
        {"more": 1},
    ],
)
async def test_invalid_claim_is_refused(rig: Rig, wrong: dict[str, Any]) -> None:
    body = {"worker": "w", "lanes": "main", **wrong}
    reply = await rig.call(Role.WORKER, "POST", "/v1/claims", body)
    assert reply.status_code == 422, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert not await rig.store.read(WorkersQuery())


async def test_another_token_cannot_settle_or_beat_for_this_one(rig: Rig) -> None:
    await rig.send()
    (one,) = (await claim(rig))["jobs"]
    other = await rig.token(Role.WORKER, name="other")
    body = {"worker": "w", "outcomes": [{**of(one), "outcome": "succeeded"}]}
    reply = await rig.call(other, "POST", "/v1/settlements", body)
    assert reply.json()["verdicts"] == ["lost"]
    beat = {"worker": "w", "running": [of(one)]}
    reply = await rig.call(other, "POST", "/v1/leases", beat)
    assert reply.json()["lost"] == [of(one)]
    assert await state(rig, one["id"]) is State.RUNNING
    assert await settle(rig, {**of(one), "outcome": "succeeded"}) == ["done"]


async def test_token_claims_only_from_its_lanes(rig: Rig) -> None:
    token = await rig.token(Role.WORKER, name="mailer", lanes=["send_*"])
    await rig.send(lane="send_mail")
    await rig.send(lane="calls")
    refused = await rig.call(
        token, "POST", "/v1/claims", {"worker": "w", "lanes": "calls,send_mail"}
    )
    assert refused.status_code == 403
    reply = await claim(rig, who=token, lanes="*", max=10)
    assert [one["lane"] for one in reply["jobs"]] == ["send_mail"]


async def test_token_for_tenants_cannot_claim(
    rig: Rig,
) -> None:
    token = await rig.token(Role.ADMIN, name="acme", tenants=["acme"])
    job = await rig.send(tenant="acme")
    refused = await rig.call(token, "POST", "/v1/claims", {"worker": "w", "lanes": "main"})
    assert refused.status_code == 403
    assert await state(rig, job) is State.WAITING


async def test_follow_ups_must_be_in_the_tokens_lanes(rig: Rig) -> None:
    token = await rig.token(Role.WORKER, Role.OPERATOR, name="mailer", lanes=["send_*"])
    await rig.send(lane="send_mail")
    (one,) = (await claim(rig, who=token, lanes="*"))["jobs"]
    for more in (
        {"then": [{"kind": "k", "lane": "calls"}]},
        {"close": [{"gate": "all"}]},
        {"close": [{"gate": "lane:calls"}]},
        {"close": [{"gate": "tenant:acme"}]},
    ):
        outcome = {**of(one), "outcome": "succeeded", **more}
        body = {"worker": "w", "outcomes": [outcome]}
        reply = await rig.call(token, "POST", "/v1/settlements", body)
        assert reply.status_code == 403, more
    assert await state(rig, one["id"]) is State.RUNNING


async def test_each_outcome_is_written(rig: Rig) -> None:
    jobs = [await rig.send() for _ in range(9)]
    claimed = {one["id"]: one for one in (await claim(rig, max=9))["jobs"]}
    said: list[dict[str, Any]] = [
        {"outcome": "succeeded", "result": {"n": 1}},
        {"outcome": "failed", "error": "boom"},
        {"outcome": "failed", "after": "0s"},
        {"outcome": "dead", "reason": "bad number"},
        {"outcome": "snoozed", "after": "1h"},
        {"outcome": "snoozed", "until": "2099-01-01T00:00Z"},
        {"outcome": "released"},
        {"outcome": "handed_over", "key": "CA1", "timeout": "5m"},
        {"outcome": "next_stage", "stage": "dial"},
    ]
    outcomes = [{**of(claimed[job]), **one} for job, one in zip(jobs, said, strict=True)]
    assert await settle(rig, *outcomes) == ["done"] * 9
    states = [await state(rig, job) for job in jobs]
    assert states == [
        State.SUCCEEDED,
        State.SCHEDULED,
        State.WAITING,
        State.DEAD,
        State.SCHEDULED,
        State.SCHEDULED,
        State.WAITING,
        State.AWAITING,
        State.WAITING,
    ]
    done = await rig.store.read(JobQuery(id=jobs[0]))
    assert done is not None
    assert done.result == b'{"n":1}'
    assert await settle(rig, *outcomes[:1]) == ["already"]
    awaiting = of(claimed[jobs[7]])
    assert await settle(
        rig,
        {**awaiting, "outcome": "known_as", "key": "CA2"},
        {**awaiting, "outcome": "gave_back", "gate": "all"},
        {**awaiting, "outcome": "returned"},
    ) == ["done", "done", "done"]
    signal = {"event": "e1", "final": "succeeded"}
    reply = await rig.call(Role.WORKER, "POST", "/v1/signals/CA2", signal)
    assert reply.json()["answer"] == "applied"


async def test_no_run_is_found_under_the_reference_of_another_job(rig: Rig) -> None:
    theirs, mine = await rig.send(lane="theirs"), await rig.send()
    (other,) = (await claim(rig, worker="other", lanes="theirs"))["jobs"]
    (own,) = (await claim(rig))["jobs"]
    said = [
        {"outcome": "handed_over", "key": f"{theirs}:1"},
        {"outcome": "handed_over", "key": theirs},
        {"outcome": "known_as", "key": f"{theirs}:2"},
    ]
    for one in said:
        body = {"worker": "w", "outcomes": [{**of(own), **one}]}
        problem(await rig.call(Role.WORKER, "POST", "/v1/settlements", body), 422, "invalid_value")
    assert await settle(rig, {**of(own), "outcome": "handed_over", "key": own["ref"]}) == ["done"]
    hand_over = {**of(other), "outcome": "handed_over", "key": other["ref"]}
    assert await settle(rig, hand_over, worker="other") == ["done"]
    signal = {"event": "e1", "final": "succeeded"}
    await rig.call(Role.WORKER, "POST", f"/v1/signals/{other['ref']}", signal)
    assert [await state(rig, job) for job in (theirs, mine)] == [State.SUCCEEDED, State.AWAITING]


async def test_unfit_candidate_is_skipped(rig: Rig) -> None:
    job = await rig.send(kind="offer", candidates=["ann", "bob"])
    (one,) = (await claim(rig))["jobs"]
    assert one["candidate"] == "ann"
    assert await settle(rig, {**of(one), "outcome": "unfit", "reason": "off duty"}) == ["done"]
    (two,) = (await claim(rig))["jobs"]
    assert (two["id"], two["candidate"]) == (job, "bob")


async def test_follow_up_is_created_once_however_often_reported(rig: Rig) -> None:
    await rig.send()
    (one,) = (await claim(rig))["jobs"]
    said = {
        **of(one),
        "outcome": "known_as",
        "key": "k1",
        "then": [{"kind": "next", "lane": "follow"}],
    }
    assert await settle(rig, said) == ["done"]
    assert await settle(rig, said) == ["done"]
    reply = await claim(rig, worker="other", lanes="follow", max=10)
    assert [job["kind"] for job in reply["jobs"]] == ["next"]


async def test_follow_up_wakes_waiters_of_its_pattern(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No poll finds the new lane in a later listing.
    monkeypatch.setattr(registry, "LIST_EVERY_S", 3_600)
    await rig.send()
    (one,) = (await claim(rig))["jobs"]
    poll = asyncio.create_task(claim(rig, worker="other", lanes="fol*", wait="20s"))
    await until(lambda: len(rig.service.long_polls) == 1)
    then = [{"kind": "next", "lane": "follow"}]
    assert await settle(rig, {**of(one), "outcome": "succeeded", "then": then}) == ["done"]
    assert [job["lane"] for job in (await poll)["jobs"]] == ["follow"]


async def test_gate_is_closed_in_the_same_step(rig: Rig) -> None:
    spec = GateSpec(name="rate", kind=GateKind.SLOTS, shared=True, capacity=3)
    await rig.store.define(DefineRequest(items=(DeclareGate(spec=spec),), author="t"))
    await rig.send(gates=["rate"])
    (one,) = (await claim(rig))["jobs"]
    close = [{"gate": "rate", "after": "1m", "reason": "429"}]
    assert await settle(rig, {**of(one), "outcome": "failed", "close": close}) == ["done"]
    why = await rig.store.read(WhyQuery(id=await rig.send(gates=["rate"])))
    assert why is not None
    assert [gate.name for gate in why.closed] == ["rate"]


async def test_next_stage_uses_gates_named_by_the_jobs_arguments(rig: Rig) -> None:
    spec = GateSpec(name="to:{phone}", kind=GateKind.SLOTS, shared=False, capacity=1)
    await rig.store.define(DefineRequest(items=(DeclareGate(spec=spec),), author="t"))
    job = await rig.send(args={"phone": "+1"})
    (one,) = (await claim(rig))["jobs"]
    said = {**of(one), "outcome": "next_stage", "stage": "dial", "gates": ["to:{phone}"]}
    assert await settle(rig, said) == ["done"]
    (two,) = (await claim(rig))["jobs"]
    assert (two["id"], two["stage"], two["gated"]) == (job, "dial", True)
    unknown = {**of(two), "outcome": "next_stage", "stage": "x", "gates": ["nowhere"]}
    body = {"worker": "w", "outcomes": [unknown]}
    reply = await rig.call(Role.WORKER, "POST", "/v1/settlements", body)
    assert (reply.status_code, reply.json()["code"]) == (422, "unknown_gate")


async def test_next_stage_of_another_workers_job_is_lost_whatever_its_gates_need(rig: Rig) -> None:
    spec = GateSpec(name="to:{phone}", kind=GateKind.SLOTS, shared=False, capacity=1)
    await rig.store.define(DefineRequest(items=(DeclareGate(spec=spec),), author="t"))
    await rig.send()
    (one,) = (await claim(rig))["jobs"]
    said = {**of(one), "outcome": "next_stage", "stage": "dial", "gates": ["to:{phone}"]}
    assert await settle(rig, said, worker="another") == ["lost"]


async def test_no_argument_replaces_the_tenant_in_a_gate_of_the_next_stage(rig: Rig) -> None:
    spec = GateSpec(name="{tenant}:{phone}", kind=GateKind.SLOTS, shared=False, capacity=1)
    await rig.store.define(DefineRequest(items=(DeclareGate(spec=spec),), author="t"))
    job = await rig.send(tenant="acme", args={"phone": "+1", "tenant": "other"})
    (one,) = (await claim(rig))["jobs"]
    said = {**of(one), "outcome": "next_stage", "stage": "dial", "gates": ["{tenant}:{phone}"]}
    assert await settle(rig, said) == ["done"]
    gates = (await rig.ask(Role.VIEWER, f"/v1/jobs/{job}"))["gates"]
    assert [one["name"] for one in gates] == ["acme:+1"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": "won"},
        {"outcome": "snoozed"},
        {"outcome": "handed_over"},
        {"outcome": "succeeded", "error": "no"},
        {"outcome": "succeeded", "run": 0},
        {"outcome": "succeeded", "job": "1; DROP TABLE job"},
        {"outcome": "failed", "after": -1},
        {},
    ],
)
async def test_invalid_outcome_is_refused(rig: Rig, wrong: dict[str, Any]) -> None:
    await rig.send()
    (one,) = (await claim(rig))["jobs"]
    body = {"worker": "w", "outcomes": [{**of(one), **wrong}]}
    reply = await rig.call(Role.WORKER, "POST", "/v1/settlements", body)
    assert reply.status_code == 422, reply.text
    assert await state(rig, one["id"]) is State.RUNNING


async def test_beat_extends_the_lease_and_returns_cancel_requests(rig: Rig) -> None:
    job = await rig.send()
    reply = await claim(rig, lease="5s", request=3)
    (one,) = reply["jobs"]
    await rig.call(Role.OPERATOR, "POST", f"/v1/jobs/{job}/cancel", {"reason": "no"})
    body = {
        "worker": "w",
        "running": [{**of(one), "progress": {"done": 3}}, {"job": job, "run": 9}],
        "request": 3,
        "lease": "60s",
        "lanes": ["main", "send_*"],
        "name": "host:1",
    }
    beat = (await rig.call(Role.WORKER, "POST", "/v1/leases", body)).json()
    assert beat["lease_until"] == beat["now"] + 60_000
    assert beat["cancel"] == [of(one)]
    assert beat["lost"] == [{"job": job, "run": 9}]
    found = await rig.store.read(JobQuery(id=job))
    assert found is not None
    assert json.loads(found.progress or b"") == {"done": 3}
    (worker,) = await rig.store.read(WorkersQuery())
    assert (worker.name, worker.lanes) == ("host:1", ("main",))


async def test_leaving_worker_hands_back_what_it_does_not_list(rig: Rig) -> None:
    job = await rig.send()
    await claim(rig)
    await rig.call(Role.WORKER, "POST", "/v1/leases", {"worker": "w", "leaving": True})
    assert await state(rig, job) is State.WAITING


async def test_job_of_a_silent_worker_is_requeued_and_its_report_is_lost(rig: Rig) -> None:
    job = await rig.send(retry={"attempts": 5, "base": "0s", "cap": "0s"})
    (one,) = (await claim(rig, lease="1s"))["jobs"]
    poll = asyncio.create_task(claim(rig, worker="other", wait="20s"))
    while not poll.done():
        await rig.store.sweep(100)
        await REAL.pause(0.05)
    again = await poll
    assert [(one["id"], one["run"]) for one in again["jobs"]] == [(job, 2)]
    assert await settle(rig, {**of(one), "outcome": "succeeded"}) == ["lost"]


async def _open_poll(rig: Rig, **more: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a long poll on a connection of its own, which can be cut."""
    at = urlsplit(rig.url)
    client = socket.create_connection((at.hostname, at.port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader, writer = await asyncio.open_connection(sock=client)
    body = json.dumps({"worker": "cut", "lanes": "main", "wait": "50s", **more}).encode()
    head = (
        f"POST /v1/claims HTTP/1.1\r\nHost: {at.netloc}\r\n"
        f"Authorization: Bearer {rig.tokens[Role.WORKER]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def test_client_killed_during_a_long_poll_leaks_nothing(rig: Rig) -> None:
    await claim(rig)  # creates everything that the first claim creates
    registry = rig.service.long_polls
    tasks = len(asyncio.all_tasks())
    polls = [await _open_poll(rig, worker=f"cut{n}") for n in range(50)]
    await until(lambda: len(registry) == 50)
    for _, writer in polls:
        writer.transport.abort()
    await until(lambda: len(registry) == 0)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    job = await rig.send()
    assert await state(rig, job) is State.WAITING
    assert sum(one.running for one in await rig.store.read(WorkersQuery())) == 0


async def test_client_gone_while_jobs_are_claimed_for_it_leaves_none_claimed(rig: Rig) -> None:
    store, reached, go_on = rig.store, asyncio.Event(), asyncio.Event()
    real = type(store).claim

    async def slow(request: Any) -> Any:
        reply = await real(store, request)
        reached.set()
        await go_on.wait()
        return reply

    job = await rig.send()
    vars(store)["claim"] = slow
    _, writer = await _open_poll(rig)
    await reached.wait()
    assert await state(rig, job) is State.RUNNING
    writer.transport.abort()
    await until(lambda: rig.service.long_polls.giving_back == 1)
    del vars(store)["claim"]
    go_on.set()
    await rig.service.long_polls.finish()
    assert await state(rig, job) is State.WAITING
    assert (await claim(rig))["jobs"][0]["attempt"] == 1


async def test_reply_that_cannot_be_written_completely_hands_its_jobs_back(rig: Rig) -> None:
    jobs = [await rig.send(args={"text": "x" * 900_000}) for _ in range(16)]
    # The client reads nothing, and the connection's buffers cannot hold that much.
    _, writer = await _open_poll(rig, max=16)
    async with asyncio.timeout(120):
        while await state(rig, jobs[-1]) is not State.RUNNING:
            await REAL.pause(0.01)
    writer.transport.abort()
    async with asyncio.timeout(120):
        while await state(rig, jobs[-1]) is not State.WAITING:
            await REAL.pause(0.01)
    assert [await state(rig, job) for job in jobs] == [State.WAITING] * 16


async def test_stopping_server_answers_its_long_polls(rig: Rig) -> None:
    poll = asyncio.create_task(claim(rig, wait="50s"))
    await until(lambda: len(rig.service.long_polls) == 1)
    rig.service.begin_stop()
    assert (await poll)["jobs"] == []


async def test_refused_outcome_writes_nothing(rig: Rig) -> None:
    await rig.send()
    (one,) = (await claim(rig))["jobs"]
    outcome = {**of(one), "outcome": "succeeded", "close": [{"gate": "rate", "after": "1m"}]}
    body = {"worker": "w", "outcomes": [outcome]}
    reply = await rig.call(Role.WORKER, "POST", "/v1/settlements", body)
    assert reply.status_code == 422
    assert await state(rig, one["id"]) is State.RUNNING


async def test_rate_limited_worker_can_still_beat() -> None:
    async with serving(requests_per_s=0.001) as rig:
        claim = {"worker": "w", "lanes": "main"}
        asked = [await rig.call(Role.WORKER, "POST", "/v1/claims", claim) for _ in range(2)]
        assert [one.status_code for one in asked] == [200, 429]
        beat = await rig.call(Role.WORKER, "POST", "/v1/leases", {"worker": "w"})
        assert beat.status_code == 200
