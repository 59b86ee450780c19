"""Stages: where a job continues, with gates that are declared or chosen by its handler."""

from __future__ import annotations

from typing import Any

import pytest

import headway as hw
from headway.contract.views import SpecsQuery
from headway.core.errors import InvalidValue
from headway.stores import open_store
from tests.runtime.observed_store import ObservedStore, working

NUMBERS = hw.Pool("numbers", {"+1": 1, "+2": 1})
OFTEN = hw.Rate("often:{phone}", 5, "1h")
OPEN = hw.Hours("open:{tz}", "00:00-24:00", tz="{tz}")
SOON = hw.Backoff(base="1ms", cap="1ms")


async def test_handler_chooses_the_gates_of_the_next_stage(
    app: hw.App, store: ObservedStore
) -> None:
    await app.declare_gates(NUMBERS, OFTEN, OPEN)
    seen: list[Any] = []

    @app.job(stages={"check": [], "dial": []}, tenant="acme")
    async def call(job: hw.Job, phone: str, tz: str) -> object:
        return hw.Next("dial", gates=[NUMBERS, OFTEN.take(2), OPEN])

    @call.stage("dial")
    async def dial(job: hw.Job, phone: str) -> None:
        seen.append((job.stage, job.attempt, dict(job.permits)))

    sent = await app.send_async(call, phone="7", tz="Asia/Tokyo")
    async with working(app):
        view = await store.ends(sent.id)
    assert [(use.name, use.amount) for use in view.gates] == [
        ("numbers", 1), ("open:Asia/Tokyo", 1), ("often:7", 2),
    ]  # fmt: skip
    assert (view.state, seen) == ("succeeded", [("dial", 1, {"numbers": "+1"})])


async def test_gates_unknown_to_the_store_fail_the_run_that_chose_them(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(stages={"check": [], "dial": []}, retry=hw.Backoff(attempts=1))
    async def call(job: hw.Job) -> object:
        return hw.Next("dial", gates=[NUMBERS])

    @call.stage("dial")
    async def dial(job: hw.Job) -> None: ...

    sent = await app.send_async(call)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, view.stage) == ("dead", "check")
    assert "unknown_gate" in view.error


async def test_chosen_gate_that_needs_a_missing_value_fails_the_run(
    app: hw.App, store: ObservedStore
) -> None:
    await app.declare_gates(OFTEN)

    @app.job(stages={"check": [], "dial": []}, retry=hw.Backoff(attempts=1))
    async def call(job: hw.Job) -> object:
        return hw.Next("dial", gates=[OFTEN])

    @call.stage("dial")
    async def dial(job: hw.Job) -> None: ...

    sent = await app.send_async(call)
    async with working(app):
        view = await store.ends(sent.id)
    assert "needs an argument 'phone'" in view.error


async def test_gates_declared_at_run_time_are_declared_again_to_a_lost_store(
    app: hw.App, store: ObservedStore
) -> None:
    line = hw.Slots("line", 1)

    @app.job(gates=[line])
    async def call(job: hw.Job) -> None: ...

    await app.declare_gates(NUMBERS)
    await app.declare_gates(hw.Pool("numbers", {"+3": 1}), hw.Slots("line", 7))
    await app.send_async(call)
    lost, store.inner = store.inner, open_store("memory://")
    try:
        await app.send_async(call)
        specs = {spec.name: spec for spec in await store.read(SpecsQuery())}
    finally:
        await store.inner.close()
        store.inner = lost
    assert specs["numbers"].members == (("+3", 1),)
    assert specs["line"].capacity == 7


async def test_gates_refused_by_the_store_are_not_remembered(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(gates=[NUMBERS])
    async def call(job: hw.Job) -> None: ...

    await app.send_async(call)
    with pytest.raises(InvalidValue):
        await app.declare_gates(hw.Slots("numbers", 1))
    lost, store.inner = store.inner, open_store("memory://")
    try:
        await app.send_async(call)
        specs = await store.read(SpecsQuery())
    finally:
        await store.inner.close()
        store.inner = lost
    assert [str(spec.kind) for spec in specs] == ["pool"]


@pytest.mark.parametrize("gates", [None, [OFTEN]], ids=["declared", "chosen"])
async def test_retry_starts_at_the_stage_that_the_handler_names(
    app: hw.App, store: ObservedStore, gates: list[Any] | None
) -> None:
    await app.declare_gates(NUMBERS, OFTEN)
    runs: list[tuple[str, int]] = []

    @app.job(stages={"check": [NUMBERS], "dial": []}, retry=SOON)
    async def call(job: hw.Job, phone: str) -> object:
        runs.append((job.stage, job.attempt))
        return hw.Next("dial") if job.attempt == 1 else None

    @call.stage("dial")
    async def dial(job: hw.Job) -> None:
        runs.append((job.stage, job.attempt))
        raise hw.Retry("busy", after="1ms", stage="check", gates=gates)

    sent = await app.send_async(call, phone="7")
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, runs) == ("succeeded", [("check", 1), ("dial", 1), ("check", 2)])
    name = "numbers" if gates is None else "often:7"
    assert [use.name for use in view.gates] == [name]
    assert set(view.runs[-1].permits) == {name}


async def test_retry_at_an_unknown_stage_fails_where_it_was(
    app: hw.App, store: ObservedStore
) -> None:
    @app.job(retry=hw.Backoff(attempts=1))
    async def call(job: hw.Job) -> None:
        raise hw.Retry("busy", stage="nowhere")

    sent = await app.send_async(call)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, view.stage) == ("dead", "")
    assert "has no stage 'nowhere'" in view.error


@pytest.mark.parametrize("chosen", [False, True])
async def test_reconcile_handler_names_the_stage_and_the_delay_of_the_next_attempt(
    app: hw.App, store: ObservedStore, chosen: bool
) -> None:
    await app.declare_gates(NUMBERS, OFTEN)
    stages: list[str] = []

    @app.job(stages={"check": [], "dial": [NUMBERS]}, retry=hw.Backoff(base="1h"))
    async def call(job: hw.Job, phone: str) -> object:
        stages.append(job.stage)
        return hw.Next("dial") if job.attempt == 1 else None

    @call.stage("dial")
    async def dial(job: hw.Job) -> None:
        stages.append(job.stage)
        await job.hand_over("sid", timeout="1ms")

    @call.reconcile
    async def ask(awaited: hw.Awaited) -> object:
        gates = [OFTEN] if chosen else None
        return hw.Ended("retry", reason="busy", after="1ms", stage="check", gates=gates)

    sent = await app.send_async(call, phone="7")
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, stages) == ("succeeded", ["check", "dial", "check"])
    assert [use.name for use in view.gates] == (["often:7"] if chosen else [])
    assert view.runs[1].keys == ("sid",)


@pytest.mark.parametrize(
    "say",
    [
        lambda: hw.Retry(gates=[NUMBERS]),
        lambda: hw.Ended("retry", gates=[NUMBERS]),
        lambda: hw.Ended("dead", stage="check"),
        lambda: hw.Ended("succeeded", after="5m"),
        lambda: hw.Ended("retry", after="soon"),
    ],
    ids=["gates", "ended gates", "dead", "succeeded", "soon"],
)
def test_impossible_reconcile_answer_is_refused_at_once(say: Any) -> None:
    with pytest.raises(InvalidValue):
        say()
