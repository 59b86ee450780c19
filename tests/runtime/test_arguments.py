"""Arguments are checked against the handler's annotations when a job is created."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal

import msgspec
import pytest

import headway as hw
from headway.runtime import handler


@dataclass
class Place:
    lat: float
    lon: float


class Colour(Enum):
    RED = "red"


class NotJson:
    pass


@pytest.fixture
def app() -> hw.App:
    return hw.App("memory://")


def refused(app: hw.App, kind: hw.Kind, **arguments: Any) -> str:
    with pytest.raises(hw.InvalidArguments) as caught:
        kind.make(**arguments)
    return str(caught.value)


def test_wrong_type_is_refused_with_kind_argument_expected_and_got(app: hw.App) -> None:
    @app.job()
    async def call(job: hw.Job, phone: str, place: Place | None = None) -> None: ...

    text = "call: argument 'phone': expected str, got int"
    assert refused(app, call, phone=5).startswith(text)
    text = "call: argument 'place.lat': expected float, got str"
    assert refused(app, call, phone="5", place={"lat": "x", "lon": 1}).startswith(text)


def test_records_that_json_cannot_represent_exactly_are_refused(app: hw.App) -> None:
    @dataclass
    class Stop:
        lat: float | None
        at: Any = None

    class Tour(msgspec.Struct):
        stops: list[Any]

    @app.job()
    async def drive(job: hw.Job, stop: Any = None, pace: float | None = float("nan")) -> None: ...

    nan, naive = Stop(float("nan")), Stop(None, datetime(2026, 1, 1))  # noqa: DTZ001
    for stop in (nan, [nan], {"a": nan}, Tour([nan])):
        assert "contains NaN" in refused(app, drive, stop=stop)
    for stop in (naive, [naive], Tour([naive])):
        assert "datetime without an offset" in refused(app, drive, stop=stop)
    made = drive.make(stop=Tour([Stop(None, datetime(2026, 1, 1, tzinfo=UTC))]))
    assert made.args == b'{"stop":{"stops":[{"lat":null,"at":"2026-01-01T00:00:00Z"}]}}'


def test_missing_and_unknown_arguments_are_named(app: hw.App) -> None:
    @app.job()
    async def call(job: hw.Job, phone: str, tries: int = 3) -> None: ...

    assert refused(app, call) == "call: the argument 'phone' is missing (it takes phone, tries)"
    assert refused(app, call, phone="1", trys=2) == (
        "call: there is no argument 'trys' (did you mean tries?)"
    )
    assert refused(app, call, phon="1") == (
        "call: there is no argument 'phon' (did you mean phone?)"
    )


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (float("nan"), "NaN"),
        ([{"x": float("inf")}], "infinity"),
        (object(), "JSON"),
        ("\ud800", "JSON"),
        ({1: {2, object()}}, "JSON"),
    ],
)
def test_values_that_json_cannot_represent_exactly_are_refused(
    app: hw.App, value: object, word: str
) -> None:
    @app.job()
    async def work(job: hw.Job, value: Any) -> None: ...

    assert word in refused(app, work, value=value)


@pytest.mark.parametrize(
    "annotation", [float, float | str, list[float], tuple[float, ...], list[Any] | None, "others"]
)
def test_only_types_whose_values_stay_the_same_in_json_are_not_checked(
    app: hw.App, annotation: Any
) -> None:
    async def work(job: hw.Job, name: str = "", **values: Any) -> None: ...

    async def typed(job: hw.Job, value: Any) -> None: ...

    typed.__annotations__["value"] = annotation
    kind = app.job(name="work")(work if annotation == "others" else typed)
    many = annotation not in (float, float | str, "others")
    assert "NaN" in refused(app, kind, value=[float("nan")] if many else float("nan"))


def test_endless_nesting_is_refused(app: hw.App) -> None:
    @app.job()
    async def work(job: hw.Job, value: Any) -> None: ...

    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deeply" in refused(app, work, value=deep)
    endless: list[Any] = []
    endless.append(endless)
    assert "nested too deeply" in refused(app, work, value=endless)


def test_naive_datetime_is_refused(app: hw.App) -> None:
    @app.job()
    async def work(job: hw.Job, at: datetime) -> None: ...

    naive = datetime(2026, 1, 1)  # noqa: DTZ001  (what the test is about)
    assert "timezone" in refused(app, work, at=naive)
    aware = work.make(at=datetime(2026, 1, 1, tzinfo=UTC))
    assert aware.args == b'{"at":"2026-01-01T00:00:00Z"}'


def test_too_large_arguments_are_refused(app: hw.App) -> None:
    @app.job()
    async def work(job: hw.Job, text: str) -> None: ...

    with pytest.raises(hw.PayloadTooLarge, match="work: the arguments have 1000011 bytes"):
        work.make(text="x" * 1_000_000)


def test_same_arguments_in_any_order_give_the_same_body(app: hw.App) -> None:
    @app.job()
    async def work(job: hw.Job, a: int, b: float = 2.0, *, c: str = "c") -> None: ...

    bodies = {work.make(a=1, b=2, c="c").args, work.make(c="c", a=1).args, work.make(a=1).args}
    assert bodies == {b'{"a":1}'}
    assert work.make(c="x", b=3, a=1).args == b'{"a":1,"b":3.0,"c":"x"}'


def test_ready_made_json_is_kept_unchanged(app: hw.App) -> None:
    @app.job()
    async def work(job: hw.Job, body: Any) -> None: ...

    assert work.make(body=msgspec.Raw(b'{"a":[1]}')).args == b'{"body":{"a":[1]}}'


def test_rich_types_are_supported(app: hw.App) -> None:
    @app.job()
    async def work(
        job: hw.Job, place: Place, colour: Colour, mode: Literal["a", "b"] = "a"
    ) -> None: ...

    job = work.make(place=Place(1.0, 2.0), colour=Colour.RED, mode="b")
    assert job.args == b'{"place":{"lat":1.0,"lon":2.0},"colour":"red","mode":"b"}'
    assert "mode" in refused(app, work, place=Place(1.0, 2.0), colour=Colour.RED, mode="z")


def test_open_handler_accepts_anything(app: hw.App) -> None:
    @app.job()
    async def work(job: hw.Job, a: int, **others: Any) -> None: ...

    assert work.make(z=[None], a=1, b="x").args == b'{"a":1,"b":"x","z":[null]}'
    assert "argument 'a'" in refused(app, work, a="1", z=2)
    assert "'job' is the parameter that gets the job itself" in refused(app, work, a=1, job=2)


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda app: app.job()(lambda due: None), "has a parameter 'due', which is an option"),
        (lambda app: app.job()(lambda *args: None), "'args' of '<lambda>' cannot be passed"),
        (lambda app: app.job()(lambda a, /: None), "'a' of '<lambda>' cannot be passed by name"),
        (lambda app: app.job()(lambda __a: None), "'__a' of '<lambda>' cannot be passed by name"),
    ],
)
def test_parameters_that_cannot_be_arguments_are_refused(
    app: hw.App, declare: Any, text: str
) -> None:
    with pytest.raises(hw.InvalidValue) as caught:
        declare(app)
    assert text in str(caught.value)


def test_annotations_that_json_cannot_represent_are_refused(app: hw.App) -> None:
    async def work(job: hw.Job, thing: NotJson) -> None: ...

    with pytest.raises(hw.InvalidValue, match="'thing' of 'work' has a type that JSON cannot"):
        app.job()(work)

    async def unknown(job: hw.Job, thing: Nowhere) -> None: ...  # pyright: ignore[reportUndefinedVariable]  # noqa: F821  (what it is about)

    with pytest.raises(hw.InvalidValue, match="annotations of 'unknown' cannot be read"):
        app.job()(unknown)


@pytest.mark.parametrize("annotation", ["int |", "1 / 0", "{}['a']"])
def test_annotations_that_cannot_be_evaluated_are_refused(app: hw.App, annotation: str) -> None:
    def work(thing: object) -> None: ...

    work.__annotations__["thing"] = annotation
    with pytest.raises(hw.InvalidValue, match="annotations of 'work' cannot be read"):
        app.job()(work)


def test_handler_need_not_take_the_job(app: hw.App) -> None:
    @app.job()
    async def work(phone: str) -> None: ...

    assert work.make(phone="1").args == b'{"phone":"1"}'


def test_value_is_stored_unless_it_is_the_default_of_the_same_type(app: hw.App) -> None:
    @app.job()
    def count(job: hw.Job, n: Any = 1, name: str = "x") -> None: ...

    given = ({}, {"n": 1}, {"n": True}, {"n": 1.0}, {"n": 2, "name": "x"}, {"name": "y"})
    assert [count.make(**one).args for one in given] == [
        b"{}",
        b"{}",
        b'{"n":true}',
        b'{"n":1.0}',
        b'{"n":2}',
        b'{"name":"y"}',
    ]


def test_mutable_defaults_are_not_shared(app: hw.App) -> None:
    @app.job()
    async def work(job: hw.Job, tags: list[str] = []) -> None:  # noqa: B006  (what it is about)
        ...

    values = work._arguments.values(b"{}")
    values["tags"].append("x")  # pyright: ignore[reportAttributeAccessIssue]
    assert work._arguments.values(b"{}") == {"tags": []}


def test_plain_values_within_arguments_are_not_checked_one_by_one(
    app: hw.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job()
    async def count(job: hw.Job, values: Any) -> None: ...

    looks: list[object] = []
    for name in ("_contains_naive", "_contains_nan"):
        look = getattr(handler, name)

        def noted(value: object, look: Any = look) -> bool:
            looks.append(value)
            return look(value)

        monkeypatch.setattr(handler, name, noted)
    count.make(values=[{"a": 1, "b": None, "c": "x"}, *[None] * 1_000, *range(1_000)])
    # The list and the object in it, for each of the two checks.
    assert len(looks) <= 4
    text = refused(app, count, values=[*range(1_000), {"a": [datetime(2026, 1, 1)]}])  # noqa: DTZ001
    assert "datetime without an offset" in text
    assert "NaN" in refused(app, count, values=[*range(1_000), {"a": [float("nan")]}])


@pytest.mark.parametrize("keyword_only", [False, True])
def test_stored_job_without_a_required_argument_is_refused_before_its_handler(
    keyword_only: bool,
) -> None:
    called: list[object] = []

    def by_place(n: int, text: str = "") -> None:
        called.append(n)

    def by_name(*, n: int, text: str = "") -> None:
        called.append(n)

    fn = by_name if keyword_only else by_place
    arguments = hw.App("memory://").job(fn)._arguments
    with pytest.raises(hw.InvalidArguments, match=r"the argument 'n' is missing .*another version"):
        arguments.call(fn, b'{"text":"x"}')
    with pytest.raises(hw.InvalidArguments, match=r"the argument 'n' is missing .*another version"):
        arguments.values(b"{}")
    with pytest.raises(hw.InvalidArguments, match=r"there is no argument 'm' .*another version"):
        arguments.call(fn, b'{"n":1,"m":2}')
    with pytest.raises(hw.InvalidArguments, match=r"argument 'n': expected int.*another version"):
        arguments.call(fn, b'{"n":"1"}')
    assert called == []
