from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.contract.views import GatesQuery
from headway.core.errors import CallerError, InvalidArguments, InvalidValue, UnknownKind
from headway.core.naming import MAX_NOTE
from headway.runtime.timing import Timing
from headway.stores.memory import MemoryStore


@pytest.fixture
def app() -> Iterator[hw.App]:
    app = hw.App(store=MemoryStore())
    yield app
    app.close()


def plain(job: hw.Job) -> None:
    """A handler that is not declared."""


def generator(*_: object) -> Iterator[int]:
    yield 1


async def async_generator(*_: object) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("kind", [None, 3, plain])
def test_object_that_is_not_a_kind_is_refused_as_unknown(app: hw.App, kind: Any) -> None:
    with pytest.raises(UnknownKind, match="is not a kind"):
        app.send(kind)


def test_uuid_is_accepted_as_a_job_id_and_a_number_is_refused(app: hw.App) -> None:
    ours = uuid.uuid4()
    assert app.send("noop", job_id=ours).id == str(ours)
    with pytest.raises(InvalidValue, match="not a UUID"):
        app.send("noop", job_id=3)


@pytest.mark.parametrize("fn", [partial(plain), 3, object()])
def test_object_that_is_not_a_function_cannot_be_a_handler(app: hw.App, fn: Any) -> None:
    with pytest.raises(InvalidValue, match="is not a function"):
        app.job()(fn)


def test_parameter_for_the_job_must_be_the_first(app: hw.App) -> None:
    async def late(name: str, job: hw.Job) -> None: ...

    with pytest.raises(InvalidValue, match=r"'job' of 'late' takes the job, .*first parameter"):
        app.job(late)


def test_generator_cannot_be_a_handler(app: hw.App) -> None:
    for fn in (generator, async_generator):
        with pytest.raises(InvalidValue, match="generator"):
            app.job()(fn)


@pytest.mark.parametrize(
    "call",
    [
        lambda app: app.job(gates=3)(plain),
        lambda app: hw.Pool("p", 3),
        lambda app: hw.Pool("p", "abc"),
        lambda app: app.send_many(None),
        lambda app: app.send_many([1, 2]),
        lambda app: app.job(cascade=True)(plain).make(candidates="abc"),
        lambda app: app.job(cascade=True)(plain).make(candidates=3),
        lambda app: app.job(on_deadline=["dead"])(plain),
        lambda app: app.job(on_final_states=3)(plain),
        lambda app: app.job(on_final_states=[["dead"]])(plain),
        lambda app: app.lane("mail", fair=["tenant"]),
        lambda app: app.worker(order=["strict"]),
        lambda app: app.worker(unknown=["dead"]),
        lambda app: app.worker(middleware=3),
        lambda app: app.worker(on_failure=[3]),
        lambda app: app.worker(signing_key=3),
        lambda app: app.worker(signing_key=[b"0" * 32]),
        lambda app: app.middleware(3),
        lambda app: app.middleware(generator),
        lambda app: app.middleware(async_generator),
        lambda app: app.worker(middleware=[async_generator]),
        lambda app: app.observe(lambda store: store, async_generator),
        lambda app: app.on_failure(generator),
        lambda app: app.on_failure(3),
        lambda app: app.observe(3, plain),
        lambda app: app.observe(plain, 3),
        lambda app: app.importer("rows")(3),
        lambda app: app.source()(3),
        lambda app: app.source(3),
        lambda app: app.source()(partial(tuple)),
        lambda app: app.source()(tuple).in_flight(3),
        lambda app: app.job(reconcile=3)(plain),
        lambda app: app.job(reconcile=None)(plain),
        lambda app: app.job(cascade=1)(plain),
        lambda app: app.job(cascade=None)(plain),
        lambda app: app.job(processes="no")(plain),
        lambda _: hw.Slots("a", 1, shared=1),
        lambda _: hw.Rate("a:{n}", 1, "1h", shared="yes"),
        lambda _: hw.Pool("a", ["b"], shared=0),
        lambda app: app.timetable("a", "noop", schedule=hw.Cron("0 3 * * *"), tz="Asia/Tokyo"),
        lambda app: app.timetable("a", "noop", schedule=hw.Every(1000), anchor="2026-01-01T00:00Z"),
        lambda app: app.timetable("a", "noop", schedule="every 24h", tz="Asia/Tokyo"),
        lambda app: app.timetable("a", "noop", schedule="at 09:00", anchor="2026-01-01T00:00Z"),
        lambda app: app.job(timeout="0s")(plain),
        lambda app: app.job(start_within=timedelta(0))(plain),
        lambda _: hw.Rate("a", 1, per="0s"),
        lambda _: hw.App("memory:").move_to(3),  # pyright: ignore[reportArgumentType]  (as below)
        lambda _: hw.App(store=3),  # pyright: ignore[reportArgumentType]  (what the test is about)
    ],
)
def test_values_of_another_shape_are_refused_clearly(
    app: hw.App, call: Callable[[hw.App], object]
) -> None:
    with pytest.raises(CallerError) as refused:
        call(app)
    assert refused.value.hint


