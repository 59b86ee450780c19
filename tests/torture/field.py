"""Service requests while everything is killed: one offer at a time, one winner, one alert.

The phone network is a carrier in this process, whose ledger is compared with the store. People
accept, decline, stay silent, press a wrong key or hang up; lines are busy, calls fail, are refused
or have an unknown outcome; webhooks are lost, late, repeated and out of order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from headway.carrier.network import PhoneNetwork
from headway.contract.store import Store
from headway.contract.views import JobsQuery
from headway.core.errors import StoreError
from headway.core.state import State
from headway.stores import open_store
from headway.systems.field_service.request import acceptor
from tests.systems.field_service.field_rig import CUSTOMER, HERE, LINE, phone_of
from tests.systems.field_service.history_checks import all_jobs, read_story
from tests.systems.telephony.carrier_rig import carrying
from tests.torture.checker import Violation
from tests.torture.field_judge import Seen, judge, two_at_once
from tests.torture.field_site import Crew
from tests.torture.site import ServerSite, Site

TECHNICIANS, CHANNELS, WORKERS = 12, 8, 2
DISPATCHERS = {"dora": "+15557770001", "dan": "+15557770002"}
ENDS_S = 300.0
"""For the last request to end after the last kill."""
WORLD: dict[str, Any] = {
    "speed": 100,
    "answer": 0.7,
    "busy": 0.1,
    "no_answer": 0.1,
    "refused": 0.04,
    "too_many": 0.04,
    "unsure": 0.03,
    "cut": 0.03,
    "hang_up": 0.05,
    "accept": 0.3,
    "decline": 0.4,
    "silent": 0.2,
    "post_lost": 0.03,
    "post_late": 0.05,
    "post_twice": 0.1,
    "post_disordered": 0.1,
}


def offer_and_kill(
    folder: Path, site: Site, seed: int, requests: int, kills: int, say: Callable[[str], None]
) -> tuple[list[str], list[Violation]]:
    """Send requests while processes are killed.

    Returns:
        Lines to print, and violations.
    """
    seen = Seen()
    lines = asyncio.run(_run(folder, site, seed, (requests, kills), say, seen))
    return lines, seen.found


async def _run(
    folder: Path,
    site: Site,
    seed: int,
    size: tuple[int, int],
    say: Callable[[str], None],
    seen: Seen,
) -> list[str]:
    requests, kills = size
    crew = Crew(folder, site.url, LINE, CHANNELS)
    store = open_store(site.own_url)
    async with carrying(**WORLD, seed=seed, channels={LINE: CHANNELS}) as carrier:
        carrier.network.inbound_urls[""] = f"{crew.url}/field-service/hooks/twilio/texts"
        try:
            await crew.start(carrier.settings(), WORKERS)
            async with httpx.AsyncClient(timeout=10) as http:
                await _people(crew, http, carrier.network, random.Random(f"people {seed}"))
                beside = [
                    asyncio.create_task(_look_on(store, seen)),
                    asyncio.create_task(_answer(crew, http, random.Random(f"say {seed}"), seen)),
                ]
                sending = asyncio.create_task(
                    _send(crew, http, random.Random(f"send {seed}"), requests, seen)
                )
                await _strike(crew, site, random.Random(f"kill {seed}"), kills, say, seen)
                await sending
                beside[1].cancel()
                say(f"{len(seen.sent)} sent, no more kills: waiting for their ends")
                await _until_ended(store)
                beside[0].cancel()
                for end in await asyncio.gather(*beside, return_exceptions=True):
                    if isinstance(end, Exception):
                        raise end
            await crew.close()
            story, rings = await read_story(store), await all_jobs(store, "ring")
            lines, seen.found = judge(story, rings, carrier.network.ledger, seen, DISPATCHERS)
            return lines
        finally:
            await crew.close()
            await store.close()


async def _people(
    crew: Crew, http: httpx.AsyncClient, world: PhoneNetwork, draw: random.Random
) -> None:
    for number in range(TECHNICIANS):
        name = f"t{number}"
        body = {
            "id": name,
            "name": name,
            "phone": phone_of(name),
            "lat": HERE["lat"] + draw.uniform(-0.1, 0.1),
            "lon": HERE["lon"],
            "channel": draw.choice(["voice", "voice", "text"]),
        }
        (await crew.ask(http, "POST", "/technicians", body)).raise_for_status()
    for name, phone in DISPATCHERS.items():
        body = {"id": name, "name": name, "roles": ["dispatcher"], "channels": [f"text:{phone}"]}
        (await crew.ask(http, "POST", "/users", body)).raise_for_status()


async def _send(
    crew: Crew, http: httpx.AsyncClient, draw: random.Random, requests: int, seen: Seen
) -> None:
    for number in range(requests):
        form = {"customer": CUSTOMER, "position": HERE, "key": f"form-{number}"}
        reply = await crew.ask(http, "POST", "/service-requests", form)
        reply.raise_for_status()
        seen.sent.append(reply.json()["id"])
        await asyncio.sleep(draw.uniform(0, 0.5))


async def _answer(crew: Crew, http: httpx.AsyncClient, draw: random.Random, seen: Seen) -> None:
    """Send late, simultaneous and contradictory answers, and complete requests."""
    while True:
        await asyncio.sleep(draw.uniform(0.05, 0.3))
        if not seen.sent:
            continue
        request = draw.choice(seen.sent)
        path = f"/service-requests/{request}"
        told = (await crew.ask(http, "GET", path)).json()
        if told["status"] == "assigned":
            if draw.random() < 0.7:
                await crew.ask(http, "POST", f"{path}/complete")
            continue
        names = {one["technician"] for one in told["asked"] if one["said"] != "unfit"}
        if told["offer"] is not None:
            names.add(told["offer"]["technician"])
        if draw.random() < 0.3:
            words = [("accept", one) for one in names]
            words += [("decline", one) for one in names if draw.random() < 0.3]
            said = await asyncio.gather(
                *(
                    crew.ask(http, "POST", f"{path}/{word}", {"technician": one})
                    for word, one in words
                )
            )
            seen.answers.update(one.status_code for one in said)
            won = [
                one
                for (word, one), reply in zip(words, said, strict=True)
                if word == "accept" and reply.is_success
            ]
            if len(won) > 1:
                seen.found.append(Violation("two winners", f"{request}: {won}"))


async def _strike(
    crew: Crew,
    site: Site,
    draw: random.Random,
    kills: int,
    say: Callable[[str], None],
    seen: Seen,
) -> None:
    server = site.server if isinstance(site, ServerSite) else None
    names = [*crew.names, *(["store"] if server is not None else [])]
    for number in range(kills):
        await asyncio.sleep(draw.uniform(0.2, 2.5))
        name = draw.choice(names)
        if name == "store":
            assert server is not None
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        else:
            await crew.kill(name)
        seen.kills[name.partition(" ")[0]] += 1
        if (number + 1) % 10 == 0:
            say(f"{number + 1} of {kills} killed, {len(seen.sent)} sent")


async def _look_on(store: Store, seen: Seen) -> None:
    """Check repeatedly whether a technician has two offers, or an offer and a request."""
    while True:
        await asyncio.sleep(0.05)
        try:
            page = await store.read(
                JobsQuery(kind="offer", states=(State.AWAITING,), runs=True, limit=1_000)
            )
        except StoreError:
            continue
        seen.looks += 1
        seen.found += two_at_once(page.rows)


async def _until_ended(store: Store) -> None:
    """Return when all are assigned or ended, and all follow-up jobs are done.

    Raises:
        TimeoutError: a request never is.
    """
    open_ = tuple(one for one in State if one not in {State.SUCCEEDED, State.DEAD, State.CANCELLED})
    async with asyncio.timeout(ENDS_S):
        while True:
            await asyncio.sleep(0.2)
            offers = await store.read(JobsQuery(kind="offer", states=open_, limit=1_000))
            if any(not acceptor(one) for one in offers.rows):
                continue
            kinds = ("offer_ended", "offer_taken", "alert_dispatcher", "ring_ended")
            after = [
                (await store.read(JobsQuery(kind=kind, states=open_, limit=1))).rows
                for kind in kinds
            ]
            if not any(after):
                return
