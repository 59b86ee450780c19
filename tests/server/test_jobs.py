"""Creating jobs, finding them, and why one is not running."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

import headway as hw
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareGate, DeclareLane, DefineRequest, LaneSpec, Role
from headway.contract.views import JobQuery
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.core.job import KEEP_MS, MAX_ARGS
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from tests.server.problems import problem
from tests.server.rig import Rig, serving

NOBODY = "01a1fd5c-3534-7364-bb2d-381e7c2d9c63"
"""The id of no job."""


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as one:
        yield one


async def declare(rig: Rig, *gates: GateSpec) -> None:
    items = tuple(DeclareGate(spec=spec) for spec in gates)
    await rig.store.define(DefineRequest(items=items, author="the test"))


# ----------------------------------------------------------------------------- creating jobs


async def test_job_is_stored_with_every_field_of_its_body(rig: Rig):
    await declare(rig, Rate("customer:{phone}", 7, "1h"), Slots("line", 2))
    now = (await rig.ask(Role.VIEWER, "/v1/stats"))["now"]
    made = await rig.send(
        kind="call",
        lane="calls",
        tenant="acme",
        subject="+1555",
        key="order-17",
        priority=3,
        args={"phone": "+1555", "deep": [{"x": 1.5}]},
        due="20m",
        expires="1h",
        gates=["line", {"gate": "customer:{phone}", "amount": 2, "hold": "run"}],
        retry={"attempts": 2, "base": "1s", "factor": 3, "cap": "5s", "jitter": "none"},
        timeout="30s",
        start_within=500,
        on_deadline="retry",
        reconcile="ask",
        reconcile_within="2m",
        on_final={"kind": "alert", "lane": "alerts", "states": ["dead", "cancelled"]},
        keep="1d",
        key_for="2d",
    )
    job = await rig.ask(Role.PRODUCER, f"/v1/jobs/{made}")
    assert job["args"] == {"phone": "+1555", "deep": [{"x": 1.5}]}
    assert 1_200_000 <= job["due_at"] - now < 1_230_000
    assert job["expires_at"] == job["due_at"] + 3_600_000
    wanted = {
        "kind": "call",
        "lane": "calls",
        "tenant": "acme",
        "subject": "+1555",
        "key": "order-17",
        "priority": 3,
        "state": "scheduled",
    }
    assert {name: job[name] for name in wanted} == wanted
    assert [(g["name"], g["template"], g["amount"], g["hold"]) for g in job["gates"]] == [
        ("line", "line", 1, "settled"),
        ("customer:+1555", "customer:{phone}", 2, "run"),
    ]
    assert job["policy"] == {
        "retry": {"attempts": 2, "base_ms": 1000, "factor": 3, "cap_ms": 5000, "jitter": "none"},
        "timeout_ms": 30_000,
        "start_within_ms": 500,
        "on_deadline": "retry",
        "reconcile": "ask",
        "reconcile_within_ms": 120_000,
        "on_final": {
            "kind": "alert",
            "lane": "alerts",
            "states": ["dead", "cancelled"],
            "policy": None,
        },
        "keep_ms": 86_400_000,
        "key_for_ms": 172_800_000,
        "cascade": False,
        "on_accepted": None,
    }


async def test_job_due_now_expires_relative_to_now(rig: Rig):
    before = (await rig.ask(Role.VIEWER, "/v1/stats"))["now"]
    made = await rig.ask(Role.VIEWER, f"/v1/jobs/{await rig.send(expires='1h')}")
    assert before <= made["expires_at"] - 3_600_000 <= made["created_at"]


async def test_key_creates_one_job_and_the_next_sender_gets_its_id(rig: Rig):
    first = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", {"kind": "noop", "key": "k"})
    again = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", {"kind": "noop", "key": "k"})
    assert (first.status_code, first.json()["created"]) == (201, True)
    assert (again.status_code, again.json()) == (200, {"id": first.json()["id"], "created": False})
    other = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", {"kind": "other", "key": "k"})
    problem(other, 409, "key_conflict")


async def test_repeat_under_one_idempotency_key_creates_no_second_job(rig: Rig):
    jobs = [{"kind": "noop", "args": {"n": n}} for n in range(3)]
    headers = {"Idempotency-Key": "retry-me"}
    first = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", jobs, headers=headers)
    again = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", jobs, headers=headers)
    ids = [one["id"] for one in first.json()["jobs"]]
    assert len(set(ids)) == 3
    assert again.json() == {"jobs": [{"id": one, "created": False} for one in ids]}
    stats = await rig.ask(Role.VIEWER, "/v1/stats")
    assert stats["totals"]["enqueued"] == 3
    # The same key text from another caller is a different key.
    other = await rig.call(Role.OPERATOR, "POST", "/v1/jobs", jobs, headers=headers)
    assert all(one["created"] for one in other.json()["jobs"])


async def test_another_body_under_an_idempotency_key_is_refused(rig: Rig):
    headers = {"Idempotency-Key": "once"}
    await rig.call(Role.PRODUCER, "POST", "/v1/jobs", {"kind": "a"}, headers=headers)
    other = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", {"kind": "b"}, headers=headers)
    problem(other, 409, "id_conflict")


@pytest.mark.parametrize("number", [1, 2, 4, 1_500])
async def test_list_of_another_length_under_an_idempotency_key_is_refused(rig: Rig, number: int):
    headers = {"Idempotency-Key": "once"}
    jobs = [{"kind": "noop", "key": "k"}, *({"kind": "noop", "args": {"n": n}} for n in range(2))]
    for _ in range(2):
        first = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", jobs, headers=headers)
        assert first.status_code == 200
    other = [*jobs, *([{"kind": "noop"}] * 1_500)][:number]
    reply = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", other, headers=headers)
    problem(reply, 409, "id_conflict")
    assert (await rig.ask(Role.VIEWER, "/v1/stats"))["totals"]["enqueued"] == 3


async def test_interrupted_list_is_completed_when_repeated(rig: Rig):
    headers = {"Idempotency-Key": "once"}
    jobs = [{"kind": "noop", "args": {"n": n}} for n in range(1_500)]
    await rig.call(Role.PRODUCER, "POST", "/v1/jobs", jobs[:1_000], headers=headers)
    again = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", jobs, headers=headers)
    assert sum(one["created"] for one in again.json()["jobs"]) == 500


@pytest.mark.parametrize("key", ["", "x" * 256, "with space"])
async def test_unusable_idempotency_key_is_refused(rig: Rig, key: str):
    reply = await rig.call(
        Role.PRODUCER, "POST", "/v1/jobs", {"kind": "a"}, headers={"Idempotency-Key": key}
    )
    assert reply.status_code == 422, reply.text


async def test_ten_thousand_jobs_fit_one_request(tmp_path: object):
    async with serving(f"sqlite:///{tmp_path}/headway.db?synchronous=normal") as rig:
        jobs = [{"kind": "noop", "lane": "bulk", "args": {"n": n}} for n in range(10_000)]
        reply = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", jobs)
        assert reply.status_code == 200, reply.text
        made = reply.json()["jobs"]
        assert len({one["id"] for one in made}) == 10_000
        last = await rig.store.read(JobQuery(id=made[-1]["id"]))
        assert last is not None
        assert last.args == b'{"n":9999}'
        lane = await rig.ask(Role.VIEWER, "/v1/lanes/bulk")
        assert lane["counts"] == {"waiting": 10_000}
        more = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", [{"kind": "noop"}] * 10_001)
        problem(more, 422, "invalid_value")


async def test_refused_step_says_how_many_jobs_are_stored(rig: Rig):
    await rig.store.define(
        DefineRequest(
            items=(DeclareLane(spec=LaneSpec(name="small", max_backlog=1_500)),), author="the test"
        )
    )
    jobs = [{"kind": "noop", "lane": "small"}] * 2_500
    reply = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", jobs)
    told = problem(reply, 429, "backlog_full")
    assert told["stored"] == 1_000
    assert reply.headers["retry-after"].isdigit()
    assert (await rig.ask(Role.VIEWER, "/v1/lanes/small"))["unfinished"] == 1_000


async def test_body_without_a_json_content_type_is_refused_with_the_missing_header(
    rig: Rig,
):
    form = {"content-type": "application/x-www-form-urlencoded"}
    reply = await rig.call(
        Role.PRODUCER, "POST", "/v1/jobs", content=b'{"kind": "a"}', headers=form
    )
    assert "Content-Type: application/json" in problem(reply, 422, "invalid_value")["hint"]


async def test_unknown_field_is_named_beside_the_missing_one(rig: Rig):
    reply = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", {"kin": "a"})
    told = problem(reply, 422, "invalid_value")
    assert told["detail"] == "body.kind: it is missing; body.kin: there is no such field"
    assert told["hint"] == "GET /openapi.json lists the fields of each request"


async def test_malformed_json_is_reported_for_the_body_without_a_place(rig: Rig):
    as_json = {"content-type": "application/json"}
    reply = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", content=b"{", headers=as_json)
    assert problem(reply, 400, "invalid_value")["errors"][0]["where"] == "body"


async def test_one_unusable_job_of_a_list_stores_none(rig: Rig):
    reply = await rig.call(
        Role.PRODUCER, "POST", "/v1/jobs", [{"kind": "a"}, {"kind": "b", "priority": -1}]
    )
    told = problem(reply, 422, "invalid_value")
    assert told["errors"][0]["where"] == "body.1.priority"
    assert (await rig.ask(Role.VIEWER, "/v1/stats"))["counts"] == {}


@pytest.mark.parametrize(
    ("job", "where"),
    [
        ({}, "body.kind"),
        ({"kind": ""}, "body.kind"),
        ({"kind": "a\0b"}, "body.kind"),
        ({"kind": "x" * 513}, "body.kind"),
        ({"kind": 7}, "body.kind"),
        ({"kind": "a", "args": [1]}, "body.args"),
        ({"kind": "a", "priority": "1"}, "body.priority"),
        ({"kind": "a", "priority": True}, "body.priority"),
        ({"kind": "a", "priority": 2**32}, "body.priority"),
        ({"kind": "a", "due": "2026-12-01T10:00"}, "body.due"),
        ({"kind": "a", "due": "soon"}, "body.due"),
        ({"kind": "a", "due": -1}, "body.due"),
        ({"kind": "a", "due": 1.5}, "body.due"),
        ({"kind": "a", "expires": "-1s"}, "body.expires"),
        ({"kind": "a", "timeout": 10**18}, "body.timeout"),
        ({"kind": "a", "id": "not-a-uuid"}, "body.id"),
        ({"kind": "a", "id": str(uuid4()).upper()}, "body.id"),
        ({"kind": "a", "state": "succeeded"}, "body.state"),
        ({"kind": "a", "created_at": 1}, "body.created_at"),
        ({"kind": "a", "entry": "nightly"}, "body.entry"),
        ({"kind": "a", "candidates": []}, "body.candidates"),
        ({"kind": "a", "on_final": {"kind": "b", "states": ["waiting"]}}, "body.on_final.states.0"),
        ({"kind": "a", "retry": {"attempts": 0}}, "body.retry.attempts"),
    ],
)
async def test_unusable_field_is_refused_by_its_place(rig: Rig, job: object, where: str):
    told = problem(await rig.call(Role.PRODUCER, "POST", "/v1/jobs", job), 422, "invalid_value")
    assert told["errors"][0]["where"] == where


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"kind": "a", "gates": ["nobody"]}, "unknown_gate"),
        ({"kind": "a", "gates": ["customer:{phone}"]}, "invalid_value"),
        ({"kind": "a", "gates": ["customer:{phone}"], "args": {"phone": [1]}}, "invalid_value"),
        ({"kind": "a", "gates": [{"gate": "customer:{phone}", "name": "x"}]}, "invalid_value"),
        ({"kind": "a", "gates": ["line", "line"]}, "invalid_value"),
        ({"kind": "a", "cascade": True}, "invalid_value"),
        ({"kind": "a", "candidates": ["x"], "cascade": False}, "invalid_value"),
        ({"kind": "a", "candidates": ["x", "x"]}, "invalid_value"),
        ({"kind": "a", "retry": {"base": "1h", "cap": "1s"}}, "invalid_value"),
    ],
)
async def test_job_refused_by_the_store_is_unusable(rig: Rig, job: object, code: str):
    await declare(rig, Rate("customer:{phone}", 7, "1h"), Slots("line", 2))
    problem(await rig.call(Role.PRODUCER, "POST", "/v1/jobs", job), 422, code)


async def test_arguments_above_the_limit_are_too_large(rig: Rig):
    args = {"text": "x" * MAX_ARGS}
    reply = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", {"kind": "a", "args": args})
    problem(reply, 413, "payload_too_large")


@pytest.mark.parametrize(
    "body", ["{", "NaN", '{"kind": "a", "args": {"x": NaN}}', '"\ud800"', "[" * 5000, ""]
)
async def test_malformed_json_body_is_refused(rig: Rig, body: str):
    reply = await rig.call(
        Role.PRODUCER,
        "POST",
        "/v1/jobs",
        content=body.encode("utf-8", "surrogatepass"),
        headers={"content-type": "application/json"},
    )
    assert reply.status_code in {400, 422}
    assert reply.json()["code"] == "invalid_value"


async def test_gates_resolved_by_the_sender_are_kept_unchanged(rig: Rig):
    await declare(rig, Rate("customer:{phone}", 7, "1h"))
    gate = {"gate": "customer:{phone}", "name": "customer:7"}
    made = await rig.send(kind="a", gates=[gate])
    job = await rig.ask(Role.PRODUCER, f"/v1/jobs/{made}")
    assert job["gates"][0]["name"] == "customer:7"


async def test_no_argument_replaces_the_tenant_lane_or_kind_in_a_gates_name(rig: Rig):
    await declare(rig, Slots("{tenant}:{lane}:{kind}:{n}", 1))
    args = {"tenant": "other", "lane": "x", "kind": "y", "n": 1}
    gates = ["{tenant}:{lane}:{kind}:{n}"]
    made = await rig.send(kind="a", tenant="acme", lane="calls", args=args, gates=gates)
    job = await rig.ask(Role.PRODUCER, f"/v1/jobs/{made}")
    assert job["gates"][0]["name"] == "acme:calls:a:1"


async def test_cascade_keeps_its_candidates_and_their_place_in_a_gates_name(rig: Rig):
    await declare(rig, Slots("lock:{candidate}", 1))
    made = await rig.send(kind="offer", candidates=["ada", "bob"], gates=["lock:{candidate}"])
    job = await rig.ask(Role.PRODUCER, f"/v1/jobs/{made}")
    assert job["cascade"]["left"] == ["ada", "bob"]
    assert job["gates"][0]["name"] == "lock:{candidate}"


# -------------------------------------------------------------------------- the server's kinds


def an_app() -> hw.App:
    app = hw.App("memory://")
    numbers = hw.Pool("numbers", {"+1": 1})

    @app.job(lane="calls", gates=[numbers], subject="{phone}", timeout="1m")
    def call(phone: str, times: int = 1) -> None:
        del phone, times

    @app.job(lane="alerts")
    def page(job: str, state: str, reason: str) -> None:
        del job, state, reason

    @app.job(timeout="7s", on_final="page")
    def report(job: str, state: str, reason: str) -> None:
        del job, state, reason

    @app.job(tenant="{whom}")
    def bill(whom: str) -> None:
        del whom

    return app


@pytest.fixture
async def with_app() -> AsyncIterator[Rig]:
    app = an_app()
    async with serving(app=app) as one:
        yield one
    await app.close_async()


async def test_expiry_of_a_kinds_job_counts_from_the_stores_time():
    """Whatever the clock of the server's machine shows."""
    clock = FakeClock()
    app = hw.App(store=MemoryStore(clock))

    @app.job(expires="10m")
    async def remind() -> None: ...

    async with serving(app=app) as rig:
        sent = [await rig.send(kind="remind"), await rig.send(kind="remind", expires="1m")]
        jobs = [await rig.ask(Role.VIEWER, f"/v1/jobs/{id}") for id in sent]
    await app.close_async()
    assert [job["expires_at"] - clock() for job in jobs] == [600_000, 60_000]
    assert {(job["state"], job["due_at"]) for job in jobs} == {("waiting", clock())}


