"""The processes of a slice: `headway carrier` and `headway serve`, as their users start them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A running process and its URL."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU seconds that it has used, including its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def started(folder: Path, store: str, talk: str) -> Generator[tuple[Running, Running]]:
    """Run a carrier and a server of the system `calls` until the block ends.

    Args:
        folder: Folder for the directory and the logs.
        store: URL of the store.
        talk: Range of the calls' durations after they are answered.
    """
    with ExitStack() as stack:
        at = free_port()
        words = ["carrier", "--port", at, "--answer", "1", "--ring", "0s", "--talk", talk]
        carrier = stack.enter_context(_process(folder, "carrier", at, ["--json", *words], {}))
        account = json.loads((folder / "carrier.out").read_text())
        at = free_port()
        settings = {
            "HEADWAY_STORE": store,
            "HEADWAY_PUBLIC_URL": f"http://127.0.0.1:{at}",
            "HEADWAY_DIRECTORY": f"sqlite:///{folder}/directory.db",
            **{f"HEADWAY_TELEPHONY__TWILIO__{key.upper()}": one for key, one in account.items()},
        }
        words = ["serve", "--port", at, "--system", "calls"]
        server = stack.enter_context(_process(folder, "server", at, words, settings))
        yield carrier, server


def free_port() -> str:
    """Return an unused port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


@contextmanager
def _process(
    folder: Path, name: str, port: str, words: list[str], settings: dict[str, str]
) -> Generator[Running]:
    program = [sys.executable, "-m", "headway", *words]
    with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.log").open("wb") as log:
        env = {**os.environ, **settings}
        running = subprocess.Popen(program, stdout=out, stderr=log, env=env, cwd=folder)
    try:
        _until_it_listens(running, int(port), folder / f"{name}.log")
        yield Running(url=f"http://127.0.0.1:{port}", pid=running.pid)
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def _until_it_listens(running: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(600):
        if running.poll() is not None:
            break
        with socket.socket() as one:
            if not one.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    message = f"it does not listen: {log.read_text()[-2_000:]}"
    raise RuntimeError(message)
