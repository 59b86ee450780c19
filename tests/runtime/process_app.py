"""An app whose handlers run in processes; imported by the test process and by theirs."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

import msgspec

import headway as hw
from headway.stores import open_store

app = hw.App(store=open_store("memory://"))
desk = hw.Slots("desk", 2)
app_json = msgspec.json.decode


class Busy(hw.Retry):
    def __init__(self, what: str, n: int) -> None:
        super().__init__(f"{what} {n} is busy", after="1h")


class Refused(hw.HeadwayError):
    def __init__(self, what: str, n: int) -> None:
        super().__init__(f"{what} {n} is refused")


@app.job(processes=True)
def square(job: hw.Job, n: int) -> dict[str, int]:
    return {"square": n * n, "pid": os.getpid()}


@app.job(processes=True)
async def square_async(job: hw.Job, n: int) -> int:
    return n * n


@app.job(processes=True)
def log(job: hw.Job) -> None:
    logger = logging.getLogger("shop")
    logger.debug("too low")
    logger.info("page %d", 3, extra={"order": Opaque()})
    try:
        int("no number")
    except ValueError:
        logger.exception("failed")
    if (child := os.fork()) == 0:
        logger.error("from a forked process")
        os._exit(0)
    os.waitpid(child, 0)


class Opaque:
    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")

    def __str__(self) -> str:
        return "order 17"


@app.job(processes=True)
def log_in_a_thread(job: hw.Job) -> None:
    logger = logging.getLogger("shop")
    thread = threading.Thread(target=lambda: [logger.info("x" * 60_000) for _ in range(50)])
    thread.start()
    while thread.is_alive():
        job.sync.progress("y" * 60_000)
    thread.join()


@app.job(processes=True, retry=hw.Backoff(attempts=1))
def crash(job: hw.Job, code: int) -> None:
    os._exit(code)


@app.job(processes=True, retry=hw.Backoff(attempts=1))
def crash_with_a_child(job: hw.Job, path: str) -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    with open(path, "w", encoding="ascii") as file:
        file.write(str(child))
    os._exit(7)


@app.job(processes=True, retry=hw.Backoff(attempts=1))
def fail(job: hw.Job, how: str) -> Any:
    match how:
        case "error":
            message = "told by its text"
            raise ValueError(message)
        case "dead":
            raise hw.Dead("bad number")
        case "retry":
            raise hw.Retry("busy", after="1h", close="desk")
        case "retry of its own":
            raise Busy("line", 7)
        case "error of its own":
            raise Refused("line", 7)
        case "snooze":
            return hw.Snooze(after="1h")
        case _:
            return object()


@app.job(processes=True, gates=[desk], timeout="1h")
def hand(job: hw.Job) -> None:
    job.then(square.make(n=12))
    job.sync.hand_over(f"key of {job.id}")
    job.sync.known_as("CA77")
    job.sync.give_back("desk")


@app.job(processes=True, retry=hw.Backoff(attempts=1))
def fail_late(job: hw.Job, *, handed: bool) -> None:
    if handed:
        job.sync.hand_over()
    job.then(square.make(n=12))
    job.close("desk", after="1h", reason="it fails")
    message = "it failed"
    raise ValueError(message)


@app.job(processes=True, retry=hw.Backoff(attempts=1))
def hang(job: hw.Job) -> None:
    job.sync.progress("hangs")
    threading.Event().wait()


hang_short = app.job(
    name="hang_short", processes=True, timeout="300ms", retry=hw.Backoff(attempts=1)
)(hang._fn)


@app.job(processes=True)
async def forget(job: hw.Job) -> str:
    job.hand_over()  # pyright: ignore[reportUnusedCoroutine]
    return "dialled"
