"""Handlers in processes: failures there stay isolated."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headway as hw
from headway.contract.operate import Verb
from headway.contract.views import GatesQuery, JobsQuery
from headway.runtime.timing import Timing
from headway.runtime.worker.processes import END_S, Processes
from tests.runtime import process_slow
from tests.runtime.observed_store import LIMIT, ObservedStore, beat_soon, soon, working

NAME = "tests.runtime.process_app"


@pytest.fixture
async def far(store: ObservedStore) -> Any:
    """Return the app's module, using the store of this test."""
    sys.modules.pop(NAME, None)
    module = importlib.import_module(NAME)
    module.app._store = module.app._given = store
    return module


async def test_handler_runs_in_another_process_which_is_reused(
    far: Any, store: ObservedStore
) -> None:
    async with working(far.app, concurrency=1):
        views = [await store.ends((await far.app.send_async(far.square, n=n)).id) for n in (3, 4)]
        other = await store.ends((await far.app.send_async(far.square_async, n=5)).id)
    first, second = (far.app_json(view.result) for view in views)
    assert (first["square"], second["square"], other.result) == (9, 16, b"25")
    assert first["pid"] == second["pid"] != os.getpid()


async def test_log_of_a_handler_in_a_process_goes_through_the_logging_of_its_worker(
    far: Any, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with working(far.app, concurrency=1):
        view = await store.ends((await far.app.send_async(far.log)).id)
    page, failed = (record for record in caplog.records if record.name == "shop")
    assert view.state == "succeeded"
    assert page.process != os.getpid()
    assert (page.levelname, page.getMessage(), vars(page)["order"]) == (
        "INFO",
        "page 3",
        "order 17",
    )
    assert failed.getMessage().startswith("failed\nTraceback ")
    assert failed.getMessage().endswith("'no number'")


async def test_logging_of_the_worker_that_raises_does_not_fail_the_handler(
    far: Any, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    logger = logging.getLogger("shop")

    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError(record.getMessage())

    logger.addFilter(refuse)
    try:
        async with working(far.app, concurrency=1):
            view = await store.ends((await far.app.send_async(far.log)).id)
    finally:
        logger.removeFilter(refuse)
    assert (view.state, view.attempt) == ("succeeded", 1)


async def test_thread_of_a_handler_in_a_process_may_log_while_the_handler_reports_progress(
    far: Any, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with working(far.app, concurrency=1):
        view = await store.ends((await far.app.send_async(far.log_in_a_thread)).id)
    lines = [record.getMessage() for record in caplog.records if record.name == "shop"]
    assert (view.state, lines) == ("succeeded", ["x" * 60_000] * 50)


@pytest.mark.slow
async def test_crash_of_the_process_fails_only_its_attempt(far: Any, store: ObservedStore) -> None:
    async with working(far.app, concurrency=1):
        bad = await store.ends((await far.app.send_async(far.crash, code=7)).id)
        good = await store.ends((await far.app.send_async(far.square, n=2)).id)
    assert bad.state == "dead"
    assert bad.error == "the process of the handler of 'crash' ended with exit code 7"
    assert good.state == "succeeded"


async def test_results_and_errors_are_transferred_completely(
    far: Any, store: ObservedStore
) -> None:
    async def sent(how: str) -> str:
        return (await far.app.send_async(far.fail, how=how)).id

    async with working(far.app, concurrency=2):
        error = await store.ends(await sent("error"))
        dead = await store.ends(await sent("dead"))
        strange = await store.ends(await sent("strange"))
        snoozed = await store.becomes(await sent("snooze"), "scheduled")
        retried = await store.ends(await sent("retry"))
        (gate,) = (await store.read(GatesQuery(names=("desk",)))).rows
    assert error.runs[0].error.startswith("ValueError: told by its text\n")
    assert "in fail" in error.runs[0].error
    assert (dead.state, dead.reason) == ("dead", "bad number")
    assert (strange.state, strange.reason) == ("dead", strange.error)
    assert "not JSON-serialisable" in strange.error
    assert snoozed.runs[0].outcome == "snoozed"
    assert (retried.runs[0].error, gate.open, gate.closed_reason) == ("busy", False, "busy")


@pytest.mark.parametrize(("handed", "follow"), [(False, []), (True, ["square"])])
async def test_follow_ups_of_a_failure_in_a_process_are_those_of_any_handler(
    far: Any, store: ObservedStore, *, handed: bool, follow: list[str]
) -> None:
    async def failure_was_settled() -> bool:
        settled = [one for asked, _ in store.asked("settle") for one in asked.outcomes]
        return any("it failed" in getattr(one, "error", "") for one in settled)

    async with working(far.app, concurrency=1):
        sent = await far.app.send_async(far.fail_late, handed=handed)
        await store.until(failure_was_settled)
    made = await store.read(JobsQuery(kind="square"))
    (gate,) = (await store.read(GatesQuery(names=("desk",)))).rows
    assert (await store.job(sent.id)).state == ("awaiting" if handed else "dead")
    assert [job.kind for job in made.rows] == follow
    assert (gate.open, gate.closed_reason) == (False, "it fails")


async def test_result_that_cannot_be_stored_is_not_retried(far: Any, store: ObservedStore) -> None:
    """The work is already done."""
    strange = far.app.job(name="strange", processes=True, retry=hw.Backoff(attempts=3))(
        far.fail._fn
    )
    async with working(far.app):
        view = await store.ends((await far.app.send_async(strange, how="strange")).id)
    assert (view.state, view.attempt) == ("dead", 1)
    assert "not JSON-serialisable" in view.reason


async def test_error_whose_class_takes_other_arguments_is_transferred(
    far: Any, store: ObservedStore
) -> None:
    retrying = far.app.job(name="retrying", processes=True)(far.fail._fn)
    async with working(far.app, concurrency=2):
        busy = await far.app.send_async(retrying, how="retry of its own")
        refused = await far.app.send_async(far.fail, how="error of its own")
        busy = await store.becomes(busy.id, "scheduled")
        refused = await store.ends(refused.id)
    assert (busy.runs[0].error, busy.due_at - busy.runs[0].ended_at) == (
        "line 7 is busy",
        3_600_000,
    )
    assert refused.reason == "Refused: line 7 is refused"


async def test_end_of_a_process_is_noticed_though_its_forked_child_lives_on(
    far: Any, store: ObservedStore, tmp_path: Path
) -> None:
    """The forked process holds the other end of the pipe."""
    path = tmp_path / "child"
    async with working(far.app):
        sent = await far.app.send_async(far.crash_with_a_child, path=str(path))
        view = await store.ends(sent.id)
    os.kill(int(path.read_text()), signal.SIGKILL)
    assert view.error == "the process of the handler of 'crash_with_a_child' ended with exit code 7"


async def test_handler_in_a_process_writes_through_its_worker(
    far: Any, store: ObservedStore
) -> None:
    sent = await far.app.send_async(far.hand)
    async with working(far.app):
        await store.becomes(sent.id, "awaiting")

        async def given_back() -> bool:
            (gate,) = (await store.read(GatesQuery(names=("desk",)))).rows
            return gate.used == 0

        await store.until(given_back)
        reply = await far.app.signal_async("CA77", event="e", final="succeeded")
    assert reply.answer == "applied"


async def test_handler_in_a_process_is_killed_when_cancelled_and_at_its_timeout(
    far: Any, store: ObservedStore
) -> None:
    sent = await far.app.send_async(far.hang)
    late = await far.app.send_async(far.hang_short)
    async with working(far.app) as worker:

        async def hangs() -> bool:
            return (await store.job(sent.id)).progress == b'"hangs"'

        await store.until(hangs)
        await store.move(Verb.CANCEL, sent.id)
        beat_soon(worker)
        cancelled, timed_out = await store.ends(sent.id), await store.ends(late.id)
    assert cancelled.state == "cancelled"
    assert timed_out.state == "dead"
    assert "handler_timeout" in timed_out.error


async def test_timeout_begins_when_the_process_has_loaded_the_handler(
    store: ObservedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a timeout shorter than the start of an interpreter fails each attempt."""

    class Noted(Timing):
        async def pause(self, seconds: float) -> None:
            if seconds == 12:
                begun.set()
            await super().pause(seconds)

    begun = asyncio.Event()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    app = process_slow.app
    monkeypatch.setattr(app, "_store", store)
    monkeypatch.setattr(app, "_given", store)
    monkeypatch.setenv(process_slow.GATE, str(gate))
    sent = await app.send_async(process_slow.quick)
    async with working(app, timing=Noted()):
        # Opening a pipe waits for its other end: the process is loading the module.
        pipe = await asyncio.to_thread(gate.open, "wb")
        assert not begun.is_set()
        pipe.close()
        await soon(begun)
        view = await store.ends(sent.id)
    assert (view.state, view.result) == ("succeeded", b'"done"')


async def test_handler_in_a_process_is_killed_and_its_job_returned_if_all_tasks_are_cancelled(
    far: Any, store: ObservedStore
) -> None:
    sent = await far.app.send_async(far.hang)
    before = asyncio.all_tasks()
    running = asyncio.create_task(far.app.worker(concurrency=2).run())

    async def hangs() -> bool:
        return (await store.job(sent.id)).progress == b'"hangs"'

    await store.until(hangs)
    # As `asyncio.run` does when it finishes.
    tasks = asyncio.all_tasks() - before
    for task in tasks:
        task.cancel()
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*tasks, return_exceptions=True)
    view = await store.job(sent.id)
    assert running.cancelled()
    assert (view.state, view.runs[0].outcome) == ("waiting", "released")


def test_idle_processes_are_all_asked_to_end_before_one_is_waited_for() -> None:
    did: list[object] = []

    class Idle:
        def __init__(self, name: str, exitcode: int) -> None:
            self.name = name
            self.pipe = SimpleNamespace(close=lambda: did.append(f"ask {name}"))
            self.process = SimpleNamespace(exitcode=exitcode)

        def end(self, wait_s: float) -> None:
            did.append((self.name, wait_s))

    processes: Any = Processes()
    # The second one has not ended in time, and was killed.
    processes._waiting = [Idle("a", 0), Idle("b", -9), Idle("c", -9)]
    processes.close()
    assert did == ["ask a", "ask b", "ask c", ("a", END_S), ("b", END_S), ("c", 0.0)]


async def test_handler_that_a_process_could_not_import_is_refused(app: hw.App) -> None:
    def local(job: hw.Job) -> None: ...

    with pytest.raises(hw.InvalidValue, match="needs a function of a module"):
        app.job(processes=True)(local)


async def test_job_with_an_unawaited_hand_over_in_a_process_dies(
    far: Any, store: ObservedStore
) -> None:
    async with working(far.app):
        view = await store.ends((await far.app.send_async(far.forget)).id)
    assert (view.state, view.result, len(view.runs)) == ("dead", None, 1)
    assert view.reason.startswith("invalid_state: the handler of 'forget' ended without")
