"""Three processes race on one file: two flood it and work, and a light one must not starve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.torture.checker import Violation
from tests.torture.evidence import Evidence
from tests.torture.plan import LIGHT, WORK
from tests.torture.process import Role
from tests.torture.rig import Rig
from tests.torture.site import Site, SqliteSite

LIGHT_LEASE, LIGHT_LEASE_ON_SERVER = "3s", "6s"
"""On a server a beat queues behind the decisions of the other processes' floods."""


def race(
    folder: Path, site: Site, seed: int, jobs: int, say: Callable[[str], None], plant: str = ""
) -> tuple[Evidence, list[Violation]]:
    """Run the rig.

    Args:
        folder: empty.
        site: the store's site.
        seed: seed of all random choices.
        jobs: number of jobs created by the two that flood.
        say: prints a line.
        plant: a fault to plant in both of them.

    Returns:
        The evidence and the violations.
    """
    rig = Rig(folder, site, seed, calm=True, say=say)
    floods = ("flood 0", "flood 1")
    for name in floods:
        role = Role(
            name=name,
            folder=folder,
            seed=seed,
            lane=WORK,
            jobs=jobs // 2,
            batch=400,
            calls=0.03,
            lease="10s",
            fails=0.03,
            plant=plant,
        )
        rig.start(role)
    rig.start(
        Role(
            name="light",
            folder=folder,
            seed=seed,
            lane=LIGHT,
            jobs=-1,
            pause_s=0.05,
            concurrency=2,
            lease=LIGHT_LEASE if isinstance(site, SqliteSite) else LIGHT_LEASE_ON_SERVER,
        )
    )
    rig.wait_until_made(*floods)
    say(f"{jobs} jobs made")
    rig.work_off(WORK)
    rig.end()
    return rig.verdict()
