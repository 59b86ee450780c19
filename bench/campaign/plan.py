"""The plan of a campaign: numbers, zones, resellers, leads, and what an operator does meanwhile."""

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

# Zones whose nine o'clock comes one after the other, and how much of the leads each has.
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
"""Without the engine's own zone rules, so that these can be checked against something else."""
OPENS, CLOSES = 9 * HOUR, 18 * HOUR
LIMIT, WINDOW = 7, HOUR
NUMBERS, CHANNELS = 20, 5
RESELLERS = 50
PAUSED = "reseller-07"
POOL, CHECKS = "calls.numbers", "calls.checks"
LANE = "calls"


def numbers() -> dict[str, int]:
    """The numbers and their channels."""
    return {f"+1555000{n:04}": CHANNELS for n in range(1, NUMBERS + 1)}


def gates() -> tuple[list[GateSpec], list[GateSpec]]:
    """The gates of the check, and those of the dial, as the system `calls` names them."""
    checks = hw.Slots(CHECKS, 100)
    pool = hw.Pool(POOL, numbers())
    hours = hw.Hours("calls.hours:default:{tz}", "09:00-18:00", days="mon-sun", tz="{tz}")
    rate = hw.Rate("calls.customer:{phone}", LIMIT, per="1h")
    return [checks], [pool, hours, rate]


@dataclass(frozen=True, slots=True)
class Lead:
    """Somebody to be called."""

    id: str
    phone: str
    tz: str
    reseller: str
    check_ms: int
    talk_ms: int
    crowded: bool


@dataclass(slots=True)
class Campaign:
    """Everything that is drawn before the first call; the same seed draws the same."""

    size: int
    seed: int = 1
    kind: hw.Kind | None = None
    leads: dict[str, Lead] = field(default_factory=dict)

    def declare(self, app: hw.App) -> None:
        """Adds the kind to an app."""
        check, dial = gates()

        @app.job(
            name="lead",
            lane=LANE,
            tenant="{reseller}",
            subject="{phone}",
            stages={"check": [gate.take(hold="run") for gate in check], "dial": dial},
        )
        async def lead(phone: str, tz: str, reseller: str) -> None:
            del phone, tz, reseller

        @lead.stage("dial")
        async def call(phone: str) -> None:
            del phone

        self.kind = lead

    def dial_gates(self, lead: Lead) -> tuple[GateUse, ...]:
        """What a lead asks for once it has passed its check."""
        assert self.kind is not None
        args = json.dumps({"phone": lead.phone, "tz": lead.tz, "reseller": lead.reseller})
        return self.kind.uses("dial", LANE, lead.reseller, args.encode())

    def jobs(self) -> list[NewJob]:
        """The leads as jobs, all due at the start."""
        assert self.kind is not None
        draw = random.Random(self.seed)
        found: list[NewJob] = []
        # One phone in 2,000 belongs to somebody who asked in thirty places: a rate has to bite.
        crowds = [f"+6690{n:08}" for n in range(max(1, self.size // 2_000))]
        zones, weights = list(ZONES), list(ZONES.values())
        for n in range(self.size):
            tz = draw.choices(zones, weights)[0]
            crowded = draw.random() < 0.015
            phone = draw.choice(crowds) if crowded else f"+6680{n:08}"
            if crowded:
                tz = zones[0]
            job = self.kind.make(
                phone=phone,
                tz=tz,
                reseller=f"reseller-{draw.randrange(RESELLERS):02}",
                due=datetime.fromtimestamp(START / 1000, tz=UTC),
            )
            self.leads[job.id] = Lead(
                id=job.id,
                phone=phone,
                tz=tz,
                reseller=job.tenant,
                check_ms=draw.randrange(500, 3_000, 500),
                talk_ms=draw.randrange(1_000, 10_000, 100),
                crowded=crowded,
            )
            found.append(job)
        return found