async def test_kind_declared_by_the_app_makes_its_own_jobs(with_app: Rig):
    made = await with_app.send(kind="call", args={"phone": "+1555"})
    job = await with_app.ask(Role.PRODUCER, f"/v1/jobs/{made}")
    assert (job["lane"], job["subject"], job["policy"]["timeout_ms"]) == ("calls", "+1555", 60_000)
    assert job["gates"][0]["name"] == "numbers"
    plain = await with_app.send(kind="unknown to the app", args={"phone": 7})
    assert (await with_app.ask(Role.PRODUCER, f"/v1/jobs/{plain}"))["lane"] == "main"


async def test_follow_up_has_the_options_given_for_it_or_else_those_of_its_kind(with_app: Rig):
    ours = await with_app.token(Role.PRODUCER, lanes=["main"])
    theirs = {"kind": "report", "policy": {"keep": "9s", "on_final": {"kind": "report"}}}
    for follow, timeout_ms, keep_ms in (
        ({"kind": "report"}, 7_000, KEEP_MS),
        (theirs, None, 9_000),
    ):
        made = await with_app.send(ours, kind="unknown to the app", on_final=follow)
        job = await with_app.ask(Role.PRODUCER, f"/v1/jobs/{made}")
        policy = job["policy"]["on_final"]["policy"]
        assert (policy["timeout_ms"], policy["keep_ms"]) == (timeout_ms, keep_ms)
        assert policy["on_final"]["policy"] is None


