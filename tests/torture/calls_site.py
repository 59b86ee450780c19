"""Where leads are called: a carrier, a server and workers, each in its own process."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx

from tests.servers.process import free_port
from tests.torture.calls_child import Life, live

# A clean server forks the processes: each starts without threads, and within milliseconds.
_PROCESSES = multiprocessing.get_context("forkserver")
PATIENCE_S = 60.0
NUMBERS = ("+15550001001", "+15550001002")
CHANNELS = 4
SPEED = 20
DEADLINE_MS = 2_500
FAULTS = {
    "unsure": 0.02,
    "cut": 0.04,
    "broken": 0.02,
    "refused": 0.02,
    "post_lost": 0.12,
    "post_late": 0.1,
    "post_twice": 0.15,
    "post_disordered": 0.1,
    # In the carrier's own time, which runs faster: later than a lead's next call.
    "late": ["20s", "2m"],
    "ring": ["1s", "8s"],
    "talk": ["2s", "80s"],
    # Longer than a webhook takes, so a webhook may arrive before the reply.
    "reply": "1s",
}
SETTINGS = """
store = "{store}"
directory = "sqlite:///{folder}/directory.db"
public_url = "{url}"
log_level = "error"

[telephony.twilio]
account_sid = "{account_sid}"
auth_token = "{auth_token}"
base_url = "{base_url}"
timeout = "800ms"

[calls]
call_deadline = "{deadline}ms"
ask_again = "400ms"
listing_lag = "8s"
jitter = "0s"
# Starts whose worker died count as well.
customer_limit = 1000
number_rest = "200ms"
provider_rest = "200ms"

[calls.template]
retry_on = ["BUSY", "NO_ANSWER", "FAILED", "WEBHOOK_LOST"]
max_retry = 2
retry_offset = "200ms"
"""


@dataclass(kw_only=True)
class CallsSite:
    """The whole site.

    Attributes:
        folder: folder with the settings, the witness's file and the log.
        http: a client of the server.
        carrier: a client of the carrier.
        plant: a fault to plant in each process.
    """

    folder: Path
    port: int
    http: httpx.AsyncClient
    carrier: httpx.AsyncClient
    process: Process
    plant: str = ""

    @classmethod
    async def begin(cls, folder: Path, store: str, seed: int, plant: str) -> CallsSite:
        """Start a carrier and write the settings; no server or worker runs yet."""
        # Set here, not above: there is one such server, and other rigs configure it differently.
        _PROCESSES.set_forkserver_preload(["tests.torture.calls_child"])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway", "carrier", "--json", "--port=0"),
            *(f"--seed={seed}", f"--speed={SPEED}"),
            stdout=PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "HEADWAY_LOG_LEVEL": "error"},
        )
        assert process.stdout is not None
        told = json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        written = SETTINGS.format(store=store, folder=folder, url=url, deadline=DEADLINE_MS, **told)
        (folder / "headway.toml").write_text(written)
        carrier = httpx.AsyncClient(base_url=told["base_url"], timeout=20)
        # If a fault is planted, make the condition that reveals it more frequent.
        faults = FAULTS | ({"unsure": 0.3} if plant else {})
        (await carrier.post("/_faults", json=faults)).raise_for_status()
        http = httpx.AsyncClient(base_url=url, timeout=20)
        return cls(
            folder=folder, port=port, http=http, carrier=carrier, process=process, plant=plant
        )

    async def end(self) -> None:
        """Stop the carrier."""
        self.process.terminate()
        await self.process.wait()
        await self.http.aclose()
        await self.carrier.aclose()

    def work(self, point: str = "", nth: int = 1) -> BaseProcess:
        """Start a worker."""
        return self._start(("worker", "--system", "calls"), point, nth)

    async def serve(self, point: str = "", nth: int = 1) -> BaseProcess:
        """Start a server; return it even if it dies before it answers."""
        line = ("serve", "--system", "calls", "--no-work", f"--port={self.port}")
        started = self._start(line, point, nth)
        end = time.monotonic() + PATIENCE_S
        while started.is_alive():
            try:
                if (await self.http.get("/healthz")).is_success:
                    break
            except httpx.HTTPError:
                pass
            if time.monotonic() > end:
                message = "the server does not answer"
                raise RuntimeError(message)
            await asyncio.sleep(0.05)
        return started

    async def ledger(self) -> dict[str, Any]:
        """Return the carrier's records."""
        return (await self.carrier.get("/_calls")).raise_for_status().json()

    async def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Repeat the same request to the server until it answers."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                reply = await self.http.request(method, path, json=body)
            except httpx.HTTPError as error:
                if time.monotonic() > end:
                    message = f"{path}: no answer in {PATIENCE_S:.0f} s"
                    raise RuntimeError(message) from error
            else:
                if reply.status_code < 500 and reply.status_code != 429:
                    return reply
            await asyncio.sleep(0.05)

    def _start(self, arguments: tuple[str, ...], point: str, nth: int) -> BaseProcess:
        life = Life(folder=self.folder, arguments=arguments, point=point, nth=nth, plant=self.plant)
        one = _PROCESSES.Process(target=live, args=(life,), daemon=True)
        one.start()
        return one


async def ended(one: BaseProcess, limit_s: float = PATIENCE_S) -> int | None:
    """Return how a process exited; None if it has not within this time."""
    # The exit code is read only in this thread, because it can be read only once.
    await asyncio.to_thread(wait, [one.sentinel], limit_s)
    return one.exitcode


async def kill(one: BaseProcess, sign: signal.Signals = signal.SIGKILL) -> None:
    """Kill a process, unless it has already exited."""
    if one.is_alive():
        os.kill(one.pid or 0, sign)
    if await ended(one) is None:
        one.kill()
        await ended(one)
