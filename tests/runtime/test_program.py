"""A complete program: `app.run()` works until a signal stops it."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import headway as hw
from headway.contract.views import JobQuery
from tests.servers.stores import DURABLE, NewUrl

PROGRAM = """
import asyncio
import headway as hw

app = hw.App("{url}")


@app.job(timeout="1h")
async def quick(job: hw.Job) -> str:
    return type(asyncio.get_running_loop()).__module__


@app.job()
async def slow(job: hw.Job) -> None:
    print("begun", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("stopped", flush=True)


if __name__ == "__main__":
    app.run(grace="1h", concurrency=2)
    print("ended", flush=True)
"""


@pytest.mark.parametrize("kind", DURABLE)
def test_first_signal_waits_for_handlers_and_the_second_does_not(
    tmp_path: Path, new_url: NewUrl, kind: str
) -> None:
    url = new_url(kind)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(url=url))
    app = hw.App(url)

    @app.job()
    async def quick(job: hw.Job) -> None: ...

    @app.job()
    async def slow(job: hw.Job) -> None: ...

    with app:
        first, second = app.send(quick), app.send(slow)
        with subprocess.Popen(
            [sys.executable, str(program)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
            assert process.stdout.read() == "stopped\nended\n"
        read = app._background.run
        done = read(app.store.read(JobQuery(id=first.id)))
        back = read(app.store.read(JobQuery(id=second.id)))
    assert process.returncode == 0
    assert done is not None
    assert back is not None
    assert (done.state, done.result) == ("succeeded", b'"uvloop"')
    assert (back.state, back.attempt) == ("waiting", 0)


STUCK = """
import threading
import headway as hw

app = hw.App("{url}")


@app.job()
def stuck() -> None:
    print("begun", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    app.run(grace="0s")
"""


def test_third_signal_ends_a_process_that_a_thread_keeps_alive(
    tmp_path: Path, new_url: NewUrl
) -> None:
    url = new_url("sqlite")
    program = tmp_path / "program.py"
    program.write_text(STUCK.format(url=url))
    app = hw.App(url)

    @app.job()
    def stuck() -> None: ...

    with app:
        sent = app.send(stuck)
        with subprocess.Popen(
            [sys.executable, str(program)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            waiting = process.stderr.readline()
            for _ in range(600):
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
                    break
            else:
                process.kill()
        view = app._background.run(app.store.read(JobQuery(id=sent.id)))
    assert "handlers still running after stop: 1; the worker waits" in waiting
    assert f"stuck {sent.id}" in waiting
    assert process.returncode == -signal.SIGTERM
    assert view is not None
    assert view.state == "running"
