"""A program that sends repair requests, completes them and withdraws some, over HTTP."""

from __future__ import annotations

import asyncio
import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.demo.http_client import Asking
from examples.demo.repairs.rules import Evidence
from examples.demo.telephones import Telephones
from headway.lab.draws import Draws

TECHNICIANS = Path(__file__).parent / "technicians.csv"
DISPATCHER = "+12125550199"
SKILLS = ("boiler", "gas", "lock", "roof")
TROUBLES = {
    "boiler": "no hot water",
    "gas": "smells of gas",
    "lock": "locked out",
    "roof": "the roof leaks",
}
CENTRE = (40.74, -73.95)
GAP_S = 1.4
WORK_S = (3.0, 8.0)
WITHDRAWN = 0.08

Notify = Callable[[str, str], None]


class Repairs:
    """Repair requests in one city.

    Args:
        url: URL of the server.
        phones: The carrier, whose ledger has the dispatcher's messages.
        seed: Random seed.
        notify: Called for each event, with a word and a sentence.

    Attributes:
        accepted: Ids of the requests that the server accepted.
        counts: Number of requests by status, when last read.
    """

    def __init__(self, url: str, phones: Telephones, seed: int, notify: Notify) -> None:
        self.url = url
        self.accepted: list[str] = []
        self.counts: Counter[str] = Counter()
        self._server = Asking(url)
        self._phones = phones
        self._draws = Draws(seed)
        self._notify = notify
        self._seen: dict[str, tuple[str, int]] = {}
        self._awaited: frozenset[str] = frozenset()

    async def prepare(self) -> None:
        """Add the technicians and users to the server."""
        reply = await self._server.http.post(
            "/technicians/import",
            content=TECHNICIANS.read_bytes(),
            headers={"Content-Type": "text/csv"},
        )
        reply.raise_for_status()
        dora = {"name": "Dora", "roles": ["Dispatcher"], "channels": [f"text:{DISPATCHER}"]}
        await self._server.ask("POST", "/users", dora)

    async def take_requests(self) -> None:
        """Send requests at random times, and complete assigned ones, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(tasks))
            count = 0
            while True:
                count += 1
                await self._send(tasks, count)
                await asyncio.sleep(2 * GAP_S * self._draws.unit("gap of repairs", count))

    async def finish(self, limit_s: float = 15.0) -> None:
        """Wait until the dispatcher has all messages, or the time limit has passed.

        Requests can become pending after that; their messages are not awaited.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + limit_s
        while loop.time() < until:
            pending = [one["id"] for one in await self._requests() if one["status"] == "pending"]
            self._awaited = frozenset(pending)
            texts = [one.plan.text for one in self._alerts()]
            if all(any(one in text for text in texts) for one in pending):
                return
            await asyncio.sleep(0.1)

    async def evidence(self) -> Evidence:
        """Return the server's record of all requests, and the dispatcher's messages."""
        on_duty: dict[str, frozenset[str]] = {}
        with TECHNICIANS.open(encoding="utf-8") as rows:
            for row in csv.DictReader(rows):
                if row["on_duty"] == "yes":
                    on_duty[row["id"]] = frozenset(row["skills"].split(";"))
        return Evidence(
            accepted=tuple(self.accepted),
            requests={one["id"]: one for one in await self._requests()},
            skills=on_duty,
            alerts=self._alerts(),
            awaited=self._awaited,
            twice=self._phones.ledger.twice(),
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._server.close()

    def _alerts(self) -> list[Any]:
        return [one for one in self._phones.ledger.texts.values() if one.plan.to == DISPATCHER]

    async def _send(self, tasks: asyncio.TaskGroup, count: int) -> None:
        skill = SKILLS[int(len(SKILLS) * self._draws.unit("skill", count))]
        request = {
            "customer": {"name": f"Customer {count}", "phone": f"+1646555{count:04}"},
            "position": {
                "lat": CENTRE[0] + 0.1 * (self._draws.unit("lat", count) - 0.5),
                "lon": CENTRE[1] + 0.1 * (self._draws.unit("lon", count) - 0.5),
            },
            "skills": [skill],
            "urgency": "emergency" if skill == "gas" else "normal",
            "description": TROUBLES[skill],
            "key": f"repair-{count}",
        }
        reply = await self._server.ask("POST", "/service-requests", request)
        self.accepted.append(reply["id"])
        self._notify("help", f"{TROUBLES[skill]}: {reply['id']}")
        if self._draws.chance(WITHDRAWN, "withdrawn", count):
            tasks.create_task(self._withdraw(reply["id"], count))

    async def _withdraw(self, request: str, count: int) -> None:
        await asyncio.sleep(4 * self._draws.unit("withdrawn after", count))
        # Refused if the request has been completed meanwhile.
        reply = await self._server.http.delete(f"/service-requests/{request}")
        if reply.is_success:
            self._notify("withdrawn", request)

    async def _complete(self, request: str) -> None:
        least, most = WORK_S
        await asyncio.sleep(least + (most - least) * self._draws.unit("work", request))
        # Refused if the customer has cancelled meanwhile.
        await self._server.http.post(f"/service-requests/{request}/complete", json={})

    async def _watch(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            requests = await self._requests()
            self.counts = Counter(one["status"] for one in requests)
            for one in requests:
                self._notify_of(one, tasks)
            await asyncio.sleep(0.5)

    def _notify_of(self, request: dict[str, Any], tasks: asyncio.TaskGroup) -> None:
        was, shown = self._seen.get(request["id"], ("", 0))
        status, asked = request["status"], request["asked"]
        for one in asked[shown:]:
            self._notify(one["said"], f"{one['technician']}: {request['description']}")
        if status != was and status in {"pending", "completed"}:
            self._notify(status, f"{request['description']}: {request['id']}")
        if status == "assigned" != was:
            tasks.create_task(self._complete(request["id"]))
        self._seen[request["id"]] = status, len(asked)

    async def _requests(self) -> list[dict[str, Any]]:
        return await self._server.rows("/service-requests")