async def test_edit_cannot_set_arguments_that_the_kind_refuses(with_app: Rig):
    call = await with_app.send(kind="call", args={"phone": "+1555"})
    plain = await with_app.send(kind="unknown to the app", args={"phone": 7})
    for args in ({}, {"phone": 7}, {"phone": "1", "junk": 1}):
        edit = {"verb": "edit", "args": args}
        for path, body in (
            (f"/v1/jobs/{call}/edit", {"args": args}),
            ("/v1/moves", {**edit, "ids": [plain, call]}),
            ("/v1/moves", {**edit, "filter": {"kind": "call"}}),
        ):
            reply = await with_app.call(Role.OPERATOR, "POST", path, body)
            problem(reply, 422, "invalid_arguments")
        reply = await with_app.call(Role.OPERATOR, "POST", f"/v1/jobs/{plain}/edit", {"args": args})
        assert reply.status_code == 200
    await with_app.call(Role.OPERATOR, "POST", f"/v1/jobs/{call}/kill")
    retry = {"args": {"phone": 7}}
    problem(
        await with_app.call(Role.OPERATOR, "POST", f"/v1/jobs/{call}/retry", retry),
        422,
        "invalid_arguments",
    )
    seen = await with_app.ask(Role.PRODUCER, f"/v1/jobs/{call}")
    assert (seen["state"], seen["args"]) == ("dead", {"phone": "+1555"})
    retry = {"args": {"phone": "+1666"}}
    reply = await with_app.call(Role.OPERATOR, "POST", f"/v1/jobs/{call}/retry", retry)
    assert reply.status_code == 200


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"kind": "call"}, "invalid_arguments"),
        ({"kind": "call", "args": {"phone": 7}}, "invalid_arguments"),
        ({"kind": "call", "args": {"phone": "1", "due": "x"}}, "invalid_arguments"),
        ({"kind": "call", "args": {"phone": "1", "self": "x"}}, "invalid_arguments"),
        ({"kind": "call", "args": {"phone": "1"}, "gates": []}, "invalid_value"),
        ({"kind": "call", "args": {"phone": "1"}, "timeout": "2m"}, "invalid_value"),
        ({"kind": "call", "args": {"phone": "1"}, "candidates": ["x"]}, "invalid_value"),
    ],
)
async def test_job_refused_by_its_kind_is_refused(with_app: Rig, job: object, code: str):
    problem(await with_app.call(Role.PRODUCER, "POST", "/v1/jobs", job), 422, code)


