"""The way through the brokers while each of its processes is killed: every message comes out once.

Messages go into a Kafka topic; bridges make notifications of them, half of which lie in Cassandra
until shortly before their time; when they are due they are published to the topics of their
channels, where they are counted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headway.contract.views import AuditQuery, StatsQuery, StatsView
from headway.stores import open_store
from tests.torture.brokers_ends import BEYOND_S, EACH_MS, SPREAD_S, Counting, Sending
from tests.torture.brokers_judge import Case, Kill, judge
from tests.torture.brokers_site import DEAD, Way
from tests.torture.checker import Violation
from tests.torture.notify_providers import now_ms
from tests.torture.site import Site

DOWN_S = (2.0, 5.0)
"""For how long one that was killed is not started again."""
FIRST_S, AFTER_S = 15.0, 100.0
"""When the first kill may come, and until how long after the last message was sent."""
PATIENCE_S = 240.0
"""Once so long nothing has arrived, nothing more will: twice what the slowest start takes."""
QUIET_S = 30.0
"""So long nothing may arrive after all have: a repetition takes a lease, and a pause after it."""
BURST_S = 2 * EACH_MS / 1000
LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How much there is to do.

    Attributes:
        messages: in all.
        rate: of them in a second.
        kills: of each process.
        off_ms: by how much the clocks of the engines are off, one ahead and one behind.
    """

    messages: int
    rate: float
    kills: int = 1
    off_ms: int = 2_000


@dataclass(slots=True)
class _Seen:
    say: Callable[[str], None]
    kills: list[Kill] = field(default_factory=list[Kill])
    ended: list[str] = field(default_factory=list[str])


def pass_through_and_kill(
    folder: Path, site: Site, seed: int, size: Size, say: Callable[[str], None]
) -> tuple[list[str], list[Violation]]:
    """Send so many while each process is killed, and wait until all have come out.

    Returns:
        What to print, and what was broken.
    """
    seen = _Seen(say)
    with Way(folder, site.url, size.off_ms) as way:
        say(f"started: {', '.join(way.servers)}")
        sending = Sending(way.topics, seed, size.messages, size.rate)
        counting = Counting(way.kafka.address)
        counting.start()
        sending.start()
        _strike(way, counting, random.Random(f"kills {seed}"), size, seen)
        sending.join()
        _drained(way, sending, counting, seen)
        stats, differences = asyncio.run(_ended(site))
        progress = asyncio.run(way.progress())
        arrivals = counting.end()
        dead = len(way.topics.read(DEAD))
    begin = sending.begun_at + int((BEYOND_S + SPREAD_S) * 1000)
    case = Case(
        planned=sending.accepted,
        arrivals=arrivals,
        kills=seen.kills,
        to_kill=list(way.servers) if size.kills else (),
        ended=seen.ended,
        dead_letters=dead,
        refused=progress.refused if progress else 0,
        through=progress.enqueued if progress else 0,
        late=progress.late if progress else 0,
        states={str(state): count for state, count in stats.counts.items()},
        differences=differences,
        # A file goes by the clock that is furthest ahead; a server by its own.
        ahead_ms=size.off_ms if site.url.startswith("sqlite") else 0,
        steady=(begin, max(begin, sending.ended_at)),
    )
    (folder / "case.json").write_bytes(msgspec.json.encode(case))
    return judge(case)


def _strike(way: Way, counting: Counting, draw: random.Random, size: Size, seen: _Seen) -> None:
    """Kill each process, one after another, spread over the run."""
    order = list(way.servers) * size.kills
    draw.shuffle(order)
    # Those that publish come last: only then there are bursts.
    order.sort(key=way.publishers.__contains__)
    begun = time.monotonic()
    span_s = size.messages / size.rate + AFTER_S - FIRST_S
    for n, name in enumerate(order):
        _watch(way, begun + FIRST_S + span_s * n / len(order), seen)
        if name in way.publishers:
            _wait_for_burst(counting)
        server = way.servers[name]
        begin = now_ms()
        server.kill()
        time.sleep(draw.uniform(*DOWN_S))
        server.start()
        publishes = name in {*way.publishers, way.kafka.name}
        seen.kills.append(Kill(name, publishes, begin, now_ms()))
        seen.say(f"{name} was killed, and runs again after {(now_ms() - begin) / 1000:.0f} s")


def _wait_for_burst(counting: Counting) -> None:
    """Return when the first of many that are due at one moment arrives, if one does soon."""
    count, begun = counting.of_bursts, time.monotonic()
    while counting.of_bursts == count and time.monotonic() - begun < BURST_S:
        time.sleep(0.001)


def _watch(way: Way, until_s: float, seen: _Seen) -> None:
    """Wait, and start those again that ended by themselves, which is noted."""
    while True:
        for words in way.ended():
            seen.ended.append(words)
            way.servers[words.partition(":")[0]].start()
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(LOOK_S, left_s))


def _drained(way: Way, sending: Sending, counting: Counting, seen: _Seen) -> None:
    """Return once all have arrived and nothing more comes, or nothing has come for too long."""
    count, quiet = -1, time.monotonic()
    while True:
        _watch(way, time.monotonic() + LOOK_S, seen)
        if len(counting.arrivals) != count:
            if len(counting.arrivals) // 10_000 != count // 10_000:
                seen.say(f"{len(counting.arrivals)} arrived")
            count, quiet = len(counting.arrivals), time.monotonic()
        waited_s = time.monotonic() - quiet
        if waited_s > QUIET_S and counting.numbers >= sending.accepted.keys():
            return
        if waited_s > PATIENCE_S:
            seen.say(f"{len(sending.accepted.keys() - counting.numbers)} have not come")
            return


async def _ended(site: Site) -> tuple[StatsView, int]:
    """The store's counts once its jobs have ended, and the differences that its audit finds."""
    store = open_store(site.own_url)
    try:
        begun = time.monotonic()
        while True:
            stats = await store.read(StatsQuery())
            left = sum(count for state, count in stats.counts.items() if state != "succeeded")
            if not left or time.monotonic() - begun > PATIENCE_S:
                break
            await asyncio.sleep(LOOK_S)
        return stats, len((await store.read(AuditQuery(limit=10_000))).differences)
    finally:
        await store.close()
