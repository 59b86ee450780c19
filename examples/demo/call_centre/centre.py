"""The call centre: a program that uses only the HTTP routes of the system `calls`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from examples.demo.call_centre.rules import Evidence, Pause
from examples.demo.call_centre.terms import BARRED, CLOSES, NUMBERS, OPENS
from examples.demo.http_client import Asking
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
"""At any time, it is office hours in some of these zones."""
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
    """A lead that the server has accepted."""

    id: str
    phone: str


class CallCentre:
    """Sends leads, and watches their outcomes.

    Args:
        url: URL of the server.
        phones: The carrier, whose ledger records the calls.
        seed: Random seed.
        notify: Called for each event, with a word and a sentence.

    Attributes:
        accepted: Leads that the server has accepted, by key.
        pauses: Times in which a reseller was paused.
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
        """Number of calls placed from its numbers."""
        return len(self._calls())

    @property
    def live(self) -> int:
        """Number of these calls that have not ended."""
        return sum(not one.status.ended for one in self._calls())

    async def prepare(self) -> None:
        """Add the numbers and the template to the server."""
        await self._server.ask("PUT", "/templates/office", TEMPLATE)
        for number, channels in NUMBERS.items():
            line = {"number": number, "provider": "twilio", "maximum_channels": channels}
            await self._server.ask("POST", "/numbers", line)

    async def take_leads(self) -> None:
        """Send leads at random times until cancelled."""
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
        """Report calls that have changed."""
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
        """Return the server's record of all leads, and the carrier's of all calls."""
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
        """Close the connection."""
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
        """Pause a reseller at intervals: no lead of it starts, and none is lost."""
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
        """Return a zone, mostly one with office hours now."""
        hour = {zone: datetime.now(UTC).astimezone(ZoneInfo(zone)).hour for zone in ZONES}
        awake = [zone for zone in ZONES if OPENS <= hour[zone] < CLOSES]
        among = awake if awake and self._draws.chance(0.85, "awake", count) else list(ZONES)
        return self._draws.choose(dict.fromkeys(among, 1.0), "zone", count)


def _now_at() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
