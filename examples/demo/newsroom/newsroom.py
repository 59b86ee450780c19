"""The newsroom: a program that uses only the HTTP routes of the system `notifications`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from examples.demo.http_client import Asking
from examples.demo.mail_room.postbox import Postbox
from examples.demo.newsroom.rules import Evidence, Issue
from headway.lab.draws import Draws

READERS = 12
ISSUES_A_SECOND = 3.0
TWICE = 0.12
"""Share of issues that are sent twice, with the same dedupe key."""
CODES = 0.25
"""Share of one-time codes, to which an opt-out from news does not apply."""
OPT_OUT_EACH_S = 4.0
BUSY = 0.05
"""Share of messages that the mail server refuses temporarily."""
LATEST_S = 20.0
TEMPLATE = {
    "id": "issue",
    "channels": {
        "default": {
            "title": "Issue {{ number }}",
            "text": "Hello {{ reader }}, this is issue {{ number }}.",
            "html": "<p>Hello {{ reader }}, this is issue {{ number }}.</p>",
        }
    },
}
Notify = Callable[[str, str], None]


def settings(smtp_port: int) -> dict[str, object]:
    """Return the table [notifications] for a mail server on this machine."""
    server = {"host": "127.0.0.1", "port": smtp_port, "tls": "none"}
    return {
        "jitter": "2s",
        "senders": {"email": {"from": "Newsroom <news@example.org>", "smtp": server}},
    }


class Newsroom:
    """Sends notifications, and opts readers out at intervals.

    Args:
        url: URL of the server.
        inbox: The mail server's postbox, which counts issues by number.
        seed: Random seed.
        notify: Called for each event, with a word and a sentence.

    Attributes:
        inbox: The issues that have arrived.
        asked: Number of the last issue sent to the server.
        issues: Issues that the server accepted, by number.
        repeats: Number of issues that were sent twice.
    """

    def __init__(self, url: str, inbox: Postbox, seed: int, notify: Notify) -> None:
        self.inbox = inbox
        self.asked = 0
        self.issues: dict[int, Issue] = {}
        self.repeats = 0
        self._server = Asking(url)
        self._draws = Draws(seed)
        self._notify = notify
        self._opted_out: set[str] = set()
        self._faults: list[str] = []

    async def prepare(self) -> None:
        """Add the readers and the template."""
        await self._server.ask("POST", "/message-templates", TEMPLATE)
        for n in range(READERS):
            reader = {"id": f"reader-{n}", "email": f"reader{n}@example.org"}
            await self._server.ask("POST", "/recipients", reader)

    async def work(self) -> None:
        """Send issues at random times until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._opt_out())
            number = 0
            while True:
                number += 1
                await self._send(number)
                await asyncio.sleep(2 * self._draws.unit("gap of issues", number) / ISSUES_A_SECOND)

    async def finish(self) -> None:
        """Wait until nothing is queued, or the time limit has passed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LATEST_S
        while loop.time() < until:
            notifications = await self._notifications()
            if all(notifications[one.id]["status"] != "QUEUED" for one in self.issues.values()):
                return
            await asyncio.sleep(0.1)

    async def evidence(self) -> Evidence:
        """Return what was sent, the server's record of it, and what arrived."""
        return Evidence(
            asked=self.asked,
            issues=self.issues,
            notifications=await self._notifications(),
            taken=self.inbox.taken,
            opted_out=frozenset(self._opted_out),
            faults=tuple(self._faults),
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._server.close()

    async def _send(self, number: int) -> None:
        reader = f"reader-{int(READERS * self._draws.unit('reader', number))}"
        category = "otp" if self._draws.chance(CODES, "code", number) else "news"
        low = self._draws.chance(0.2, "low", number)
        body = {
            "recipient": reader,
            "channel": "email",
            "template": "issue",
            "data": {"number": number, "reader": reader},
            "category": category,
            "priority": "low" if low else "normal",
            "dedupe_key": f"issue-{number}",
        }
        # Read before the request: an issue that is accepted after an opt-out must not be sent.
        unwanted = category == "news" and reader in self._opted_out
        self.asked = number
        reply = await self._server.ask("POST", "/notifications", body)
        self.issues[number] = Issue(
            number=number, id=reply["id"], reader=reader, category=category, unwanted=unwanted
        )
        if self._draws.chance(TWICE, "twice", number):
            self.repeats += 1
            again = await self._server.ask("POST", "/notifications", body)
            if again["created"] or again["id"] != reply["id"]:
                self._faults.append(f"issue {number} was sent again and is {again}")

    async def _opt_out(self) -> None:
        for n in range(READERS):
            await asyncio.sleep(OPT_OUT_EACH_S)
            wants = {"preferences": {"opt_out": ["*:news"]}}
            await self._server.ask("PATCH", f"/recipients/reader-{n}", wants)
            self._opted_out.add(f"reader-{n}")
            self._notify("opted out", f"reader-{n} wants no news any more")

    async def _notifications(self) -> Mapping[str, Mapping[str, Any]]:
        return {one["id"]: one for one in await self._server.rows("/notifications")}
