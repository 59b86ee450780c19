"""The producer of the letters, which uses only `POST /enqueue`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from examples.demo.mail_room.kinds import UNKNOWN
from headway.lab.draws import Draws

PROSPECTS = 20
BURST = 16
GAP_S = 1.2
AGAIN = 0.12
"""Share of letters that are enqueued twice, as if the reply had been lost."""

TYPES = {"send_email": 64.0, "send_outreach": 16.0, "enrich": 8.0, "notify": 6.0, "unknown": 6.0}
Notify = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Letter:
    """A letter that the server accepted.

    Attributes:
        number: From 1, in the order of sending.
        job: Id of the job, from the server's reply.
        type: The type that was enqueued.
        is_mail: Whether it must arrive at the mail server.
    """

    number: int
    job: str
    type: str
    is_mail: bool


class Sender:
    """Enqueues letters in bursts, one after another.

    Args:
        url: URL of the server.
        seed: Random seed.
        notify: Called for each event, with a word and a sentence.

    Attributes:
        accepted: Letters that the server accepted, by number.
        asked: Number of letters sent; the last may have had no reply.
        repeats: Number of letters that were enqueued a second time.
        faults: Wrong replies.
    """

    def __init__(self, url: str, seed: int, notify: Notify) -> None:
        self.accepted: dict[int, Letter] = {}
        self.asked = 0
        self.repeats = 0
        self.faults: list[str] = []
        self._url = url
        self._draws = Draws(seed)
        self._notify = notify
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Send letters until `stop`; return once the last one has its reply."""
        async with httpx.AsyncClient(base_url=self._url, timeout=10) as http:
            while not self._over.is_set():
                for _ in range(1 + int(BURST * self._draws.unit("burst", self.asked))):
                    self.asked += 1
                    await self._send(http, self.asked)
                    if self._over.is_set():
                        return
                gap = 2 * GAP_S * self._draws.unit("gap", self.asked)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), gap)

    def stop(self) -> None:
        """Make `run` return."""
        self._over.set()

    async def _send(self, http: httpx.AsyncClient, number: int) -> None:
        asked = self._letter(number)
        reply = await self._enqueue(http, asked)
        if reply is None:
            return
        if reply.status_code not in {200, 201}:
            self.faults.append(f"letter {number} was refused: {reply.status_code} {reply.text}")
            return
        letter = Letter(
            number=number,
            job=reply.json()["job_id"],
            type=asked["type"],
            is_mail=asked["type"] in {"send_email", "send_outreach"},
        )
        self.accepted[number] = letter
        if asked["type"] in UNKNOWN:
            self._notify("unknown", f"letter {number} is a {asked['type']}, which is unknown")
        if self._draws.chance(AGAIN, "again", number):
            await self._send_again(http, asked, letter)

    async def _send_again(
        self, http: httpx.AsyncClient, asked: dict[str, Any], letter: Letter
    ) -> None:
        reply = await self._enqueue(http, asked)
        if reply is None:
            return
        self.repeats += 1
        self._notify("again", f"letter {letter.number} was enqueued twice, and is one job")
        if reply.status_code != 200 or reply.json() != {"job_id": letter.job, "created": False}:
            fault = f"letter {letter.number} sent again: {reply.status_code} {reply.text}"
            self.faults.append(fault)

    async def _enqueue(
        self, http: httpx.AsyncClient, asked: dict[str, Any]
    ) -> httpx.Response | None:
        """Retry until there is a reply; return None if stopped before."""
        while True:
            with suppress(httpx.TransportError):
                reply = await http.post("/enqueue", json=asked)
                if reply.status_code not in {429, 503}:
                    return reply
            if self._over.is_set():
                return None
            await asyncio.sleep(0.2)

    def _letter(self, number: int) -> dict[str, Any]:
        chosen = self._draws.choose(TYPES, "type", number)
        prospect = 1 + int(PROSPECTS * self._draws.unit("prospect", number))
        # The same job_id makes a repeat idempotent.
        asked: dict[str, Any] = {"job_id": job_id(number), "lane": chosen, "type": chosen}
        match chosen:
            case "send_email":
                asked["payload"] = {
                    "to": f"reader{number % 50}@example.org",
                    "title": f"Letter {number}",
                    "text": f"This is letter {number}.\n",
                }
            case "send_outreach":
                asked["payload"] = {
                    "prospect": prospect,
                    "title": f"Letter {number} for {{name}}",
                    "text": "How is {company}?\n",
                }
            case "enrich":
                asked |= {"type": "enrich_prospect", "payload": {"prospect": prospect}}
            case "notify":
                asked |= {"type": "health_check"}
            case _:
                # The worker of this lane reports unknown types at once; see `clerk.py`.
                asked |= {"lane": "notify", "type": UNKNOWN[number % len(UNKNOWN)]}
        return asked


def job_id(number: int) -> str:
    """Return the job_id of a letter, which becomes its job's key."""
    return f"letter-{number}"
