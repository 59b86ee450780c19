"""What a worker reports: failed attempts in the log and to the hooks, progress, refused beats."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import headway as hw
from headway.core.job import NewJob, derived_id
from headway.runtime.timing import Timing
from headway.runtime.worker.worker import PROGRESS_EVERY
from headway.stores import open_store
from tests.runtime.observed_store import ObservedStore, soon, working

TWICE = hw.Backoff(attempts=2, base="20s", jitter="none")


@pytest.fixture
async def store() -> ObservedStore:
    return ObservedStore(open_store("memory://"))


@pytest.fixture
def failures(app: hw.App) -> list[hw.Failure]:
    """Collect all failures passed to the app's hook."""
    found: list[hw.Failure] = []
    app.on_failure(found.append)
    return found


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records]


async def test_failed_attempt_is_a_warning_that_says_when_the_next_one_is(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(retry=TWICE)
    async def work() -> None:
        message = "boom"
        raise ValueError(message)

    sent = await app.send_async(work)
    async with working(app):
        await store.becomes(sent.id, "scheduled")
    assert lines(caplog) == [
        (
            "WARNING",
            f"job failed kind=work id={sent.id} attempt=1 error='ValueError: boom' retry_in=20s",
        )
    ]
    assert caplog.records[0].exc_info is None


async def test_last_attempt_is_an_error_with_its_traceback(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(retry=hw.Backoff(attempts=1))
    async def work() -> None:
        message = "boom\nand more"
        raise ValueError(message)

    sent = await app.send_async(work)
    async with working(app):
        await store.ends(sent.id)
    (line,) = lines(caplog)
    assert line == ("ERROR", f"job dead kind=work id={sent.id} attempt=1 error='ValueError: boom'")
    assert "in work" in caplog.text
    assert "and more" in caplog.text


@pytest.mark.parametrize("threaded", [False, True])
async def test_traceback_starts_in_the_handler_and_ends_where_the_error_was_raised(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture, threaded: bool
) -> None:
    def down(left: int) -> None:
        if left == 0:
            raise_here()
        down(left - 1)

    def raise_here() -> None:
        message = "boom"
        raise ValueError(message)

    async def work() -> None:
        down(30)

    def work_in_a_thread() -> None:
        down(3)

    kind = app.job(name="work", retry=hw.Backoff(attempts=1))(
        work_in_a_thread if threaded else work
    )
    sent = await app.send_async(kind)
    async with working(app):
        view = await store.ends(sent.id)
    assert "in raise_here" in view.runs[0].error
    assert "in raise_here" in caplog.text
    for text in (view.runs[0].error, caplog.text):
        first = next(line for line in text.splitlines() if line.startswith("  File "))
        assert __file__ in first


async def test_job_given_up_by_its_handler_is_an_error_without_a_traceback(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job()
    async def work() -> None:
        message = "the card was refused"
        raise hw.Dead(message)

    sent = await app.send_async(work)
    async with working(app):
        await store.ends(sent.id)
    line = f"job dead kind=work id={sent.id} attempt=1 error='the card was refused'"
    assert lines(caplog) == [("ERROR", line)]
    assert caplog.records[0].exc_info is None


async def test_jobs_that_a_claim_finds_expired_are_logged(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job()
    async def work() -> None: ...

    expired = NewJob(id=derived_id("expired"), kind="work", lane="default", expires_at=1)
    await store.enqueue([expired])
    later = await app.send_async(work)
    async with working(app, chores=False):
        await store.ends(later.id)
    line = ("ERROR", f"job dead kind=work id={expired.id} attempt=0 error='expired'")
    assert lines(caplog) == [line]


def _raise(error: BaseException) -> Any:
    raise error


async def _timed_out(job: hw.Job) -> None:
    await asyncio.Event().wait()


async def _after_the_hand_over(job: hw.Job) -> None:
    await job.hand_over()
    message = "rang off"
    raise ValueError(message)


async def _with_retry(job: hw.Job) -> hw.Retry:
    return hw.Retry("line busy", after="90s")


class _Mute(Exception):
    def __str__(self) -> str:
        message = "no words"
        raise RuntimeError(message)


async def _snoozed_for_no_text(job: hw.Job) -> hw.Snooze:
    return hw.Snooze(after="1h", reason=ValueError("later"))  # type: ignore[arg-type]


async def _raises_a_snooze(job: hw.Job) -> None:
    raise hw.Snooze(after="1h")  # type: ignore[misc]


async def _follow_up_that_is_no_job(job: hw.Job) -> None:
    job.then("audit")  # type: ignore[arg-type]


HANDLERS: dict[str, tuple[Callable[[hw.Job], Any], str, str, int | None]] = {
    "dead": (lambda _: _raise(hw.Dead("bad number")), "bad number", "dead", None),
    "dead, for no reason": (lambda _: _raise(hw.Dead("")), "Dead", "dead", None),
    "retry that is returned": (_with_retry, "line busy", "retry", 90_000),
    "plain handler": (lambda _: _raise(KeyError("a")), "KeyError: 'a'", "retry", 20_000),
    "answer that is no JSON": (lambda _: object(), "result", "dead", None),
    "error that cannot be shown": (lambda _: _raise(_Mute()), "_Mute: <the str()", "retry", 20_000),
    "dead for an error": (
        lambda _: _raise(hw.Dead(KeyError("a"))),  # type: ignore[arg-type]
        "KeyError: 'a'",
        "dead",
        None,
    ),
    "retry for an error": (
        lambda _: _raise(hw.Retry(KeyError("a"), after="9s")),  # type: ignore[arg-type]
        "KeyError: 'a'",
        "retry",
        9_000,
    ),
    "retry at a time that has passed": (
        lambda _: _raise(hw.Retry("late", at="2020-01-01T00:00Z")),
        "late",
        "retry",
        0,
    ),
    "dead with half a character": (
        lambda _: _raise(hw.Dead("a\ud800")),
        "a?",
        "dead",
        None,
    ),
    "Ctrl-C of a thread's own": (
        lambda _: _raise(KeyboardInterrupt()),
        "the handler raised KeyboardInterrupt",
        "retry",
        20_000,
    ),
    "follow-up that is no job": (
        _follow_up_that_is_no_job,
        "'audit' is not a job",
        "retry",
        20_000,
    ),
    "answer that is raised": (_raises_a_snooze, "hw.Unfit: return it)", "retry", 20_000),
    "unknown stage": (lambda _: hw.Next("nowhere"), "nowhere", "retry", 20_000),
    "timeout": (_timed_out, "handler_timeout", "retry", 20_000),
    "after the hand-over": (_after_the_hand_over, "ValueError: rang off", "awaiting", None),
}


@pytest.mark.parametrize("case", list(HANDLERS))
async def test_every_way_to_fail_is_logged_and_passed_to_the_hook(
    app: hw.App, failures: list[hw.Failure], caplog: pytest.LogCaptureFixture, case: str
) -> None:
    handler, text, becomes, retry_in_ms = HANDLERS[case]
    failed = asyncio.Event()
    app.on_failure(lambda _: failed.set())

    if inspect.iscoroutinefunction(handler):

        async def work(job: hw.Job) -> Any:
            return await handler(job)

    else:

        def work(job: hw.Job) -> Any:
            return handler(job)

    timeout: dict[str, Any] = {"timeout": "1ms"} if case == "timeout" else {}
    kind = app.job(retry=TWICE, **timeout)(work)
    sent = await app.send_async(kind)
    async with working(app):
        await soon(failed)
    (failure,) = failures
    assert (failure.job.id, failure.becomes, failure.retry_in_ms) == (sent.id, becomes, retry_in_ms)
    assert text in failure.text.partition("\n")[0]
    ((level, line),) = lines(caplog)
    assert level == ("ERROR" if becomes == "dead" else "WARNING")
    assert f"kind=work id={sent.id} attempt=1 error=" in line


async def test_snooze_can_give_an_error_as_its_reason(app: hw.App, store: ObservedStore) -> None:
    kind = app.job(name="work")(_snoozed_for_no_text)
    sent = await app.send_async(kind)
    async with working(app):
        view = await store.becomes(sent.id, "scheduled")
    assert view.reason == "ValueError: later"


async def test_reason_of_a_failed_job_is_the_raised_error_and_not_a_later_line(
    app: hw.App, store: ObservedStore
) -> None:
    """Multi-line errors and exception groups end in a line that says nothing."""

    @app.job(retry=hw.Backoff(attempts=1))
    async def work(how: str) -> None:
        if how == "group":
            message = "two failed"
            raise ExceptionGroup(message, [ValueError("a"), ValueError("b")])
        message = "1 error\n  For further information visit https://example.org"
        raise ValueError(message)

    async with working(app):
        group = await store.ends((await app.send_async(work, how="group")).id)
        lines = await store.ends((await app.send_async(work, how="lines")).id)
    assert (group.reason, lines.reason) == (
        "ExceptionGroup: two failed (2 sub-exceptions)",
        "ValueError: 1 error",
    )


async def test_job_of_an_unknown_kind_is_logged(
    app: hw.App, store: ObservedStore, failures: list[hw.Failure]
) -> None:
    other = hw.App(store=store)

    @other.job(retry=TWICE)
    async def elsewhere() -> None: ...

    sent = await other.send_async(elsewhere)
    async with working(app):
        await store.becomes(sent.id, "scheduled")
    assert [one.text.partition(":")[0] for one in failures] == ["unknown_kind"]


async def test_error_of_a_lost_run_is_logged(
    app: hw.App,
    store: ObservedStore,
    failures: list[hw.Failure],
) -> None:
    started, failed = asyncio.Event(), asyncio.Event()
    app.on_failure(lambda _: failed.set())

    @app.job(retry=TWICE)
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            message = "while it stopped"
            raise ValueError(message)

    sent = await app.send_async(work)
    async with working(app) as worker:
        await soon(started)
        await store.move("kill", sent.id)
        current: Any = worker._current
        current._apply_reply(frozenset({(sent.id, 1)}), frozenset(), lambda: None)
        await soon(failed)
    assert [(one.becomes, one.text) for one in failures] == [
        ("lost", "ValueError: while it stopped")
    ]


async def test_snooze_success_and_hand_back_are_no_failures(
    app: hw.App, store: ObservedStore, failures: list[hw.Failure], caplog: pytest.LogCaptureFixture
) -> None:
    started = asyncio.Event()

    @app.job()
    async def work(job: hw.Job, n: int) -> Any:
        if n:
            return hw.Snooze(after="1h")
        started.set()
        return await asyncio.Event().wait()

    snoozed, held = [await app.send_async(work, n=n) for n in (1, 0)]
    async with working(app, grace="0s"):
        await soon(started)
        await store.becomes(snoozed.id, "scheduled")
    assert (await store.job(held.id)).state == "waiting"
    assert (failures, lines(caplog)) == ([], [])


async def test_failing_hook_is_logged_and_changes_nothing(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    @app.on_failure
    def broken(failure: hw.Failure) -> None:
        message = "the tracker is away"
        raise OSError(message)

    app.on_failure(lambda failure: seen.append(failure.text))

    @app.job()
    async def work() -> None:
        raise hw.Dead("bad number")

    sent = await app.send_async(work)
    async with working(app):
        assert (await store.ends(sent.id)).state == "dead"
    assert seen == ["bad number"]
    assert "the tracker is away" in caplog.text


async def test_failure_is_settled_even_if_the_programs_log_filter_raises(
    app: hw.App, store: ObservedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(record: logging.LogRecord) -> bool:
        message = "the filter is broken"
        raise KeyError(message)

    seen: list[str] = []
    app.on_failure(lambda failure: seen.append(failure.text))

    @app.job()
    async def work() -> None:
        raise hw.Dead("bad number")

    sent = await app.send_async(work)
    logger = logging.getLogger("headway.worker")
    logger.addFilter(broken)
    try:
        async with working(app):
            assert (await store.ends(sent.id)).state == "dead"
    finally:
        logger.removeFilter(broken)
    assert seen == ["bad number"]
    assert "the filter is broken" in capsys.readouterr().err


class Large:
    """What a handler holds; weak references to it are possible."""


async def test_failed_handler_in_a_thread_leaves_nothing_to_the_garbage_collector(
    app: hw.App, store: ObservedStore
) -> None:
    held: list[weakref.ref[Large]] = []

    @app.job()
    def work() -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise hw.Dead  # the log keeps the traceback of any other error, and pytest keeps the log

    gc.disable()
    try:
        async with working(app, concurrency=1):
            for _ in range(3):
                await store.ends((await app.send_async(work)).id)
        assert [one() for one in held] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("raised", [SystemExit, asyncio.CancelledError])
async def test_hook_that_raises_what_ends_a_task_ends_nothing(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture, raised: type[BaseException]
) -> None:
    @app.on_failure
    def tell(failure: hw.Failure) -> None:
        raise raised

    @app.job(retry=hw.Backoff(attempts=1))
    async def work() -> None:
        message = "boom"
        raise ValueError(message)

    async with working(app, concurrency=1):
        for _ in range(2):
            view = await store.ends((await app.send_async(work)).id)
            assert view.state == "dead"
    assert [line for _, line in lines(caplog) if "on_failure hook failed" in line]


async def test_slot_cancelled_by_an_earlier_handlers_timer_restarts(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    slots: list[Any] = []

    @app.job()
    async def work(job: hw.Job) -> None:
        slots.append(asyncio.current_task())

    async with working(app, concurrency=1):
        for _ in range(3):
            sent = await app.send_async(work)
            assert (await store.ends(sent.id)).state == "succeeded"
            slots[-1].cancel()
    assert len(set(slots)) == 3
    assert "handler slot restarted: its task was cancelled from outside" in caplog.text


def test_hook_that_would_never_be_awaited_is_refused(app: hw.App) -> None:
    async def hook(failure: hw.Failure) -> None: ...

    with pytest.raises(hw.InvalidValue, match="async"):
        app.on_failure(hook)
    with pytest.raises(hw.InvalidValue, match="async"):
        app.worker(on_failure=[hook])


async def test_failing_source_is_logged_with_its_traceback(
    app: hw.App, caplog: pytest.LogCaptureFixture
) -> None:
    looked = asyncio.Event()

    @app.source(every="1h")
    async def rows() -> AsyncIterator[hw.NewJob]:
        looked.set()
        message = "no such table"
        raise ValueError(message)
        yield  # makes it a generator

    async with working(app):
        await soon(looked)
    assert "source rows: ValueError: no such table" in caplog.text
    assert "Traceback" in caplog.text


class Minutes(Timing):
    """Real time, except that minutes pass only when the test says so."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def pause(self, seconds: float) -> None:
        if seconds != PROGRESS_EVERY:
            return await super().pause(seconds)
        passed = asyncio.Event()
        self._waiting.put_nowait(passed)
        await passed.wait()
        return None

    async def begins(self) -> asyncio.Event:
        """Return the event that ends the next minute, once the worker waits for it."""
        async with asyncio.timeout(120):
            return await self._waiting.get()


async def test_worker_logs_its_progress_once_a_minute_unless_idle(
    app: hw.App, store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway.worker")
    timing = Minutes()
    started = asyncio.Event()

    @app.job()
    async def work(n: int) -> None:
        if n == 1:
            raise hw.Dead("bad number")
        if n == 2:
            started.set()
            await asyncio.Event().wait()

    async with working(app, timing=timing, grace="0s"):
        (await timing.begins()).set()
        minute = await timing.begins()
        for n in (0, 0, 1, 2):
            sent = await app.send_async(work, n=n)
            if n < 2:
                await store.ends(sent.id)
        await soon(started)
        minute.set()
        (await timing.begins()).set()
        await timing.begins()
    told = [line for _, line in lines(caplog) if line.startswith("worker progress")]
    assert told == [
        "worker progress done=2 failed=1 running=1 waiting=0",
        "worker progress done=0 failed=0 running=1 waiting=0",
    ]


class Hanging(ObservedStore):
    """A store that does not answer the first beat."""

    async def beat(self, request: Any) -> Any:
        if not self.asked("beat"):
            self._note("beat", (request,), None)
            await asyncio.Event().wait()
        return await self.inner.beat(request)


async def test_failed_beat_says_why(store: ObservedStore, caplog: pytest.LogCaptureFixture) -> None:
    warned = asyncio.Event()
    caplog.handler.addFilter(lambda record: warned.set() or True)
    app = hw.App(store=Hanging(store.inner))
    async with working(app, lease="1s", heartbeat="task"):
        await soon(warned)
    assert ("WARNING", "beat: the store did not answer in time") in lines(caplog)


PROGRAM = """
import headway as hw
app = hw.App("memory://")

@app.job(retry=hw.Backoff(attempts=1))
async def work():
    raise ValueError("boom")

@app.on_failure
def stop(failure):
    worker.stop()

async def main():
    global worker
    worker = app.worker()
    await app.send_async(work)
    await worker.run()

import asyncio
asyncio.run(main())
"""


def test_program_without_logging_shows_failures_on_standard_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == ""
    assert "job dead kind=work" in done.stderr
    assert "ValueError: boom" in done.stderr


class AwayAtFirst(ObservedStore):
    """A store that refuses the first declaration and accepts the second."""

    async def define(self, request: Any) -> Any:
        if not self.asked("define"):
            self._note("define", (request,), None)
            message = "the store is away"
            raise hw.StoreUnavailable(message)
        return await self.inner.define(request)


async def test_worker_that_starts_while_its_store_is_unreachable_retries(
    store: ObservedStore, caplog: pytest.LogCaptureFixture
) -> None:
    away = AwayAtFirst(store.inner)
    app = hw.App(store=away)
    app.lane("main", lease="20s")

    @app.job()
    async def work() -> None: ...

    sent = (await store.inner.enqueue([work.make()]))[0]
    async with working(app):
        assert (await away.ends(sent.id)).state == "succeeded"
    assert lines(caplog) == [
        ("WARNING", "before the first claim: the store is away; again in 0.05 s")
    ]
