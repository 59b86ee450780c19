"""The engines of `notifications` as an operator starts them: two servers that also work."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.servers.process import free_port
from tests.torture.field_site import PATIENCE_S, Crew
from tests.torture.notify_providers import Providers

CHANNELS = ("email", "sms", "webhook")
AT_ONCE, CONCURRENCY = 40, 60
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105  (made up)
FROM = "+14155550199"
_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+")
SETTINGS = """
store = "{store}"
directory = "sqlite:///{folder}/directory.db"
public_url = "{url}"
log_level = "warning"

[telephony.twilio]
account_sid = "AC00112233445566778899aabbccddeeff"
auth_token = "{token}"
base_url = "http://127.0.0.1:{http_port}"

[notifications]
urgent = ["otp", "alert"]
jitter = "0s"

[notifications.senders.email]
from = "Shop <shop@example.org>"
smtp = {{ host = "127.0.0.1", port = {mail_port}, tls = "none", connections = 16 }}

[notifications.senders.sms]
from = "{from_}"

[notifications.senders.webhook]
keys = ["{key}"]
private = true
"""
CHANNEL = """
[notifications.channels.{channel}]
at_once = {at_once}
rate = {rate}
per = "1s"
closed_for = "1s"
"""


class Engines(Crew):
    """Two engines, either of which can be killed or stopped."""

    def __init__(self, folder: Path, store: str) -> None:
        super().__init__(folder, store, FROM, 1)
        self._ports = {"one": self.port, "two": free_port()}
        self._stopped: set[str] = set()

    async def open(self, providers: Providers, rates: Mapping[str, int], lease_s: int) -> None:
        """Start both.

        Args:
            providers: the providers to which everything is sent.
            rates: messages per second of each channel.
            lease_s: lifetime of a run without a beat.
        """
        written = SETTINGS.format(
            store=self._words["store"],
            folder=self._folder,
            url=self.url,
            mail_port=providers.mail_port,
            http_port=providers.http_port,
            token=TOKEN,
            from_=FROM,
            key=KEY,
        )
        for channel in CHANNELS:
            rate = rates[channel]
            written += CHANNEL.format(channel=channel, at_once=AT_ONCE, rate=rate)
        (self._folder / "headway.toml").write_text(written)
        await self._run("migrate")
        # Before the engines start, because workers read the leases only then.
        for channel in CHANNELS:
            await self._run("lanes", "set", f"notify.{channel}", f"--lease={lease_s}s")
        await self._begin("one")
        await self.answers()
        await self._begin("two")

    async def freeze(self, name: str, seconds: float) -> None:
        """Stop an engine, and let it continue after a while."""
        process = self._processes[name]
        os.kill(process.pid, signal.SIGSTOP)
        self._stopped.add(name)
        await asyncio.sleep(seconds)
        os.kill(process.pid, signal.SIGCONT)
        self._stopped.discard(name)

    async def kill(self, name: str) -> None:
        """See `Crew.kill`."""
        await self._end(name)
        await self._begin(name)

    async def ask(
        self,
        http: httpx.AsyncClient,
        method: str,
        path: str,
        body: Any = None,
        **more: Any,
    ) -> httpx.Response:
        """Return the reply of the first engine that answers; see `Crew.ask`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for name, port in self._ports.items():
                    if name in self._stopped:
                        continue
                    url = f"http://127.0.0.1:{port}{path}"
                    try:
                        reply = await http.request(method, url, json=body, **more)
                    except httpx.HTTPError:
                        continue
                    if not reply.is_server_error:
                        return reply
                await asyncio.sleep(0.05)

    def warnings(self) -> Counter[str]:
        """Return the engines' warnings, counted by their first words."""
        found: Counter[str] = Counter()
        for name in self._ports:
            text = (self._folder / f"{name}.log").read_text("utf-8", "replace")
            lines = [one for one in text.splitlines() if "warning" in one or "error" in one]
            found.update(_IDS.sub("…", one[25:])[:110] for one in lines)
        return found

    async def _run(self, *words: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headway",
            *words,
            cwd=self._folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        told, _ = await process.communicate()
        assert process.returncode == 0, told.decode()

    async def _begin(self, name: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headway",
                "serve",
                f"--port={self._ports[name]}",
                "--system=notifications",
                f"--concurrency={CONCURRENCY}",
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