async def test_sender_that_repeats_the_kinds_values_is_accepted(with_app: Rig):
    made = await with_app.send(
        kind="call", args={"phone": "1"}, lane="calls", gates=["numbers"], timeout="1m"
    )
    assert (await with_app.ask(Role.PRODUCER, f"/v1/jobs/{made}"))["subject"] == "1"


async def test_tenant_that_a_kind_derives_from_arguments_must_be_the_callers(with_app: Rig):
    mine = await with_app.token(Role.PRODUCER, tenants=["acme", "umbrella"])
    made = await with_app.send(mine, kind="bill", args={"whom": "acme"})
    assert (await with_app.ask(mine, f"/v1/jobs/{made}"))["tenant"] == "acme"
    other = {"kind": "bill", "args": {"whom": "another"}}
    problem(await with_app.call(mine, "POST", "/v1/jobs", other), 403, "forbidden")


# ------------------------------------------------------------------------------ finding jobs


async def test_listing_pages_through_all_matching_jobs_once(rig: Rig):
    for n in range(7):
        await rig.send(lane="a" if n % 2 else "b", args={"n": n})
    seen: list[int] = []
    cursor = None
    while True:
        asked = {"lane": "b", "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = await rig.ask(Role.VIEWER, "/v1/jobs", **asked)
        assert len(page["rows"]) <= 2
        seen += [job["args"]["n"] for job in page["rows"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == [0, 2, 4, 6]
    newest = await rig.ask(Role.VIEWER, "/v1/jobs", newest=True, limit=1)
    assert newest["rows"][0]["args"] == {"n": 6}


async def test_page_of_large_jobs_ends_early_and_continues(rig: Rig):
    jobs = [{"kind": "noop", "args": {"n": n, "text": "x" * 900_000}} for n in range(40)]
    for start in range(0, 40, 10):
        made = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", jobs[start : start + 10])
        assert made.status_code == 200
    first = await rig.ask(Role.VIEWER, "/v1/jobs", limit=1_000)
    assert 0 < len(first["rows"]) < 40
    rest = await rig.ask(Role.VIEWER, "/v1/jobs", limit=1_000, cursor=first["cursor"])
    assert [job["args"]["n"] for job in first["rows"] + rest["rows"]] == list(range(40))
    many = [{"kind": "small"}] * 60
    await rig.call(Role.PRODUCER, "POST", "/v1/jobs", many)
    small = await rig.ask(Role.VIEWER, "/v1/jobs", limit=50, newest=True)
    assert len(small["rows"]) == 50


async def test_large_jobs_by_id_or_worker_are_a_bounded_part_of_a_page(rig: Rig):
    ids = [await rig.send(lane="a", args={"text": "x" * 900_000}) for _ in range(40)]
    first = await rig.ask(Role.VIEWER, "/v1/jobs", id=ids)
    assert 0 < len(first["rows"]) < 40
    rest = await rig.ask(Role.VIEWER, "/v1/jobs", id=ids, cursor=first["cursor"])
    assert [job["id"] for job in first["rows"] + rest["rows"]] == ids
    assert rest["cursor"] is None
    beyond = await rig.ask(Role.VIEWER, "/v1/jobs", id=ids, cursor="9" * 18)
    assert (beyond["rows"], beyond["cursor"]) == ([], None)
    await rig.store.claim(
        ClaimRequest(worker="w" * 32, request=1, lanes=(("a", 1),), n=40, free=40)
    )
    held = await rig.ask(Role.VIEWER, "/v1/jobs", worker="w" * 32)
    assert [job["id"] for job in held["rows"]] == ids[: len(held["rows"])]
    assert 0 < len(held["rows"]) < 40
    assert held["cursor"] is None


async def test_large_live_jobs_are_a_bounded_part_of_a_page(rig: Rig):
    for lane in ("a", "b"):
        for _ in range(40):
            await rig.send(lane=lane, args={"text": "x" * 900_000})
    lanes = (("a", 1),)
    for n in (1, 2, 3):
        asked = ClaimRequest(worker=f"{n:032}", request=1, lanes=lanes, n=13, free=13)
        await rig.store.claim(asked)
    for state, most in (("waiting", 25), ("running", 26)):
        rows = (await rig.ask(Role.VIEWER, "/v1/jobs", underway=True, state=state))["rows"]
        assert 0 < len(rows) <= most


async def test_live_jobs_are_found_whatever_else_there_is(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headway.stores.memory.jobs.MOST_EXAMINED", 2)
    for _ in range(9):
        await rig.send(lane="later", due="1h")
    held = [await rig.send(lane="a", kind=f"k{n % 3}") for n in range(30)]
    asked = ClaimRequest(worker="w" * 32, request=1, lanes=(("a", 1),), n=30, free=30)
    await rig.store.claim(asked)
    few = [await rig.send(lane="b", kind=f"few{n}") for n in range(9)]
    many = [await rig.send(lane="b", kind="many") for _ in range(50)]
    for _ in range(9):
        await rig.send(lane="later", due="1h")

    async def seen(**asked: object) -> list[str]:
        page = await rig.ask(Role.VIEWER, "/v1/jobs", underway=True, **asked)
        assert page["cursor"] is None
        return [job["id"] for job in page["rows"]]

    assert await seen(state="waiting") == [*few, *many]
    assert {*await seen(lane="b", limit=40)} == {*few, *many[:31]}
    assert await seen(kind="many") == many
    assert await seen(kind="few3", state=["waiting", "running"]) == [few[3]]
    assert await seen(state="running") == held
    # Jobs that do not match the filter do not count towards the page size.
    assert await seen(state="running", kind="k2", limit=10) == held[2::3]
    assert await seen(lane="a", kind="k1", limit=3) == held[1:8:3]
    assert await seen() == [*few, *many, *held]
    assert await seen(state=["scheduled", "dead"]) == []
    page = await rig.ask(Role.VIEWER, "/v1/jobs", underway=True, lane="a")
    assert all(job["runs"][0]["worker"] == "w" * 32 for job in page["rows"])


@pytest.mark.parametrize("name", ["id", "worker", "key", "subject", "newest", "runs", "cursor"])
async def test_live_jobs_cannot_be_combined_with_listing_filters(rig: Rig, name: str):
    asked = {"underway": True, name: "1"}
    refused = problem(
        await rig.call(Role.VIEWER, "GET", "/v1/jobs", params=asked), 422, "invalid_value"
    )
    assert f"`{name}`" in refused["detail"]


async def test_small_jobs_of_a_worker_are_one_page(rig: Rig):
    await rig.call(Role.PRODUCER, "POST", "/v1/jobs", [{"kind": "small", "lane": "a"}] * 60)
    await rig.store.claim(
        ClaimRequest(worker="w" * 32, request=1, lanes=(("a", 1),), n=60, free=60)
    )
    for limit in (24, 25, 26, 60, 100):
        held = await rig.ask(Role.VIEWER, "/v1/jobs", worker="w" * 32, limit=limit)
        assert (len(held["rows"]), held["cursor"]) == (min(limit, 60), None)
        assert len({job["id"] for job in held["rows"]}) == min(limit, 60)


@pytest.mark.parametrize(
    "asked",
    [{}, {"lane": "a", "gate": "b"}, {"lane": "a", "first": 0}, {"gate": "b", "limit": 101}],
)
async def test_flows_are_those_of_a_lane_or_of_a_gate(rig: Rig, asked: dict[str, object]):
    reply = await rig.call(Role.VIEWER, "GET", "/v1/flows", params=asked)
    problem(reply, 422, "invalid_value")


async def test_jobs_are_found_by_state_kind_key_and_subject(rig: Rig):
    one = await rig.send(kind="x", key="k", subject="s", tenant="t")
    await rig.send(kind="y", due="1h")
    for asked in (
        {"kind": "x"},
        {"key": "k", "tenant": "t"},
        {"subject": "s", "tenant": "t"},
        {"state": ["waiting", "dead"]},
    ):
        found = await rig.ask(Role.VIEWER, "/v1/jobs", **asked)
        assert [job["id"] for job in found["rows"]] == [one], asked
    assert (await rig.ask(Role.VIEWER, "/v1/jobs", key="k"))["rows"] == []


@pytest.mark.parametrize(
    "asked",
    [
        {"limit": 0},
        {"limit": 1001},
        {"limit": "x"},
        {"cursor": "abc"},
        {"cursor": "²"},
        {"cursor": "9" * 30},
        {"cursor": "-1"},
        {"state": "asleep"},
        {"lane": "x" * 513},
        {"lane": "a\0"},
        {"colour": "red"},
    ],
)
async def test_unusable_query_is_refused(rig: Rig, asked: dict[str, object]):
    reply = await rig.call(Role.VIEWER, "GET", "/v1/jobs", params=asked)
    problem(reply, 422, "invalid_value")


@pytest.mark.parametrize("made", ["x", NOBODY, NOBODY.upper(), "%00", "a'--", "%F0%9F%A6%86"])
async def test_missing_job_is_unknown(rig: Rig, made: str):
    for path in (f"/v1/jobs/{made}", f"/v1/jobs/{made}/why"):
        problem(await rig.call(Role.VIEWER, "GET", path), 404, "unknown_job")


async def test_job_includes_its_runs_and_its_trail(rig: Rig):
    made = await rig.send(lane="l")
    await rig.store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=(("l", 1),)))
    await rig.call(Role.OPERATOR, "POST", f"/v1/jobs/{made}/kill", {"reason": "a test"})
    job = await rig.ask(Role.VIEWER, f"/v1/jobs/{made}")
    assert job["state"] == "dead"
    assert [run["run"] for run in job["runs"]] == [1]
    assert (job["trail"][0]["author"], job["trail"][0]["reason"]) == ("operator", "a test")
    listed = (await rig.ask(Role.VIEWER, "/v1/jobs", runs=True))["rows"][0]
    assert [run["run"] for run in listed["runs"]] == [1]


# ------------------------------------------------------------------ why a job is not running


async def test_why_names_every_closed_gate_its_holder_and_the_place_in_the_flow(rig: Rig):
    await declare(rig, Pool("numbers", {"+1": 1}))
    first = await rig.send(lane="calls", gates=["numbers"])
    await rig.store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=(("calls", 1),)))
    await rig.send(lane="calls", gates=["numbers"])
    third = await rig.send(lane="calls", gates=["numbers"])
    closed = {"gate": "tenant:", "reason": "unpaid", "after": "1h"}
    await rig.call(Role.OPERATOR, "POST", "/v1/closures", closed)
    why = await rig.ask(Role.VIEWER, f"/v1/jobs/{third}/why")
    assert [gate["name"] for gate in why["closed"]] == ["tenant:", "numbers"]
    assert why["closed"][1]["holders"][0]["job"] == first
    assert (why["place"], why["blocked"], why["shown"]) == (2, True, "blocked")
    assert "unpaid" in why["sentence"]
    assert first in why["sentence"]
    assert (why["workers"], why["kind"], why["lane"]) == (1, "noop", "calls")