@pytest.mark.parametrize("name", [3, [], plain, ""])
def test_importer_is_refused_under_what_is_not_a_name(app: hw.App, name: Any) -> None:
    with pytest.raises(InvalidValue, match="importer"):
        app.importer(name)


def test_entry_of_a_kind_with_a_key_is_refused_because_its_fires_have_none(app: hw.App) -> None:
    @app.job(key="report-{day}")
    def report(job: hw.Job, day: str) -> None: ...

    with pytest.raises(InvalidValue, match="the entry 'nightly' gives its jobs a key") as refused:
        app.timetable("nightly", report, schedule="every 1h", args={"day": "today"})
    assert refused.value.hint == "each fire is a separate job; use a kind without a key"


def test_arguments_of_an_entry_are_refused_if_one_has_no_name(app: hw.App) -> None:
    args: Any = {3: "new"}
    with pytest.raises(InvalidValue, match="argument of the entry 'news' must be text, not int"):
        app.timetable("news", "noop", schedule="every 1m", args=args)


@pytest.mark.parametrize("gate", ["line", None, [hw.Slots("line", 1)], hw.Slots("line", 1).take()])
async def test_object_that_is_not_a_gate_is_refused_and_no_gate_is_declared(gate: Any) -> None:
    store = MemoryStore()
    app = hw.App(store=store)
    with pytest.raises(InvalidValue, match="is not a gate") as refused:
        await app.declare_gates(hw.Slots("seat", 1), gate)
    assert refused.value.hint == "pass each as a Slots, Rate, Hours or Pool"
    assert (await store.read(GatesQuery())).rows == ()


def test_datetime_without_an_offset_is_refused_everywhere(app: hw.App) -> None:
    @app.job()
    def meet(job: hw.Job, at: datetime | None = None, times: Any = 0, days: Any = 0) -> None:
        """Takes datetimes."""

    naive = datetime(2026, 12, 1, 10, 0)  # noqa: DTZ001
    for given in ({"at": naive}, {"times": [naive]}, {"days": {"deep": [naive]}}):
        with pytest.raises(InvalidArguments, match="without an offset"):
            app.send(meet, **given)


def test_unknown_argument_is_refused_with_the_existing_arguments_and_options(
    app: hw.App,
) -> None:
    @app.job()
    def work(n: int) -> None: ...

    with pytest.raises(InvalidArguments, match="there is no argument 'due_at'") as refused:
        app.send(work, n=1, due_at="5m")
    assert refused.value.hint == "did you mean due?"
    with pytest.raises(InvalidArguments, match="there is no argument 'delay'") as refused:
        app.send(work, n=1, delay="5m")
    assert refused.value.hint == (
        "it takes n; the options of a send are candidates, connection, due, expires, job_id, key,"
        " lane, priority, subject, tenant"
    )


@pytest.mark.parametrize("lanes", [3, [1], [("mail",)], [("mail", 1, 2)]])
def test_invalid_list_of_lanes_is_refused(app: hw.App, lanes: Any) -> None:
    with pytest.raises(InvalidValue, match="a worker's lanes are") as refused:
        app.worker(lanes=lanes)
    assert refused.value.hint == 'write "calls,mail:2", or a list of names and pairs'


def test_url_that_names_a_driver_is_refused_with_the_one_to_write() -> None:
    with pytest.raises(InvalidValue, match=r"'postgresql\+asyncpg://…' is not the URL") as refused:
        hw.App("postgresql+asyncpg://shop:secret@db/shop").open()
    assert "without a driver name" in refused.value.hint


