"""The pipeline through the brokers while its processes are killed: each message comes out once.

Messages go into a Kafka topic. Bridges turn them into notifications, half of which are stored in
Cassandra until shortly before they are due. When due, they are published to the topics of their
channels, where they are counted.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headway.contract.views import AuditQuery, StatsQuery, StatsView
from headway.stores import open_store
from tests.servers.process import ServerFailed, ServerProcess
from tests.torture.brokers_ends import BEYOND_S, EACH_MS, SPREAD_S, Counting, Sending
from tests.torture.brokers_judge import Case, Fault, judge
from tests.torture.brokers_site import DEAD, Way
from tests.torture.checker import Violation
from tests.torture.notify_providers import now_ms
from tests.torture.site import Site

DOWN_S = (2.0, 5.0)
"""How long a killed process stays down."""
FIRST_S = 15.0
"""The earliest time of the first fault."""
WAS_KILLED, STOOD_STILL = "was killed", "stood still"
STILL = {"engine-one": 20.0, "engine-two": 20.0, "in-one": 40.0}
"""How long each of these is stopped once: longer than the leader's lease, than a consumer may be
silent in its group, and than a write into the calendar may take."""
TOGETHER = 0.3
"""How often a second process is killed at the same time."""
STARTS = 3
PATIENCE_S = 240.0
"""After this long without arrivals, no more are expected: twice the slowest start."""
QUIET_S = 30.0
"""How long nothing may arrive after all have: a repetition takes a lease, and then a pause."""
BURST_S = 2 * EACH_MS / 1000
LOOK_S = 0.5


Strike = tuple[tuple[str, ...], float]
"""Names of processes; and for how long they are stopped, or 0 if they are killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Scale of the run.

    Attributes:
        messages: total number of messages.
        rate: messages per second.
        kills: kills of each process.
        off_ms: clock error of the engines; one is ahead and one behind.
    """

    messages: int
    rate: float
    kills: int = 1
    off_ms: int = 2_000


@dataclass(slots=True)
class _Seen:
    say: Callable[[str], None]
    faults: list[Fault] = field(default_factory=list[Fault])
    ended: list[str] = field(default_factory=list[str])


def pass_through_and_kill(
    folder: Path, site: Site, seed: int, size: Size, say: Callable[[str], None]
) -> tuple[list[str], list[Violation]]:
    """Send messages while each process is killed, and wait until all have come out.

    Returns:
        Lines to print, and violations.
    """
    seen = _Seen(say)
    with Way(folder, site.url, size.off_ms, killed=size.kills > 0) as way:
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
        faults=seen.faults,
        wanted=_wanted(way) if size.kills else (),
        ended=seen.ended,
        dead_letters=dead,
        refused=progress.refused if progress else 0,
        through=progress.enqueued if progress else 0,
        late=progress.late if progress else 0,
        states={str(state): count for state, count in stats.counts.items()},
        differences=differences,
        # A file store follows the clock that is furthest ahead; a server uses its own.
        ahead_ms=size.off_ms if site.url.startswith("sqlite") else 0,
        steady=(begin, max(begin, sending.ended_at)),
    )
    (folder / "case.json").write_bytes(msgspec.json.encode(case))
    return judge(case)


def _strike(way: Way, counting: Counting, draw: random.Random, size: Size, seen: _Seen) -> None:
    """Kill and stop the processes, spread over the run."""
    strikes = _strikes(way, draw, size)
    begun = time.monotonic()
    span_s = size.messages / size.rate + BEYOND_S - FIRST_S
    for n, (names, still_s) in enumerate(strikes):
        _watch(way, begun + FIRST_S + span_s * n / len(strikes), seen)
        if set(names).intersection(way.publishers):
            _wait_for_burst(counting)
        begin, servers = now_ms(), [way.servers[name] for name in names]
        if still_s:
            servers[0].send_signal(signal.SIGSTOP)
            time.sleep(still_s)
            servers[0].send_signal(signal.SIGCONT)
        else:
            for server in servers:
                server.kill()
            time.sleep(draw.uniform(*DOWN_S))
            for server in servers:
                _start(server, seen)
        what = STOOD_STILL if still_s else WAS_KILLED
        seen.faults += [Fault(name, what, name in way.publish, begin, now_ms()) for name in names]
        seconds = (now_ms() - begin) / 1000
        seen.say(f"{' and '.join(names)} {what}, and goes on after {seconds:.0f} s")


def _strikes(way: Way, draw: random.Random, size: Size) -> Sequence[Strike]:
    """Return the strikes in order; occasionally two processes are killed at once.

    Publishers come last, because there are bursts only then. The second of two is killed while the
    first is down, and is started first or last.
    """
    if not size.kills:
        return []
    names = [name for name in way.servers if name not in way.publishers] * size.kills
    draw.shuffle(names)
    found: list[Strike] = [((name,), seconds) for name, seconds in STILL.items()]
    while names:
        pair = {names.pop()}
        if names and draw.random() < TOGETHER:
            pair.add(names.pop())
        found.append((tuple(draw.sample(sorted(pair), len(pair))), 0.0))
    draw.shuffle(found)
    last = list(way.publishers) * size.kills
    draw.shuffle(last)
    return [*found, *(((name,), 0.0) for name in last)]


def _start(server: ServerProcess, seen: _Seen) -> None:
    """Start a process; record it if it does not start at once."""
    for _ in range(STARTS):
        try:
            server.start()
        except ServerFailed as error:
            seen.ended.append(f"{server.name}: {error!s:.2000}")
        else:
            return


def _wait_for_burst(counting: Counting) -> None:
    """Return when the first message of a burst arrives, if one does soon."""
    count, begun = counting.of_bursts, time.monotonic()
    while counting.of_bursts == count and time.monotonic() - begun < BURST_S:
        time.sleep(0.001)


def _wanted(way: Way) -> list[tuple[str, str]]:
    return [(name, WAS_KILLED) for name in way.servers] + [(one, STOOD_STILL) for one in STILL]


def _watch(way: Way, until_s: float, seen: _Seen) -> None:
    """Wait; restart and record processes that exited by themselves."""
    while True:
        for words in way.ended():
            seen.ended.append(words)
            _start(way.servers[words.partition(":")[0]], seen)
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(LOOK_S, left_s))


def _drained(way: Way, sending: Sending, counting: Counting, seen: _Seen) -> None:
    """Return once all have arrived and no more come, or none have come for too long."""
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
    """Return the store's counts once its jobs have ended, and the differences its audit finds."""
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
