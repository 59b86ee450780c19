"""Operator actions: on one job, on many, and on those that match a filter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import get_args
from uuid import uuid4

import pytest

import headway as hw
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import Role
from headway.contract.operate import ActReply, ActRequest, Verb
from headway.core.errors import StoreUnavailable
from headway.server.bodies.jobs import MovesBody
from headway.server.routes.moves import APPLIES
from tests.server.problems import problem
from tests.server.rig import Rig, serving

OPERATOR = Role.OPERATOR
VERBS = ("cancel", "retry", "run-now", "edit", "succeed", "kill")


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as one:
        yield one


async def state(rig: Rig, job: str) -> str:
    return (await rig.ask(Role.VIEWER, f"/v1/jobs/{job}"))["state"]


def test_every_verb_can_be_applied_to_many_jobs():
    assert set(get_args(MovesBody.model_fields["verb"].annotation)) == set(Verb)
    assert set(APPLIES) == set(Verb)


async def test_each_verb_moves_a_job_and_says_so(rig: Rig):
    job = await rig.send(due="1h")
    for verb, body, became in (
        ("edit", {"priority": 1, "args": {"x": 2}}, "scheduled"),
        ("run-now", None, "waiting"),
        ("cancel", {"reason": "not wanted"}, "cancelled"),
        ("retry", {"args": {"x": 3}}, "waiting"),
        ("kill", None, "dead"),
        ("retry", None, "waiting"),
        ("succeed", None, "succeeded"),
    ):
        reply = await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/{verb}", body)
        assert reply.status_code == 200, reply.text
        assert reply.json() == {"id": job, "answer": "done", "state": became}
    told = await rig.ask(Role.VIEWER, f"/v1/jobs/{job}")
    assert (told["priority"], told["args"], told["life"]) == (1, {"x": 3}, 3)
    assert ("operator", "not wanted") in {(n["author"], n["reason"]) for n in told["trail"]}


async def test_cancelling_a_running_job_only_requests_it(rig: Rig):
    job = await rig.send(lane="l")
    await rig.store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=(("l", 1),)))
    reply = await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/cancel")
    assert reply.json() == {"id": job, "answer": "asked", "state": "running"}


@pytest.mark.parametrize("verb", VERBS)
async def test_verb_that_does_not_apply_is_refused_and_changes_nothing(rig: Rig, verb: str):
    job = await rig.send()
    ended = "cancel" if verb != "retry" else None
    if ended:
        await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/succeed")
    before = await rig.ask(Role.VIEWER, f"/v1/jobs/{job}")
    reply = await rig.call(
        OPERATOR, "POST", f"/v1/jobs/{job}/{verb}", {"priority": 1} if verb == "edit" else None
    )
    problem(reply, 409, "invalid_state")
    assert await rig.ask(Role.VIEWER, f"/v1/jobs/{job}") == before


@pytest.mark.parametrize("verb", VERBS)
async def test_missing_job_cannot_be_moved(rig: Rig, verb: str):
    body = {"priority": 1} if verb == "edit" else None
    for job in (str(uuid4()), "x", "%00"):
        problem(
            await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/{verb}", body), 404, "unknown_job"
        )


async def test_repeat_under_one_idempotency_key_returns_what_the_first_did(rig: Rig):
    job = await rig.send()
    headers = {"Idempotency-Key": "k"}
    path = f"/v1/jobs/{job}/cancel"
    first = await rig.call(OPERATOR, "POST", path, headers=headers)
    await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/retry")
    again = await rig.call(OPERATOR, "POST", path, headers=headers)
    assert first.json() == again.json() == {"id": job, "answer": "done", "state": "cancelled"}
    assert await state(rig, job) == "waiting"
    # The same key with another reason is a different move.
    await rig.call(OPERATOR, "POST", path, {"reason": "now really"}, headers=headers)
    assert await state(rig, job) == "cancelled"
    # So is the same request of another verb.
    other = await rig.send()
    for verb in ("run-now", "cancel"):
        await rig.call(OPERATOR, "POST", f"/v1/jobs/{other}/{verb}", headers=headers)
    assert await state(rig, other) == "cancelled"


async def test_edit_must_change_something(rig: Rig):
    job = await rig.send()
    reply = await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/edit", {"reason": "x"})
    problem(reply, 422, "invalid_value")


async def test_arguments_of_an_edit_are_bounded(rig: Rig):
    job = await rig.send()
    body = {"args": {"text": "x" * 1_000_001}}
    reply = await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/edit", body)
    problem(reply, 413, "payload_too_large")


# --------------------------------------------------------------------------------- many jobs


async def test_many_jobs_are_moved_by_id_and_answered_in_that_order(rig: Rig):
    jobs = [await rig.send() for _ in range(3)]
    await rig.call(OPERATOR, "POST", f"/v1/jobs/{jobs[1]}/kill")
    ids = [jobs[2], "x", jobs[1], jobs[0], jobs[2]]
    reply = await rig.call(OPERATOR, "POST", "/v1/moves", {"verb": "cancel", "ids": ids})
    told = reply.json()
    assert [(one["id"], one["answer"]) for one in told["jobs"]] == [
        (jobs[2], "done"),
        ("x", "unknown"),
        (jobs[1], "refused"),
        (jobs[0], "done"),
        (jobs[2], "done"),
    ]
    assert (told["done"], told["refused"], told["unknown"]) == (3, 1, 1)


async def test_more_than_a_thousand_are_moved_in_steps(rig: Rig):
    made = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", [{"kind": "noop"}] * 2_500)
    ids = [one["id"] for one in made.json()["jobs"]]
    reply = await rig.call(OPERATOR, "POST", "/v1/moves", {"verb": "kill", "ids": ids})
    assert reply.json()["done"] == 2_500
    assert (await rig.ask(Role.VIEWER, "/v1/stats"))["counts"] == {"dead": 2_500}


async def test_filter_moves_matching_jobs_up_to_its_limit(rig: Rig):
    for n in range(5):
        await rig.send(lane="a", args={"n": n})
    await rig.send(lane="b")
    body = {"verb": "cancel", "filter": {"lane": "a"}, "limit": 3}
    dry = await rig.call(OPERATOR, "POST", "/v1/moves", {**body, "dry": True})
    assert (dry.json()["fits"], dry.json()["done"], dry.json()["more"]) == (3, 0, True)
    first = await rig.call(OPERATOR, "POST", "/v1/moves", body, headers={"Idempotency-Key": "k"})
    assert (first.json()["done"], first.json()["more"]) == (3, True)
    again = await rig.call(OPERATOR, "POST", "/v1/moves", body, headers={"Idempotency-Key": "k"})
    assert again.json() == first.json()
    dry = await rig.call(OPERATOR, "POST", "/v1/moves", {**body, "limit": 2, "dry": True})
    assert (dry.json()["fits"], dry.json()["more"]) == (2, False)
    rest = await rig.call(OPERATOR, "POST", "/v1/moves", {**body, "limit": 2})
    assert (rest.json()["done"], rest.json()["more"]) == (2, False)
    assert (await rig.ask(Role.VIEWER, "/v1/lanes/b"))["counts"] == {"waiting": 1}


async def test_filter_by_time_takes_only_jobs_that_ended_since(rig: Rig):
    waits, died = await rig.send(lane="a"), await rig.send(lane="a")
    await rig.call(OPERATOR, "POST", f"/v1/jobs/{died}/kill")
    at = (await rig.ask(Role.VIEWER, f"/v1/jobs/{died}"))["finished_at"]
    for since, found in ((at + 1, []), (at, [died]), ("1h", [died])):
        listed = await rig.ask(Role.VIEWER, "/v1/jobs", finished_since=since)
        assert [job["id"] for job in listed["rows"]] == found
        retry = {"verb": "retry", "filter": {"finished_since": since}}
        told = (await rig.call(OPERATOR, "POST", "/v1/moves", {**retry, "dry": True})).json()
        assert told["fits"] == len(found)
        done = (await rig.call(OPERATOR, "POST", "/v1/moves", retry)).json()["done"]
        assert done == len(found)
        if found:
            await rig.call(OPERATOR, "POST", f"/v1/jobs/{died}/kill")
    assert await state(rig, waits) == "waiting"


async def test_interrupted_move_by_filter_moves_no_more_than_its_limit(rig: Rig):
    await rig.call(Role.PRODUCER, "POST", "/v1/jobs", [{"kind": "a"}] * 2_500)
    body = {"verb": "kill", "filter": {"kind": "a"}, "limit": 1_500}
    headers = {"Idempotency-Key": "k"}
    real, steps = rig.store.act, 0

    async def act(request: object) -> object:
        nonlocal steps
        steps += 1
        if steps == 2:
            raise StoreUnavailable("it is away")
        return await real(request)

    rig.store.act = act  # pyright: ignore[reportAttributeAccessIssue]
    problem(
        await rig.call(OPERATOR, "POST", "/v1/moves", body, headers=headers),
        503,
        "store_unavailable",
    )
    for _ in range(2):
        again = await rig.call(OPERATOR, "POST", "/v1/moves", body, headers=headers)
        assert (again.json()["done"], again.json()["more"]) == (1_500, True)
    assert (await rig.ask(Role.VIEWER, "/v1/stats"))["counts"] == {"dead": 1_500, "waiting": 1_000}


async def test_filter_with_a_key_moves_its_job_only_if_the_rest_matches(rig: Rig):
    job = await rig.send(lane="a", kind="x", subject="s", key="k")
    for other in ({"lane": "b"}, {"kind": "y"}, {"subject": "t"}, {"states": ["dead"]}):
        body = {"verb": "cancel", "filter": {"key": "k", **other}}
        for more in ({}, {"dry": True}):
            told = (await rig.call(Role.OPERATOR, "POST", "/v1/moves", {**body, **more})).json()
            assert (told["done"], told["refused"], told["fits"] or 0) == (0, 0, 0), other
    for asked in ("lane=b", "kind=y", "subject=t", "state=dead"):
        listed = await rig.call(Role.VIEWER, "GET", f"/v1/jobs?key=k&{asked}")
        assert listed.json()["rows"] == []
    fitting = {"key": "k", "lane": "a", "kind": "x", "subject": "s", "states": ["waiting"]}
    body = {"verb": "cancel", "filter": fitting}
    assert (await rig.call(Role.OPERATOR, "POST", "/v1/moves", body)).json()["done"] == 1
    assert (await rig.ask(Role.VIEWER, f"/v1/jobs/{job}"))["state"] == "cancelled"


async def test_filter_includes_only_states_that_the_verb_applies_to(rig: Rig):
    dead, cancelled = await rig.send(kind="x"), await rig.send(kind="x")
    await rig.call(OPERATOR, "POST", f"/v1/jobs/{dead}/kill")
    await rig.call(OPERATOR, "POST", f"/v1/jobs/{cancelled}/cancel")
    retry = {"verb": "retry", "filter": {"kind": "x"}}
    assert (await rig.call(OPERATOR, "POST", "/v1/moves", retry)).json()["done"] == 1
    assert (await state(rig, dead), await state(rig, cancelled)) == ("waiting", "cancelled")
    retry["filter"]["states"] = ["cancelled"]
    assert (await rig.call(OPERATOR, "POST", "/v1/moves", retry)).json()["done"] == 1
    assert await state(rig, cancelled) == "waiting"


@pytest.mark.parametrize("verb", ["cancel", "kill", "succeed"])
async def test_filter_moves_no_job_that_is_claimed_after_its_page_was_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, verb: str
):
    first, second = await rig.send(lane="a"), await rig.send(lane="a")
    act = rig.store.act

    async def late(request: ActRequest) -> list[ActReply]:
        asked = ClaimRequest(worker="w" * 32, request=1, lanes=(("a", 1),), free=1)
        assert [one.id for one in (await rig.store.claim(asked)).jobs] == [first]
        return await act(request)

    monkeypatch.setattr(rig.store, "act", late)
    body = {"verb": verb, "filter": {"lane": "a", "states": ["waiting"]}}
    told = (await rig.call(OPERATOR, "POST", "/v1/moves", body)).json()
    assert (told["done"], told["asked"], told["refused"]) == (1, 0, 1)
    view = await rig.ask(Role.VIEWER, f"/v1/jobs/{first}")
    assert (view["state"], view["cancel_requested"]) == ("running", False)
    assert await state(rig, second) in {"cancelled", "dead", "succeeded"}


async def test_repeated_move_by_filter_moves_nothing_that_arrived_since(rig: Rig):
    for _ in range(3):
        await rig.send(lane="a")
    body, headers = {"verb": "cancel", "filter": {"lane": "a"}}, {"Idempotency-Key": "k"}
    first = await rig.call(OPERATOR, "POST", "/v1/moves", body, headers=headers)
    late = await rig.send(lane="a")
    for _ in range(2):
        again = await rig.call(OPERATOR, "POST", "/v1/moves", body, headers=headers)
        assert again.json() == first.json()
    assert first.json()["done"] == 3
    assert await state(rig, late) == "waiting"


async def test_interrupted_move_by_filter_continues_when_repeated(rig: Rig):
    made = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", [{"kind": "a"}] * 2_500)
    assert made.status_code == 200
    body = {"verb": "kill", "filter": {"kind": "a"}, "limit": 10_000}
    headers = {"Idempotency-Key": "k"}
    real, steps = rig.store.act, 0

    async def act(request: object) -> object:
        nonlocal steps
        steps += 1
        if steps == 2:
            raise StoreUnavailable("it is away")
        return await real(request)

    rig.store.act = act  # pyright: ignore[reportAttributeAccessIssue]
    cut = await rig.call(OPERATOR, "POST", "/v1/moves", body, headers=headers)
    assert problem(cut, 503, "store_unavailable")["detail"] == "it is away"
    assert cut.headers["retry-after"].isdigit()
    rig.store.act = real
    assert (await rig.ask(Role.VIEWER, "/v1/stats"))["counts"] == {"dead": 1_000, "waiting": 1_500}
    for _ in range(2):
        again = await rig.call(OPERATOR, "POST", "/v1/moves", body, headers=headers)
        assert again.json()["done"] == 2_500
    assert (await rig.ask(Role.VIEWER, "/v1/stats"))["counts"] == {"dead": 2_500}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"verb": "cancel"},
        {"verb": "cancel", "ids": []},
        {"verb": "cancel", "ids": ["x"] * 10_001},
        {"verb": "cancel", "ids": ["x"], "filter": {"lane": "a"}},
        {"verb": "cancel", "filter": {}},
        {"verb": "cancel", "filter": {"states": ["dead"]}},
        {"verb": "cancel", "filter": {"lane": "a"}, "limit": 0},
        {"verb": "cancel", "filter": {"lane": "a"}, "limit": 10_001},
        {"verb": "explode", "ids": ["x"]},
        {"verb": "edit", "ids": ["x"]},
        {"verb": "kill", "ids": ["x"], "priority": 1},
        {"verb": "cancel", "ids": [7]},
    ],
)
async def test_unusable_move_is_refused(rig: Rig, body: object):
    problem(await rig.call(OPERATOR, "POST", "/v1/moves", body), 422, "invalid_value")


async def test_permit_is_released_by_force_once(rig: Rig):
    await rig.call(OPERATOR, "PUT", "/v1/gates/line", {"kind": "slots", "capacity": 1})
    job = await rig.send(lane="l", gates=["line"])
    await rig.store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=(("l", 1),)))
    body = {"gate": "line", "job": job, "reason": "its holder is gone"}
    for key, released in (("one", True), ("one", True), ("two", False), (None, False)):
        headers = {} if key is None else {"Idempotency-Key": key}
        reply = await rig.call(OPERATOR, "DELETE", "/v1/permits", body, headers=headers)
        assert reply.json() == {"released": released}
    invalid = {"Idempotency-Key": "a b"}
    reply = await rig.call(OPERATOR, "DELETE", "/v1/permits", body, headers=invalid)
    problem(reply, 422, "invalid_value")
    assert (await rig.ask(Role.VIEWER, "/v1/gates/line"))["used"] == 0
    assert (await rig.ask(Role.VIEWER, "/v1/audit"))["differences"] == []
    unknown = await rig.call(OPERATOR, "DELETE", "/v1/permits", {**body, "job": str(uuid4())})
    problem(unknown, 422, "unknown_job")


async def test_new_arguments_are_checked_by_the_kind_of_the_server_s_app():
    app = hw.App("memory://")

    @app.job()
    async def work(n: int) -> None: ...

    async with serving(app=app) as rig:
        job = await rig.send(kind="work", args={"n": 1})
        strange = await rig.send(kind="nobody-knows", args={"n": 1})
        for verb in ("edit", "retry"):
            if verb == "retry":
                await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/kill")
            for args in ({"n": "x"}, {"m": 1}):
                body = {"args": args}
                refused = await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/{verb}", body)
                problem(refused, 422, "invalid_arguments")
            assert (await rig.ask(Role.VIEWER, f"/v1/jobs/{job}"))["args"] == {"n": 1}
            body = {"args": {"n": 2}}
            assert (await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/{verb}", body)).is_success
            await rig.call(OPERATOR, "POST", f"/v1/jobs/{job}/edit", {"args": {"n": 1}})
        other = await rig.call(OPERATOR, "POST", f"/v1/jobs/{strange}/edit", {"args": {"m": 1}})
        assert other.is_success
