"""A day in seconds: requests and technicians drawn from a seed, with many failures."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from headway.carrier.network import PhoneNetwork
from headway.runtime.timing import REAL
from tests.servers.stores import NewUrl
from tests.systems.field_service.field_rig import HERE, LIMIT_S, LINE, FieldRig, a_field
from tests.systems.field_service.history_checks import calls_at_once, check_record

TECHNICIANS = 30
SHORT, LONG = 12, 60
"""Requests of a day."""
OPEN = {"dispatching"}
WORLD = {
    "speed": 2_000,
    "answer": 0.7,
    "busy": 0.1,
    "no_answer": 0.1,
    "refused": 0.05,
    "unsure": 0.02,
    "cut": 0.02,
    "hang_up": 0.05,
    "accept": 0.35,
    "decline": 0.5,
    "post_lost": 0.02,
    "post_late": 0.1,
    "post_twice": 0.1,
    "post_disordered": 0.1,
}


async def people(field: FieldRig, draw: random.Random) -> list[str]:
    names = [f"t{number:02}" for number in range(TECHNICIANS)]
    for name in names:
        await field.technician(
            name,
            km=draw.uniform(0, 40),
            channel=draw.choice(["voice", "voice", "text"]),
            on_duty=draw.random() < 0.9,
            skills=("gas",) if draw.random() < 0.2 else (),
        )
    return names


async def out_of_turn(field: FieldRig, request: str) -> None:
    """Let all technicians who were ever asked accept at the same instant."""
    told = await field.get(request)
    asked = [one["technician"] for one in told["asked"]]
    if told["offer"] is not None:
        asked.append(told["offer"]["technician"])
    # Each once: a technician who was asked repeatedly and has the request gets a 200 each time.
    asked = list(dict.fromkeys(asked))
    replies = await asyncio.gather(*(field.say(request, "accept", one) for one in asked))
    assert sum(one.status_code == 200 for one in replies) <= 1


async def undecided(field: FieldRig, request: str) -> None:
    """Let the technician who is being asked decline and accept at the same instant."""
    told = await field.get(request)
    if told["offer"] is not None:
        name = told["offer"]["technician"]
        await asyncio.gather(
            field.say(request, "decline", name), field.say(request, "accept", name)
        )


async def worker_dies(field: FieldRig) -> None:
    worker = next(iter(field.workers))
    field.work()
    await field.stop(worker, now=True)


async def chaos(field: FieldRig, draw: random.Random, names: list[str], sent: list[str]) -> None:
    """Send unsolicited answers and dispatchers' changes, and stop workers abruptly."""
    while True:
        await REAL.pause(0.02)
        if not sent:
            continue
        request, name, chance = draw.choice(sent), draw.choice(names), draw.random()
        if chance < 0.3:
            await out_of_turn(field, request)
        elif chance < 0.5:
            await undecided(field, request)
        elif chance < 0.55:
            await field.move(request, "assign", technician=name)
        elif chance < 0.7:
            await field.change(name, on_duty=draw.random() < 0.8)
        elif chance < 0.75:
            await worker_dies(field)


async def completing(field: FieldRig, sent: list[str]) -> None:
    """Complete assigned requests without delay."""
    while True:
        await REAL.pause(0.1)
        rows = (await field.rig.ask(None, "/service-requests", status="assigned"))["rows"]
        for one in rows[: max(1, len(rows) - 8)]:
            await field.move(one["id"], "complete")


async def a_day(field: FieldRig, seed: int, requests: int) -> dict[str, Any]:
    draw = random.Random(seed)
    await field.user("dora", "text:+15557770001")
    await field.user("dan", "text:+15557770002")
    field.carrier.person("+15557770001", "ignore")
    field.carrier.person("+15557770002", "ignore")
    names = await people(field, draw)
    sent: list[str] = []
    beside = [
        asyncio.create_task(chaos(field, draw, names, sent)),
        asyncio.create_task(completing(field, sent)),
    ]
    for _ in range(requests):
        skills = ["gas"] if draw.random() < 0.3 else []
        where = {"lat": HERE["lat"] + draw.uniform(-0.2, 0.2), "lon": HERE["lon"]}
        told = await field.ask(position=where, skills=skills)
        sent.append(told["id"])
        await REAL.pause(draw.uniform(0, 0.04))
    beside[0].cancel()
    async with asyncio.timeout(LIMIT_S):
        while any([(await field.get(one))["status"] in OPEN for one in sent]):
            await REAL.pause(0.1)
    beside[1].cancel()
    ends = await asyncio.gather(*beside, return_exceptions=True)
    wrong = [one for one in ends if one is not None and not isinstance(one, asyncio.CancelledError)]
    assert wrong == []
    await quiet(field)
    return dict(await check_record(field.store, ["dora", "dan"]))


async def quiet(field: FieldRig) -> None:
    """Return once all follow-up jobs are final."""
    async with asyncio.timeout(LIMIT_S):
        for kind in ("offer_ended", "offer_taken", "alert_dispatcher"):
            while any(one.finished_at is None for one in await field.jobs(kind, limit=1_000)):
                await REAL.pause(0.05)


def nothing_twice(world: PhoneNetwork) -> None:
    assert world.ledger.twice() == {}
    assert world.ledger.crowded() == {}
    assert calls_at_once(world.ledger) == []


@pytest.mark.parametrize(
    ("where", "seed", "requests"),
    [
        ("sqlite", 2, SHORT),
        *(
            pytest.param(where, seed, LONG, marks=[pytest.mark.slow, pytest.mark.timeout(400)])
            for where, seed in (("memory", 3), ("sqlite", 4), ("postgresql", 5), ("redis", 6))
        ),
    ],
)
async def test_each_request_of_a_random_day_ends_once_and_no_technician_is_offered_two(
    tmp_path: Path, new_url: NewUrl, where: str, seed: int, requests: int
):
    settings: dict[str, Any] = {
        "offer_timeout": "400ms",
        "line_wait": "2s",
        "lines": {LINE: 20},
        "radius_km": 15,
    }
    carrier = {**WORLD, "seed": seed, "channels": {LINE: 20}}
    url = new_url(where)
    async with a_field(tmp_path, url, carrier=carrier, patience="1s", **settings) as field:
        fates = await a_day(field, seed, requests)
        nothing_twice(field.carrier.network)
        assert sum(fates.values()) == requests
        # Offers expire by the real clock: how many are accepted in time depends on the machine.
        assert fates.get("succeeded", 0) + fates.get("assigned", 0) > 0, fates
        assert fates["dead"] > 0, "the day was too easy"
