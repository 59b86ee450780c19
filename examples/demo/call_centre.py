"""A small call centre: leads, calls through three numbers, and a carrier that tells their end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import headway as hw
from headway.lab.carrier import Carrier, Fate, Webhook
from headway.lab.draws import Draws

NUMBERS = {"+15550001": 5, "+15550002": 4, "+15550003": 3}
CALLS_A_CUSTOMER = 2
CUSTOMER_WINDOW = "20s"
HOURS = "09:00-18:00"
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
FATES = {"talked": 58.0, "busy": 16.0, "no answer": 21.0, "bad number": 5.0}
LOST, LATE, TWICE = 0.04, 0.08, 0.06

Tell = Callable[[str, str], None]


class CallCentre:
    """Leads, calls and the carrier that carries them.

    Args:
        store: where its jobs live.
        seed: of all that is random.
        tell: told what happens, as (word, sentence).

    Attributes:
        app: its kinds and gates.
        carrier: the simulated telephone network.
        sent: the ids of its leads.
        told: signals by what the store answered.
    """

    def __init__(self, store: hw.Store, seed: int, tell: Tell) -> None:
        self.app = hw.App(store=store, name="call centre")
        self.carrier = Carrier(channels=NUMBERS, deliver=self._heard)
        self.sent: set[str] = set()
        self.told: Counter[str] = Counter()
        self._draws = Draws(seed)
        self._tell = tell
        self._declare()

    def _declare(self) -> None:
        numbers = hw.Pool("numbers", NUMBERS)
        customer = hw.Rate("customer:{phone}", CALLS_A_CUSTOMER, per=CUSTOMER_WINDOW)
        hours = hw.Hours("hours:{tz}", HOURS, tz="{tz}")

        @self.app.job(
            lane="calls",
            gates=[numbers, customer, hours],
            retry=hw.Backoff(attempts=4, base="4s"),
            subject="{phone}",
            reconcile=self._ask,
            reconcile_within="5s",
        )
        async def call(job: hw.Job, phone: str, tz: str) -> None:
            del tz  # it names the hours
            # Looking the customer up holds a line already; the call itself begins after it.
            await asyncio.sleep(0.02 + 0.08 * self._draws.unit("look up", job.ref))
            await job.hand_over(timeout="12s")
            line = job.permits["numbers"]
            self.carrier.dial(job.ref, line=line, to=phone, fate=self._fate(job.ref))
            self._tell("dialled", f"{phone} from {line}, attempt {job.attempt}")

    async def take_leads(self) -> None:
        """Leads come in, at random, until this is cancelled."""
        count = 0
        while True:
            count += 1
            customer = int(self._draws.unit("customer", count) * CUSTOMERS)
            sent = await self.app.send_async(
                "call", phone=f"+1415555{customer:04}", tz=self._zone(count)
            )
            self.sent.add(sent.id)
            await asyncio.sleep(2 * self._draws.unit("gap", count) / LEADS_A_SECOND)

    def _zone(self, count: int) -> str:
        """Mostly where people are at work now; now and then anywhere."""
        hour = {zone: datetime.now(UTC).astimezone(ZoneInfo(zone)).hour for zone in ZONES}
        awake = [zone for zone in ZONES if 9 <= hour[zone] < 18]
        among = awake if awake and self._draws.chance(0.85, "awake", count) else list(ZONES)
        return self._draws.choose(dict.fromkeys(among, 1.0), "zone", count)

    def _fate(self, ref: str) -> Fate:
        unit = self._draws.unit
        outcome = self._draws.choose(FATES, "fate", ref)
        talks = outcome == "talked"
        rings = outcome != "bad number"
        return Fate(
            outcome=outcome,
            ring_ms=int(300 + rings * 1_500 * unit("ring", ref)),
            talk_ms=int(1_000 + 4_000 * unit("talk", ref)) if talks else 0,
            lost=unit("lost", ref) < LOST,
            late_ms=2_000 if unit("late", ref) < LATE else 0,
            twice=unit("twice", ref) < TWICE,
        )

    async def _heard(self, webhook: Webhook) -> None:
        call = webhook.call
        ref, outcome = call.ref, call.fate.outcome
        match outcome:
            case "talked":
                reply = await self.app.signal_async(ref, event=webhook.event, final="succeeded")
            case "bad number":
                reply = await self.app.signal_async(
                    ref, event=webhook.event, final="dead", reason=outcome
                )
            case _:
                reply = await self.app.signal_async(
                    ref, event=webhook.event, final="retry", after="5s", reason=outcome
                )
        self.told[str(reply.answer)] += 1
        if not webhook.again:
            self._tell(outcome, f"{call.to} on {call.line}")

    async def _ask(self, awaited: hw.Awaited) -> hw.Running | hw.Ended | hw.Unknown:
        """What the carrier says of a call whose end nobody has told."""
        call = self.carrier.calls.get(awaited.ref)
        if call is None:
            return hw.Unknown()
        if call.status != "ended":
            return hw.Running("5s")
        self._tell(
            "asked", f"{call.to}: its webhook was lost, the carrier says {call.fate.outcome}"
        )
        self.told["asked"] += 1
        match call.fate.outcome:
            case "talked":
                return hw.Ended("succeeded")
            case "bad number":
                return hw.Ended("dead", reason="bad number")
            case outcome:
                return hw.Ended("retry", reason=outcome)
