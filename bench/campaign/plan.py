"""The plan of a campaign: numbers, zones, resellers, leads, and operators' actions."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime

import headway as hw
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.job import NewJob

START = int(datetime(2026, 3, 2, 1, 55, tzinfo=UTC).timestamp() * 1000)
"""Five minutes before the first zone opens."""
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000

# Zones that reach nine o'clock one after another, and their shares of the leads.
ZONES = {
    "Asia/Bangkok": 0.36,
    "Asia/Yangon": 0.30,
    "Asia/Dhaka": 0.14,
    "Asia/Kathmandu": 0.12,
    "Asia/Kolkata": 0.08,
}
OFFSETS = {
    "Asia/Bangkok": 7 * HOUR,
    "Asia/Yangon": 6 * HOUR + HOUR // 2,
    "Asia/Dhaka": 6 * HOUR,
    "Asia/Kathmandu": 5 * HOUR + 45 * MINUTE,
    "Asia/Kolkata": 5 * HOUR + HOUR // 2,
}
"""Given explicitly, so that the engine's zone rules can be checked against them."""
OPENS, CLOSES = 9 * HOUR, 18 * HOUR
LIMIT, WINDOW = 7, HOUR
NUMBERS, CHANNELS = 20, 5
RESELLERS = 50
PAUSED = "reseller-07"
CAPPED, CAP = "reseller-13", 2
OWNER = "reseller-09"
"""A reseller with its own number, which is DISABLED at first."""
EARLY = "reseller-11"
"""A reseller with a template whose pool has no number at first."""
POOL, CHECKS, CHECKS_AT_ONCE = "calls.numbers", "calls.checks", 100
OWN_POOL, EMPTY_POOL = f"calls.numbers:{OWNER}", "calls.pool:early"
LANE = "calls"
LATE_SHARE, LATE = 0.02, (30 * MINUTE, 80 * MINUTE)
"""Share of leads that are due later than the others, and how much later."""


def numbers() -> list[str]:
    """Return all numbers; each of the last two has its own pool."""
    return [f"+1555000{n:04}" for n in range(1, NUMBERS + 1)]


def pool_of(reseller: str) -> str:
    """Return the pool of numbers from which a reseller's leads are called."""
    return {OWNER: OWN_POOL, EARLY: EMPTY_POOL}.get(reseller, POOL)


def pools() -> dict[str, dict[str, int]]:
    """Return the initial pools, with the channels of their numbers."""
    *shared, own, _ = numbers()
    return {POOL: dict.fromkeys(shared, CHANNELS), OWN_POOL: {own: 0}, EMPTY_POOL: {}}


def check_gate() -> GateSpec:
    """Return the gate of a check."""
    return hw.Slots(CHECKS, CHECKS_AT_ONCE)


def dial_gates(pool: str) -> list[GateSpec]:
    """Return the gates of a call, named as in the system `calls`."""
    hours = hw.Hours("calls.hours:default:{tz}", "09:00-18:00", days="mon-sun", tz="{tz}")
    rate = hw.Rate("calls.customer:{phone}", LIMIT, per="1h")
    return [hw.Pool(pool, pools()[pool], shared=True), hours, rate]


@dataclass(frozen=True, slots=True)
class Lead:
    """A person to be called."""

    id: str
    phone: str
    tz: str
    reseller: str
    due_at: int
    check_ms: int
    talk_ms: int
    crowded: bool


@dataclass(slots=True)
class Campaign:
    """All leads, drawn before the first call; the same seed gives the same leads."""

    size: int
    seed: int = 1
    kind: hw.Kind | None = None
    leads: dict[str, Lead] = field(default_factory=dict)

    def declare(self, app: hw.App) -> None:
        """Add the kind to an app."""

        @app.job(
            name="lead",
            lane=LANE,
            tenant="{reseller}",
            subject="{phone}",
            stages={"check": [check_gate().take(hold="run")], "dial": dial_gates(POOL)},
        )
        async def lead(phone: str, tz: str, reseller: str) -> None:
            del phone, tz, reseller

        @lead.stage("dial")
        async def call(phone: str) -> None:
            del phone

        self.kind = lead

    def dial_gates(self, lead: Lead) -> tuple[GateUse, ...]:
        """Return the gates that a lead needs once it has passed its check."""
        assert self.kind is not None
        args = json.dumps({"phone": lead.phone, "tz": lead.tz, "reseller": lead.reseller})
        gates = dial_gates(pool_of(lead.reseller))
        return self.kind.uses("dial", LANE, lead.reseller, args.encode(), gates)

    def jobs(self) -> list[NewJob]:
        """Draw the leads and return them as jobs; most are due at the start."""
        assert self.kind is not None
        draw = random.Random(self.seed)
        found: list[NewJob] = []
        # One phone per 2,000 leads is shared by about thirty of them, so that the rate limits it.
        crowds = [f"+6690{n:08}" for n in range(max(1, self.size // 2_000))]
        zones, weights = list(ZONES), list(ZONES.values())
        resellers = [f"reseller-{n:02}" for n in range(RESELLERS)]
        special = {PAUSED, CAPPED, OWNER, EARLY}
        for n in range(self.size):
            tz = draw.choices(zones, weights)[0]
            reseller = draw.choice(resellers)
            # Leads of special resellers have no shared phone, to keep the effects apart.
            crowded = draw.random() < 0.015 and reseller not in special
            due_at = START + (draw.randrange(*LATE) if draw.random() < LATE_SHARE else 0)
            phone = draw.choice(crowds) if crowded else f"+6680{n:08}"
            if crowded:
                tz = zones[0]
            job = self.kind.make(
                phone=phone,
                tz=tz,
                reseller=reseller,
                due=datetime.fromtimestamp(due_at / 1000, tz=UTC),
            )
            self.leads[job.id] = Lead(
                id=job.id,
                phone=phone,
                tz=tz,
                reseller=job.tenant,
                due_at=due_at,
                check_ms=draw.randrange(500, 3_000, 500),
                talk_ms=draw.randrange(1_000, 10_000, 100),
                crowded=crowded,
            )
            found.append(job)
        return found
