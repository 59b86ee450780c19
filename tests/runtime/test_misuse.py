from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import pytest

import headway as hw
from headway.core.errors import CallerError, InvalidArguments, InvalidValue, UnknownKind
from headway.stores.memory import MemoryStore


@pytest.fixture
def app() -> Iterator[hw.App]:
    app = hw.App(store=MemoryStore())
    yield app
    app.close()


def plain(job: hw.Job) -> None:
    """Not declared."""


@pytest.mark.parametrize("kind", [None, 3, plain])
def test_what_is_no_kind_is_refused_as_unknown(app: hw.App, kind: Any) -> None:
    with pytest.raises(UnknownKind, match="is not a kind"):
        app.send(kind)


def test_a_uuid_is_taken_as_a_job_id_and_a_number_is_refused(app: hw.App) -> None:
    ours = uuid.uuid4()
    assert app.send("noop", job_id=ours).id == str(ours)
    with pytest.raises(InvalidValue, match="no UUID"):
        app.send("noop", job_id=3)


@pytest.mark.parametrize("fn", [partial(plain), 3, object()])
def test_what_is_no_function_cannot_be_a_handler(app: hw.App, fn: Any) -> None:
    with pytest.raises(InvalidValue, match="is not a function"):
        app.job()(fn)


def test_a_generator_cannot_be_a_handler(app: hw.App) -> None:
    def letters(job: hw.Job) -> Iterator[int]:
        yield 1

    async def posts(job: hw.Job) -> AsyncIterator[int]:
        yield 1

    for fn in (letters, posts):
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
    ],
)
def test_values_of_another_shape_are_refused_in_words(
    app: hw.App, call: Callable[[hw.App], object]
) -> None:
    with pytest.raises(CallerError) as refused:
        call(app)
    assert refused.value.hint


def test_a_datetime_without_an_offset_is_refused_wherever_it_stands(app: hw.App) -> None:
    @app.job()
    def meet(job: hw.Job, at: datetime | None = None, times: Any = 0, days: Any = 0) -> None:
        """Takes moments."""

    naive = datetime(2026, 12, 1, 10, 0)  # noqa: DTZ001
    for given in ({"at": naive}, {"times": [naive]}, {"days": {"deep": [naive]}}):
        with pytest.raises(InvalidArguments, match="without an offset"):
            app.send(meet, **given)
