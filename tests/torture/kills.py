"""Workers and producers are killed at random times, and occasionally one is only stopped.

A killed process writes nothing more. A process that is stopped for longer than its lease and then
continues is worse: it believes that it still has jobs that were given to others meanwhile.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.torture.checker import Violation
from tests.torture.evidence import Evidence
from tests.torture.plan import WORK
from tests.torture.process import Role
from tests.torture.rig import Rig
from tests.torture.site import Site

WORKERS = 3
LEASE = "1500ms"
SOONEST_S, LATEST_S = 0.05, 0.8
CHANCE = 0.002
"""A process's probability of killing itself at each critical point, besides kills from outside."""


ANSWERED_S = 2.5
"""Maximum time until the outside world signals the end of a call: longer than the lease."""
STOPPED_S = 2.0
"""Longer than the lease."""
STOP_EACH = 5
"""Number of kills between two stops."""


@dataclass(slots=True)
class Killed:
    """How processes died.

    Attributes:
        by_rig: killed from outside, at a random time.
        by_themselves: killed by themselves, at a critical point.
        stopped: not killed, but stopped for longer than their lease.
    """

    by_rig: int = 0
    by_themselves: int = 0
    stopped: int = 0


def kill_again_and_again(
    folder: Path, site: Site, seed: int, kills: int, say: Callable[[str], None], plant: str = ""
) -> tuple[Evidence, list[Violation], Killed]:
    """Run the rig.

    Args:
        folder: empty.
        site: the store's site.
        seed: seed of all random choices; the machine's scheduling is not controlled by it.
        kills: number of kills from outside.
        say: prints a line.
        plant: a fault to plant in each process.

    Returns:
        The evidence, the violations, and how many processes were killed.
    """
    rig = Rig(folder, site, seed, calm=False, say=say, answered_s=ANSWERED_S)
    worker = worker_of(
        Role(name="worker", folder=folder, seed=seed, chance=CHANCE, plant=plant), LEASE
    )
    maker = Role(
        name="maker",
        folder=folder,
        seed=seed,
        jobs=-1,
        batch=12,
        pause_s=0.03,
        calls=0.15,
        chance=CHANCE,
        plant=plant,
    )
    crew = Crew(rig, [worker] * WORKERS + [maker])
    killed = _strike(rig, crew, kills)
    say("no more kills: what is left is worked off")
    crew.dismiss()
    for role in [worker] * 2:
        rig.start(replace(role, name="after", chance=0.0))
    rig.end()
    return *rig.verdict(), killed


def worker_of(role: Role, lease: str) -> Role:
    """Return a role that also works, and whose handlers are occasionally slow or fail.

    Args:
        role: all other properties of the role.
        lease: lease of its worker.
    """
    return replace(
        role, lane=WORK, concurrency=12, lease=lease, dwell_s=0.06, long=0.03, fails=0.05
    )


class Crew:
    """Processes that are each replaced when they die."""

    def __init__(self, rig: Rig, roles: list[Role]) -> None:
        self.rig = rig
        self.born = 0
        self.members: list[tuple[Role, BaseProcess]] = []
        for role in roles:
            self.add(role)

    def add(self, role: Role) -> None:
        self.born += 1
        one = self.rig.start(replace(role, name=f"{role.name} {self.born}"))
        self.members.append((role, one))

    def replace(self, member: tuple[Role, BaseProcess]) -> None:
        """Replace a process that is dead or about to die."""
        self.members.remove(member)
        self.rig.kill(member[1])
        self.add(member[0])

    def dead(self, seconds: float) -> list[tuple[Role, BaseProcess]]:
        """Return the processes that die by themselves within this time."""
        ready = wait([one.sentinel for _, one in self.members], timeout=seconds)
        return [member for member in self.members if member[1].sentinel in ready]

    def bury(self, dead: list[tuple[Role, BaseProcess]]) -> int:
        """Replace processes that killed themselves; return how many.

        Raises:
            RuntimeError: a process exited in another way.
        """
        for member in dead:
            member[1].join()
            if member[1].exitcode != -signal.SIGKILL:
                message = f"{member[0].name} ended with {member[1].exitcode}"
                raise RuntimeError(message)
            self.replace(member)
        return len(dead)

    def replace_all(self) -> None:
        """Kill every process, and start as many again once none is left."""
        roles = [role for role, _ in self.members]
        self.dismiss()
        self.members.clear()
        for role in roles:
            self.add(role)

    def stop_for_a_while(
        self, chance: random.Random, seconds: float, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Stop a worker for longer than its lease, and let it continue.

        Args:
            chance: chooses the worker.
            seconds: how long to stop it.
            meanwhile: called once while the worker is stopped.
        """
        _, one = chance.choice([member for member in self.members if member[0].lane])
        pid = one.pid or 0
        if not one.is_alive():
            return
        since = time.monotonic_ns()
        os.kill(pid, signal.SIGSTOP)
        try:
            meanwhile()
            time.sleep(seconds)
            self.rig.witness.note("stopped", of=pid, since=since)
        finally:
            # It may have killed itself just before it was stopped.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def dismiss(self) -> None:
        """Kill all processes."""
        for _, one in self.members:
            self.rig.kill(one)


def _strike(rig: Rig, crew: Crew, kills: int) -> Killed:
    chance = random.Random(f"kills {rig.seed}")
    killed = Killed()
    while killed.by_rig < kills:
        dead = crew.bury(crew.dead(chance.uniform(SOONEST_S, LATEST_S)))
        killed.by_themselves += dead
        if not dead:
            crew.replace(chance.choice(crew.members))
            killed.by_rig += 1
            if killed.by_rig % STOP_EACH == 0:
                crew.stop_for_a_while(chance, STOPPED_S)
                killed.stopped += 1
            if killed.by_rig % 10 == 0:
                rig.say(
                    f"{killed.by_rig} of {kills} killed, {killed.by_themselves} by their own hand"
                )
    return killed
