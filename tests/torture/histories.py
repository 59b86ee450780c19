"""A long history with every event: kills, stops, closed connections, store restarts.

The jobs use every part of the engine: gates of all kinds, hand-overs, stages, cascades, hours, a
timetable, cancels, and closed lanes and kinds.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.torture.checker import Violation
from tests.torture.evidence import Evidence
from tests.torture.faults import GOES_ON_S, Work, faults_of
from tests.torture.kills import Crew, worker_of
from tests.torture.process import Role, witness_file
from tests.torture.rig import Rig
from tests.torture.site import ServerSite, Site

WORKERS = 3
LEASE = "4s"
STOPPED_S = 6.0
"""Longer than the lease."""
ANSWERED_S = 1.0
CHANCE = 0.0005
"""A process's probability of killing itself at each critical point."""
SOONEST_S, LATEST_S = 0.3, 2.0

Event = Callable[[random.Random], None]


def live_through(
    folder: Path, site: Site, seed: int, seconds: float, say: Callable[[str], None]
) -> tuple[Evidence, list[Violation], Counter[str]]:
    """Run a history.

    Args:
        folder: empty.
        site: the store's site: a server of our own behind a proxy, or a file.
        seed: seed of all random choices.
        seconds: duration; each event occurs at least once, however short this is.
        say: prints a line.

    Returns:
        The evidence, the violations, and how often each event occurred.
    """
    begin_at = time.time_ns() // 1_000_000
    rig = Rig(folder, site, seed, calm=False, say=say, answered_s=ANSWERED_S, begin_at=begin_at)
    role = Role(name="", folder=folder, seed=seed, begin_at=begin_at, chance=CHANCE)
    worker = worker_of(replace(role, name="worker"), LEASE)
    crew = Crew(rig, [worker] * WORKERS + [_maker(role)])
    found: list[Violation] = []
    events = _strike(rig, crew, seconds, found)
    say("no more events: what is left is worked off")
    crew.dismiss()
    for _ in range(2):
        rig.start(replace(worker, name="after", chance=0.0))
    rig.end()
    seen, violations = rig.verdict()
    return seen, found + violations, events


def _maker(role: Role) -> Role:
    return replace(role, name="maker", jobs=-1, batch=8, pause_s=0.1, calls=0.15, varied=0.3)


def _strike(rig: Rig, crew: Crew, seconds: float, found: list[Violation]) -> Counter[str]:
    chance = random.Random(f"history {rig.seed}")
    known = _events_of(rig.site, crew)
    work = Work(witness_file(rig.folder))
    happened: Counter[str] = Counter()
    work.next_s()
    end = time.monotonic() + seconds
    waiting: list[str] = []
    while time.monotonic() < end or len(happened) < len(known):
        crew.bury(crew.dead(chance.uniform(SOONEST_S, LATEST_S)))
        if rig.failed():
            break
        waiting = waiting or chance.sample(list(known), len(known))
        name = waiting.pop()
        known[name](chance)
        happened[name] += 1
        took = work.next_s()
        if took >= GOES_ON_S:
            found.append(Violation("stuck", f"nothing began for {took:.0f} s after: {name}"))
        if happened.total() % 10 == 0:
            rig.say(f"{happened.total()} events")
    return happened


def _events_of(site: Site, crew: Crew) -> dict[str, Event]:
    events: dict[str, Event] = {
        "process killed": lambda chance: crew.replace(chance.choice(crew.members)),
        "all killed at once": lambda _: crew.replace_all(),
        "worker stopped": lambda chance: crew.stop_for_a_while(chance, STOPPED_S),
    }
    if isinstance(site, ServerSite):
        faults = faults_of(site)
        ended = faults["backends ended" if "backends ended" in faults else "clients ended"]
        events |= faults
        events["connection ended under a stopped worker"] = lambda chance: crew.stop_for_a_while(
            chance, STOPPED_S, lambda: ended(chance)
        )
    return events
