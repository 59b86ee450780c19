"""The call centre: a program that uses only the HTTP routes of the system `calls`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from examples.demo.asking import Asking
from examples.demo.call_centre.rules import Evidence, Pause
from examples.demo.call_centre.terms import BARRED, CLOSES, NUMBERS, OPENS
from examples.demo.telephones import Telephones
from headway.lab.draws import Draws

RESELLERS = ("acme", "borealis", "cedar")
PAUSED = "cedar"
PAUSE_AFTER_S, PAUSE_S = 4.0, 5.0
ZONES = (
    "Pacific/Auckland",
    "Asia/Tokyo",
    "Asia/Kolkata",
    "Europe/Athens",
    "Europe/London",
    "America/Sao_Paulo",
    "America/New_York",
    "America/Los_Angeles",
)
"""Whenever you look, it is office hours in some of them."""
LEADS_A_SECOND = 2.8
CUSTOMERS = 60
TEMPLATE = {
    "hours": {"spans": f"{OPENS:02}:00-{CLOSES:02}:00"},
    "checks": [{"check": "blacklist", "phones": [f"{BARRED}*"]}],
    "retry_on": ["BUSY", "NO_ANSWER"],
    "max_retry": 3,
    "retry_offset": "5s",
    "say": "Hello. Your order number {order} is on its way.",
}

Notify = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """A lead that the server has taken.

    Attributes:
        id: as it answered.
        phone: who is to be called.
    """

    id: str
    phone: str


class CallCentre:
    """Sends leads, and watches their outcomes.

    Args:
        url: of the server.
        phones: the carrier, whose ledger records the calls.
        seed: of all that is random.
        notify: called for each event, with a word and a sentence.

    Attributes:
        accepted: what the server said it has, by key.
        pauses: when a reseller was paused.
    """

    def __init__(self, url: str, phones: Telephones, seed: int, notify: Notify) -> None:
        self.accepted: dict[str, Accepted] = {}
        self.pauses: list[Pause] = []
        self._server = Asking(url)
        self._phones = phones
        self._draws = Draws(seed)
        self._notify = notify
        self._seen: dict[str, str] = {}

    @property
    def dialled(self) -> int:
        """How many calls were placed from its numbers."""
        return len(self._calls())

    @property
    def live(self) -> int:
        """How many of them go on."""
        return sum(not one.status.ended for one in self._calls())

    async def prepare(self) -> None:
        """Sets the server's numbers and template."""
        await self._server.ask("PUT", "/templates/office", TEMPLATE)
        for number, channels in NUMBERS.items():
            line = {"number": number, "provider": "twilio", "maximum_channels": channels}
            await self._server.ask("POST", "/numbers", line)

    async def take_leads(self) -> None:
        """Leads come in, at random, until this is cancelled."""
        pausing = asyncio.create_task(self._pause_now_and_then())
        try:
            count = 0
            while True:
                count += 1
                await self._send(count)
                await asyncio.sleep(2 * self._draws.unit("gap", count) / LEADS_A_SECOND)
        finally:
            pausing.cancel()
            with suppress(asyncio.CancelledError):
                await pausing

    def watch(self) -> None:
        """Reports changes of calls since the last look."""
        for call in self._calls():
            status = str(call.status)
            was = self._seen.get(call.sid)
            if was == status:
                continue
            self._seen[call.sid] = status
            if was is None:
                self._notify("dialled", f"{call.plan.to} from {call.plan.from_}")
            if call.status.ended:
                self._notify(status.replace("-", " "), f"{call.plan.to} on {call.plan.from_}")

    async def evidence(self) -> Evidence:
        """What the server says of all leads, and what the carrier saw; to be judged."""
        calls = self._calls()
        leads = {one["id"]: one for one in await self._server.rows("/leads")}
        return Evidence(
            accepted={one.id: one.phone for one in self.accepted.values()},
            leads=leads,
            calls={call.sid: call for call in calls},
            twice=self._phones.ledger.twice(),
            peaks=self._phones.ledger.peaks(),
            pauses=self.pauses,
        )

    async def close(self) -> None:
        """Closes its connection."""
        await self._server.close()

    def _calls(self) -> list[Any]:
        return [one for one in self._phones.ledger.calls.values() if one.plan.from_ in NUMBERS]

    async def _send(self, count: int) -> None:
        customer = int(self._draws.unit("customer", count) * CUSTOMERS)
        key, phone = f"lead-{count}", f"+1415555{customer:04}"
        lead = {
            "phone": phone,
            "tz": self._zone(count),
            "reseller": RESELLERS[count % len(RESELLERS)],
            "template": "office",
            "key": key,
            "payload": {"order": count},
        }
        reply = await self._server.ask("POST", "/leads", lead)
        self.accepted[key] = Accepted(id=reply["id"], phone=phone)

    async def _pause_now_and_then(self) -> None:
        """Pauses a reseller for a while: nothing of it starts, and nothing is lost."""
        while True:
            await asyncio.sleep(PAUSE_AFTER_S)
            gate = f"tenant:{PAUSED}"
            await self._server.ask("POST", "/v1/closures", {"gate": gate, "reason": "the demo"})
            from_at = _now_at()
            self._notify("paused", f"{PAUSED}: its leads wait")
            try:
                await asyncio.sleep(PAUSE_S)
            finally:
                self.pauses.append(Pause(reseller=PAUSED, from_at=from_at, to_at=_now_at()))
                await self._server.ask("DELETE", f"/v1/closures/{gate}")
            self._notify("resumed", f"{PAUSED}: its leads go on")

    def _zone(self, count: int) -> str:
        """Mostly where people are at work now; now and then anywhere."""
        hour = {zone: datetime.now(UTC).astimezone(ZoneInfo(zone)).hour for zone in ZONES}
        awake = [zone for zone in ZONES if OPENS <= hour[zone] < CLOSES]
        among = awake if awake and self._draws.chance(0.85, "awake", count) else list(ZONES)
        return self._draws.choose(dict.fromkeys(among, 1.0), "zone", count)


def _now_at() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