@pytest.mark.parametrize("due", ["20m", timedelta(minutes=20)])
def test_due_time_can_be_a_duration_from_now(due: object) -> None:
    class At(Timing):
        def wall_at(self) -> int:
            return 1_000_000

    app = hw.App(store=MemoryStore(), timing=At())

    @app.job()
    def work() -> None: ...

    assert work.make(due=due).due_at == 1_000_000 + 20 * 60_000
    assert work.make(due=due, expires="1h").expires_at == 1_000_000 + 80 * 60_000


@pytest.mark.parametrize("due", ["soon", timedelta(minutes=-20), "5 minutes"])
def test_invalid_due_time_is_refused(app: hw.App, due: object) -> None:
    with pytest.raises(InvalidValue):
        app.send("noop", due=due)


@pytest.mark.parametrize("call", ["find", "why", "cancel", "wait"])
def test_result_of_send_is_refused_as_an_id_with_what_to_pass(app: hw.App, call: str) -> None:
    sent: Any = app.send("noop")
    with pytest.raises(InvalidValue, match="must be text, not Sent") as refused:
        getattr(app, call)(sent)
    assert refused.value.hint == "pass the id of what send returned: sent.id"


@pytest.mark.parametrize("url", [3, Path("x.db"), MemoryStore()])
def test_url_of_an_app_that_is_not_text_is_refused(url: Any) -> None:
    with pytest.raises(InvalidValue, match="the URL of an App is"):
        hw.App(url)


@pytest.mark.parametrize("store", ["memory://", MemoryStore])
def test_url_or_class_is_refused_as_an_open_store(store: Any) -> None:
    with pytest.raises(InvalidValue, match="is not an open store"):
        hw.App(store=store)
    with pytest.raises(InvalidValue, match="is not an open store"):
        hw.App("memory://").use(store)


@pytest.mark.parametrize("stages", [["check", "dial"], "dial", {"dial": None}, {"dial": "LINE"}])
def test_stages_that_are_not_lists_of_gates_by_name_are_refused(app: hw.App, stages: Any) -> None:
    with pytest.raises(InvalidValue, match="of 'plain' are"):
        app.job(stages=stages)(plain)


def test_weights_of_a_lane_that_are_not_by_tenant_are_refused(app: hw.App) -> None:
    weights: Any = ["acme"]
    with pytest.raises(InvalidValue, match="weights of the lane 'calls' are"):
        app.lane("calls", fair="tenant", weights=weights)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"known_as": ""}, "known_as of in_flight for 'k' is empty"),
        ({"known_as": 5}, "known_as of in_flight for 'k' must be text"),
        ({"known_as": "CA\0"}, "contains NUL"),
        ({"members": ["+1"]}, "members of in_flight for 'k' are"),
        ({"members": {"numbers": 1}}, "member of the pool 'numbers' must be text"),
    ],
)
def test_work_in_flight_that_no_signal_could_end_is_refused(
    app: hw.App, wrong: dict[str, Any], words: str
) -> None:
    job = app.kind("noop").make(key="k")
    good = {"known_as": "CA1", "since": "2026-01-01T00:00Z", "timeout": "5m"}
    with pytest.raises(InvalidValue, match=words):
        hw.in_flight(job, **{**good, **wrong})


@pytest.mark.parametrize("enabled", ["no", 1, None])
def test_enabled_of_an_entry_that_is_not_a_flag_is_refused(app: hw.App, enabled: Any) -> None:
    with pytest.raises(InvalidValue, match="enabled of the entry 'nightly'"):
        app.timetable("nightly", "noop", schedule="every 1h", enabled=enabled)


@pytest.mark.parametrize("name", ["nul\0", "\ud800", "x" * (MAX_NOTE + 1)], ids=[*"nsl"])
def test_name_of_a_worker_that_a_store_cannot_hold_is_refused(app: hw.App, name: str) -> None:
    with pytest.raises(InvalidValue, match="a worker's name"):
        app.worker(name=name)


def test_next_stage_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidValue, match="stage is empty"):
        hw.Next("")


@pytest.mark.parametrize("reason", [None, 3])
def test_reason_that_is_not_text_is_refused(app: hw.App, reason: Any) -> None:
    job = app.send("noop")
    with pytest.raises(InvalidValue, match="reason must be text"):
        app.cancel(job.id, reason=reason)
