"""What an app declares: kinds, gates, lanes, timetable entries, and which of them are refused."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

import headway as hw
from headway.contract.definitions import FireRequest
from headway.contract.views import GatesQuery, JobsQuery, LanesQuery, SpecsQuery, TimetableQuery
from headway.core.errors import InvalidValue
from headway.core.job import FollowUp, JobPolicy
from tests.runtime.observed_store import ObservedStore


@pytest.fixture
def plain() -> hw.App:
    return hw.App("memory://")


def test_gate_names_are_filled_with_arguments_and_options(plain: hw.App) -> None:
    hours = hw.Hours("hours:{tz}", "09:00-18:00", days="mon-fri", tz="{tz}")
    customer = hw.Rate("customer:{phone}", 7, per="1h")
    mine = hw.Slots("{tenant}/{lane}/{kind}", 9)

    @plain.job(gates=[hours, customer.take(2), mine.take(3, hold="run")], tenant="{reseller}")
    async def call(job: hw.Job, phone: str, tz: str, reseller: str = "acme") -> None: ...

    uses = call.make(phone="+49", tz="Europe/Berlin", lane="calls").gates
    assert [(use.name, use.template, use.amount) for use in uses] == [
        ("hours:Europe/Berlin", "hours:{tz}", 1),
        ("customer:+49", "customer:{phone}", 2),
        ("acme/calls/call", "{tenant}/{lane}/{kind}", 3),
    ]
    assert [use.shared for use in uses] == [True, False, True]
    assert [use.zone for use in uses] == ["Europe/Berlin", None, None]
    assert uses[2].hold == "run"


def test_amount_is_taken_from_an_argument(plain: hw.App) -> None:
    tokens = hw.Rate("tokens", 1_000, per="1m", shared=False)

    @plain.job(gates=[tokens.take("{estimate}", hold="run")])
    async def complete(prompt: str, estimate: int = 10) -> None: ...

    uses = [complete.make(prompt="a", **more).gates[0] for more in ({}, {"estimate": 7})]
    assert [(use.name, use.amount, use.hold, use.shared) for use in uses] == [
        ("tokens", 10, "run", False),
        ("tokens", 7, "run", False),
    ]
    # At a later stage, the gates are given the stored arguments.
    (use,) = complete.uses(
        "", "default", "", b'{"prompt":"","estimate":3}', [tokens.take("{estimate}")]
    )
    assert use.amount == 3


@pytest.mark.parametrize("estimate", [0, -1, 2**31, True, "7", None])
def test_argument_that_is_no_amount_is_refused(plain: hw.App, estimate: Any) -> None:
    @plain.job(gates=[hw.Slots("memory", 64, shared=False).take("{estimate}")])
    async def build(estimate: Any) -> None: ...

    with pytest.raises(InvalidValue, match="build: the argument 'estimate', an amount of 'memory'"):
        build.make(estimate=estimate)


@pytest.mark.parametrize("amount", ["", "7", "estimate", "{a}{b}", "{a} ", "{", "{}"])
def test_amount_that_is_not_one_argument_is_refused(amount: str) -> None:
    with pytest.raises(InvalidValue):
        hw.Slots("memory", 64, shared=False).take(amount)


def test_amount_from_an_argument_is_refused_at_a_shared_gate_and_without_the_argument(
    plain: hw.App,
) -> None:
    with pytest.raises(
        InvalidValue, match=r"'memory' is shared, but \{mb\} differs from job to job"
    ):
        hw.Slots("memory", 64).take("{mb}")
    with pytest.raises(InvalidValue, match=r"'memory:\{host\}' needs an argument 'mb'"):

        @plain.job(gates=[hw.Slots("memory:{host}", 64).take("{mb}")])
        async def build(host: str) -> None: ...


def test_gate_names_are_filled_with_a_constant_tenant(plain: hw.App) -> None:
    @plain.job(gates=[hw.Slots("{tenant}/{phone}", 1)], tenant="acme")
    async def call(phone: str) -> None: ...

    assert [one.name for one in call.make(phone="+49").gates] == ["acme/+49"]
    assert [one.name for one in call.make(phone="+49", tenant="beta").gates] == ["beta/+49"]


def test_values_are_never_read_as_templates(plain: hw.App) -> None:
    @plain.job(gates=[hw.Slots("repo:{url}", 1)], subject="{url}")
    async def build(job: hw.Job, url: str) -> None: ...

    job = build.make(url="{tenant}{}{{\0".replace("\0", ""))
    assert (job.gates[0].name, job.subject) == ("repo:{tenant}{}{{", "{tenant}{}{{")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"gates": [hw.Slots("x:{phone}", 1)]},
            "needs an argument 'phone', which 'work' does not have",
        ),
        ({"gates": [hw.Slots("x:{candidate}", 1)]}, "needs an argument 'candidate'"),
        ({"gates": [hw.Slots(f"g{n}", 1) for n in range(9)]}, "more than 8 shared gates"),
        ({"gates": [hw.Slots("g", 1), hw.Slots("g", 1)]}, "names the gate 'g' twice"),
        ({"gates": ["g"]}, "among the gates of 'work' is 'g'"),
        ({"gates": "lines"}, "the gates of 'work' are 'lines'"),
        ({"gates": hw.Slots("g", 1)}, "the gates of 'work' are GateSpec"),
        ({"subject": "{phone}"}, "the subject '{phone}' needs an argument 'phone'"),
        ({"key": "{phone"}, "brace outside a placeholder"),
        ({"on_deadline": "explode"}, "on_deadline of 'work' is 'explode'"),
        ({"on_final_states": ("awaiting",)}, "on_final_states of 'work'"),
        ({"on_final": ""}, "on_final of 'work' is empty"),
        ({"on_final": 3}, "on_final of 'work' must be text, not int"),
        ({"on_accepted": "a\0b", "cascade": True}, "contains NUL"),
        ({"retry": 5}, "retry of 'work' is 5"),
        ({"timeout": "soon"}, "timeout of 'work': the duration 'soon' is not understood"),
        ({"keep": 5}, "keep of 'work': a duration cannot be parsed from 5"),
        ({"priority": -1}, "priority is -1"),
        ({"priority": True}, "priority must be a whole number"),
        ({"lane": ""}, "lane is empty"),
        ({"name": "a\0b"}, "contains NUL"),
        ({"name": "x" * 10_000}, "kind has 10000 characters"),
        (
            {"colour": "red"},
            "unknown option 'colour' (options are name, lane",
        ),
        ({"retries": 3}, "unknown option 'retries' (did you mean retry? options are name, lane"),
        ({"gates": [hw.Slots("g", 1)], "stages": {"a": []}}, "has gates in addition to its stages"),
        ({"stages": {}}, "has no stages"),
    ],
)
def test_unusable_options_of_a_kind_are_refused(
    plain: hw.App, options: dict[str, Any], text: str
) -> None:
    async def work(job: hw.Job, n: int = 0) -> None: ...

    with pytest.raises(hw.InvalidValue) as caught:
        plain.job(**options)(work)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"due": datetime(2026, 1, 1)}, "has no offset from UTC"),  # noqa: DTZ001  (what it is about)
        ({"due": "2026-01-01T10:00"}, "has no offset from UTC"),
        ({"due": 5}, "an instant cannot be parsed from 5"),
        ({"priority": 2**32}, "priority is 4294967296"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"lane": 5}, "lane must be text, not int"),
        ({"tenant": "\ud800"}, "is not valid Unicode"),
        ({"key": "a\0b"}, "contains NUL"),
        ({"expires": -5}, "a duration cannot be parsed"),
        ({"candidates": ["a"]}, "candidates were given, but the kind is not a cascade"),
    ],
)
def test_unusable_options_of_a_send_are_refused(
    plain: hw.App, given: dict[str, Any], text: str
) -> None:
    @plain.job()
    async def work(job: hw.Job) -> None: ...

    with pytest.raises(hw.InvalidValue) as caught:
        plain.send(work, **given)
    assert text in str(caught.value)


@pytest.mark.parametrize("capacity", [2, 3])
async def test_two_kinds_must_declare_one_gate_alike(
    app: hw.App, store: ObservedStore, capacity: int
) -> None:
    @app.job(gates=[hw.Slots("lines", 2)])
    async def one(job: hw.Job) -> None: ...

    @app.job(gates=[hw.Slots("lines", capacity)])
    async def other(job: hw.Job) -> None: ...

    if capacity == 2:
        await app.send_async(one)
        assert [gate.name for gate in (await store.read(GatesQuery())).rows] == ["lines"]
        return
    with pytest.raises(hw.InvalidValue) as caught:
        await app.send_async(one)
    said = "the gate 'lines' is declared in two different ways, by 'one' and by 'other'"
    assert caught.value.message == said
    assert (await store.read(GatesQuery())).rows == ()


def test_two_needs_that_result_in_one_gate_are_refused(plain: hw.App) -> None:
    @plain.job(gates=[hw.Slots("x:{a}", 1), hw.Slots("x:{b}", 1)])
    async def work(job: hw.Job, a: str, b: str) -> None: ...

    assert len(work.make(a="1", b="2").gates) == 2
    with pytest.raises(hw.InvalidValue, match="work: two of its gates are the same gate 'x:1'"):
        work.make(a="1", b="1")


def test_invalid_zone_and_names_are_refused_when_a_job_is_made(plain: hw.App) -> None:
    hours = hw.Hours("hours:{tz}", "09:00-18:00", tz="{tz}")

    @plain.job(gates=[hours, hw.Slots("x:{n}", 1)], subject="{n}")
    async def call(job: hw.Job, tz: str, n: str | float | None = "n") -> None: ...

    with pytest.raises(hw.InvalidValue, match="there is no time zone 'Europe/Berln'"):
        call.make(tz="Europe/Berln")
    with pytest.raises(hw.InvalidValue, match="time zone is empty"):
        call.make(tz="")
    with pytest.raises(hw.InvalidValue, match=r"the subject '\{n\}' cannot be named by n=None"):
        call.make(tz="UTC", n=None)
    with pytest.raises(hw.InvalidValue, match=r"the gate 'x:\{n\}' cannot be named by n=1\.5"):
        call.make(tz="UTC", n=1.5, subject="x")
    with pytest.raises(hw.InvalidValue, match="depend on 'tz', but their name does not"):
        hw.Hours("office", "09:00-18:00", tz="{tz}")


def test_unknown_kind_is_refused_with_a_similar_name(plain: hw.App) -> None:
    @plain.job()
    async def calling(job: hw.Job) -> None: ...

    with pytest.raises(hw.UnknownKind, match="no kind 'caling' \\(did you mean calling"):
        plain.send("caling")
    other = hw.App("memory://")
    with pytest.raises(hw.UnknownKind):
        other.send(calling)


def test_names_in_use_are_refused(plain: hw.App) -> None:
    @plain.job(name="work")
    async def one(job: hw.Job) -> None: ...

    with pytest.raises(hw.InvalidValue, match="there are two kinds 'work'"):
        plain.job(name="work")(one._fn)
    with pytest.raises(hw.InvalidValue, match="there are two kinds 'noop'"):
        plain.job(name="noop")(one._fn)
    plain.lane("main", concurrency=3)
    with pytest.raises(hw.InvalidValue, match="the lane 'main' is declared twice"):
        plain.lane("main")
    plain.timetable("nightly", one, schedule="every 30m")
    with pytest.raises(hw.InvalidValue, match="the timetable has two entries 'nightly'"):
        plain.timetable("nightly", one, schedule="every 30m")
    plain.importer("rows")(list)
    with pytest.raises(hw.InvalidValue, match="there are two importers 'rows'"):
        plain.importer("rows")
    assert plain.importers == {"rows": list}


def test_stage_without_a_handler_or_with_an_unusable_one_is_refused(plain: hw.App) -> None:
    @plain.job(stages={"check": [], "dial": []})
    async def call(job: hw.Job, phone: str) -> None: ...

    with pytest.raises(hw.InvalidValue, match="the stage 'dial' of 'call' has no handler"):
        plain.open()
    with pytest.raises(hw.InvalidValue, match="no stage 'dail'"):
        call.stage("dail")
    with pytest.raises(hw.InvalidValue, match="the stage 'check' of 'call' has a handler already"):
        call.stage("check")

    async def dial(job: hw.Job, number: str) -> None: ...

    with pytest.raises(hw.InvalidValue, match="'dial' of 'call' needs an argument 'number'"):
        call.stage("dial")(dial)


def test_follow_up_must_take_its_arguments(plain: hw.App) -> None:
    @plain.job()
    async def alert(job: hw.Job, text: str) -> None: ...

    @plain.job(on_final=alert)
    async def work(job: hw.Job) -> None: ...

    with pytest.raises(hw.InvalidValue, match="'alert' follows 'work', but cannot take"):
        plain.open()


@pytest.mark.parametrize("options", [{"on_final": "report"}, {"on_accepted": "report"}])
def test_follow_up_with_gates_is_refused(plain: hw.App, options: dict[str, Any]) -> None:
    gates = [hw.Rate("reports", 1, per="1s")]

    @plain.job(gates=gates)
    async def report(job: str, state: str, **more: object) -> None: ...

    @plain.job(cascade=True, **options)
    async def work() -> None: ...

    text = "'report' follows 'work', but has gates, which it would not pass"
    with pytest.raises(hw.InvalidValue, match=text):
        plain.open()


def test_follow_up_may_have_gates_at_a_later_stage(plain: hw.App) -> None:
    @plain.job(stages={"prepare": [], "send": [hw.Rate("reports", 1, per="1s")]})
    async def report(job: str, state: str, reason: str) -> hw.Next:
        return hw.Next("send")

    report.stage("send")(_take_end)

    @plain.job(on_final=report)
    async def work() -> None: ...

    plain.open()
    assert plain.kinds["work"].policy.on_final == FollowUp(kind="report", lane="main")


def test_follow_ups_have_the_options_of_their_kinds_but_not_without_end(plain: hw.App) -> None:
    @plain.job(lane="alerts", retry=hw.Backoff(attempts=2), on_final="third")
    async def second(job: str, state: str, reason: str) -> None: ...

    @plain.job(timeout="7s", cascade=True, on_final="work", on_accepted="second")
    async def third(job: str, state: str, reason: str) -> None: ...

    @plain.job(on_final=second, on_final_states=("cancelled",))
    async def work() -> None: ...

    first = work.policy.on_final
    assert first is not None
    assert (first.lane, first.states) == ("alerts", (hw.State.CANCELLED,))
    assert first.policy is not None
    assert first.policy.retry.attempts == 2
    then = first.policy.on_final
    assert then is not None
    assert then.policy == JobPolicy(
        timeout_ms=7_000, on_final=FollowUp(kind="work", lane="main", states=(hw.State.DEAD,))
    )


def test_fourth_follow_up_in_a_row_has_the_default_policy(plain: hw.App) -> None:
    for n in range(6):
        plain.job(name=f"step{n}", on_final=f"step{n + 1}", timeout="7s")(_take_end)
    policy, chain = plain.kinds["step0"].policy, list[str]()
    while policy is not None and policy.on_final is not None:
        chain.append(policy.on_final.kind)
        policy = policy.on_final.policy
    assert (chain, policy) == (["step1", "step2", "step3", "step4"], None)


async def _take_end(job: str, state: str, reason: str) -> None: ...


def test_follow_up_that_looks_misspelt_causes_a_warning(
    plain: hw.App, caplog: pytest.LogCaptureFixture
) -> None:
    @plain.job()
    async def alert(job: str, state: str, reason: str) -> None: ...

    @plain.job(on_final="alrt")
    async def work() -> None: ...

    @plain.job(on_final="report of another app")
    async def other() -> None: ...

    plain.open()
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ["'work' is followed by 'alrt', an unknown kind; did you mean alert?"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fair": "user"}, "fair of the lane 'calls' is 'user'"),
        ({"weights": {"a": 2}}, "has weights, but is not fair"),
        ({"fair": "tenant", "weights": {"a": 0}}, "the weight of 'a' is 0"),
        ({"fair": "tenant", "weights": {"a": 1_000_001}}, "the weight of 'a' is 1000001"),
        ({"concurrency": -1}, "concurrency of the lane 'calls' is -1"),
        ({"maxbacklog": 5}, "unknown option 'maxbacklog'"),
        ({"lease": 30}, "lease of the lane 'calls': a duration cannot be parsed from 30"),
        ({"lease": "1ms"}, "lease of the lane 'calls' is 1 ms (use 1s to 24h"),
        ({"lease": "25h"}, "lease of the lane 'calls' is 90000000 ms (use 1s to 24h"),
    ],
)
def test_unusable_options_of_a_lane_are_refused(
    plain: hw.App, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(hw.InvalidValue) as caught:
        plain.lane("calls", **options)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "has no schedule"),
        ({"schedule": timedelta(minutes=5)}, "the schedule of the entry 'e' is datetime.timedelta"),
        ({"schedule": "every 30m", "args": [1]}, "args of the entry 'e' are [1]"),
        ({"schedule": "sometimes"}, "the schedule 'sometimes' is not understood"),
        ({"schedule": "every 30m", "misfire": "twice"}, "misfire of the entry 'e' is 'twice'"),
        ({"schedule": "every 30m", "overlap": "no"}, "overlap of the entry 'e' is 'no'"),
        ({"schedule": "every 30m", "args": {"due": 1}}, "gives its jobs 'due'"),
        ({"schedule": "every 30m", "args": {"n": "x"}}, "argument 'n': expected int"),
    ],
)
def test_unusable_options_of_an_entry_are_refused(
    plain: hw.App, options: dict[str, Any], text: str
) -> None:
    @plain.job()
    async def work(job: hw.Job, n: int = 1) -> None: ...

    with pytest.raises(hw.CallerError) as caught:
        plain.timetable("e", work, **options)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lanes": ""}, "serves no lane"),
        ({"lanes": "a,b,a"}, "the lane 'a' is named twice"),
        ({"lanes": {"a": 0}}, "the weight of the lane 'a' is 0"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"lease": "10ms"}, "a worker's lease is 10 ms"),
        ({"lease": 30}, "a worker's lease: a duration cannot be parsed from 30"),
        ({"order": "random"}, "a worker's order is 'random'"),
        ({"threads": 5}, "a worker has no option 'threads'"),
    ],
)
def test_unusable_options_of_a_worker_are_refused(
    plain: hw.App, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(hw.InvalidValue) as caught:
        plain.worker(**options)
    assert text in str(caught.value)


def test_lanes_of_a_worker_are_read_from_text_mapping_or_list(plain: hw.App) -> None:
    for lanes in ("a, b:2", {"a": 1, "b": 2}, ["a", ("b", 2)]):
        assert plain.worker(lanes=lanes).settings.lanes == (("a", 1), ("b", 2))
    named = plain.worker(lanes="lane:with:colons:1").settings.lanes
    assert named == (("lane:with:colons", 1),)
    with pytest.raises(InvalidValue, match="the weight of the lane 'lane:with' is 'colons'"):
        plain.worker(lanes="lane:with:colons")


async def test_gates_lanes_and_entries_are_declared_to_the_store_once(
    app: hw.App, store: ObservedStore
) -> None:
    line = hw.Pool("line", {"+1": 1})

    @app.job(lane="calls", gates=[line, hw.Slots("x:{n}", 1)])
    async def call(job: hw.Job, n: int) -> None: ...

    app.lane("calls", concurrency=3, max_backlog=5, fair="tenant", weights={"acme": 2})
    app.timetable("nightly", call, schedule="cron: 0 3 * * *", tz="Europe/Berlin", args={"n": 1})
    for _ in range(3):
        await app.send_async(call, n=1)
    assert len(store.asked("define")) == 1
    names = [spec.name for spec in await store.read(SpecsQuery())]
    assert sorted(names) == ["line", "x:{n}"]
    (entry,) = await store.read(TimetableQuery())
    assert (entry.spec.name, entry.spec.schedule.tz) == ("nightly", "Europe/Berlin")
    (lane,) = await store.read(LanesQuery(names=("calls",)))
    assert (lane.spec.concurrency, lane.spec.max_backlog) == (3, 5)

    @app.job(gates=[hw.Slots("later", 1)])
    async def later(job: hw.Job) -> None: ...

    await app.send_async(later)
    assert len(store.asked("define")) == 2
    (gate,) = (await store.read(GatesQuery(names=("later",)))).rows
    assert gate.capacity == 1


async def test_backlog_key_and_id_conflicts_reach_the_caller(
    app: hw.App, store: ObservedStore
) -> None:
    app.lane("calls", max_backlog=3)

    @app.job(lane="calls", key="k:{n}")
    async def call(job: hw.Job, n: int, text: str = "") -> None: ...

    one = await app.send_async(call, n=1)
    same = await app.send_async(call, n=1)
    assert (same.id, same.created) == (one.id, False)
    with pytest.raises(hw.KeyConflict):
        await app.send_async(call, n=1, text="other")
    with pytest.raises(hw.IdConflict):
        await app.send_async(call, n=2, job_id=one.id)
    with pytest.raises(hw.BacklogFull):
        await app.send_many_async(call.make(n=n) for n in range(10, 15))
    with pytest.raises(hw.InvalidValue, match="is not a UUID"):
        await app.send_async(call, n=3, job_id="17")


@pytest.mark.parametrize("span", ["kind", "args"])
async def test_expiry_of_an_entrys_jobs_counts_from_each_fire(
    app: hw.App, store: ObservedStore, span: str
) -> None:
    options: dict[str, Any] = {"expires": "10m"} if span == "kind" else {}

    @app.job(**options)
    async def tick(job: hw.Job) -> None: ...

    args = {"expires": "10m"} if span == "args" else {}
    app.timetable("ticks", tick, schedule="every 1h", args=args)
    await app.declare()
    (entry,) = await store.read(TimetableQuery())
    assert (entry.spec.job.due_at, entry.spec.job.expires_at) == (None, 600_000)
    moments = (4_000_000_000_000, 4_000_003_600_000)
    await store.fire(
        FireRequest(entry="ticks", revision=entry.revision, moments=moments, ahead_until=moments[1])
    )
    jobs = (await store.read(JobsQuery(kind="tick"))).rows
    assert [job.expires_at for job in jobs] == [at + 600_000 for at in moments]
