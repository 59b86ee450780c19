"""Servers in separate processes: the engine's, and one with a route that does nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from multiprocessing.connection import Connection

from bench.child import ChildFailed, child

NOTHING = "FastAPI, a route that does nothing"


@contextmanager
def engine(store: str) -> Generator[int]:
    """Run `headway serve` on a store without tokens; yield its port."""
    with engine_process(store) as (port, _):
        yield port


@contextmanager
def engine_process(store: str) -> Generator[tuple[int, int]]:
    """Run `headway serve` on a store without tokens; yield its port and process id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "serve", "--port=0", f"--store={store}"],
        stderr=subprocess.PIPE,
        env={**os.environ, "HEADWAY_LOG_FORMAT": "json", "HEADWAY_LOG_LEVEL": "info"},
        text=True,
    )
    assert process.stderr is not None
    # Drained in a thread: a server whose log fills the pipe would block.
    rest = threading.Thread(target=deque, args=(process.stderr, 0), daemon=True)
    try:
        port = _port(process.stderr)
        rest.start()
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()
        if rest.ident:
            rest.join()
        process.stderr.close()


def _port(log: Iterable[str]) -> int:
    said: list[str] = []
    for line in log:
        said.append(line)
        if '"server listens"' in line:
            return int(json.loads(line)["url"].rsplit(":", 1)[1])
    raise ChildFailed("".join(said)[-600:])


@contextmanager
def nothing() -> Generator[int]:
    """Run a FastAPI route that validates such a body and does nothing; yield its port."""
    with child(_serve_nothing) as served:
        yield served.receive()
        os.kill(served.pid, signal.SIGTERM)


def _serve_nothing(pipe: Connection) -> None:
    # Imported here: the measuring process needs none of it.
    import uvicorn  # noqa: PLC0415
    from fastapi import FastAPI  # noqa: PLC0415
    from pydantic import BaseModel  # noqa: PLC0415

    class Job(BaseModel):
        kind: str
        args: dict[str, object]
        lane: str = "main"

    async def enqueue(job: Job) -> dict[str, object]:
        del job
        return {"id": "0", "created": True}

    app = FastAPI()
    enqueue.__annotations__["job"] = Job  # a name of this function, which FastAPI cannot look up
    app.post("/v1/jobs", status_code=201)(enqueue)
    listening = socket.create_server(("127.0.0.1", 0))
    pipe.send(listening.getsockname()[1])
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run([listening])
