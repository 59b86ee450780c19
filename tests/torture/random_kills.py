"""Fate kills the process at random times, as the machine might."""

from __future__ import annotations

import os
import random
import signal

from tests.torture.witness import Witness

POINTS = (
    "before enqueue",
    "after enqueue",
    "after claim",
    "at begin",
    "at end",
    "before settle",
    "after settle",
    "before hand-over",
    "after hand-over",
    "after call",
)
"""Critical points for a kill: after an effect, but before it is known."""


class RandomKills:
    """Kills its own process occasionally.

    Args:
        witness: notified just before, so that the kill is counted.
        seed: seed of this process.
        chance: probability at each point.
    """

    def __init__(self, witness: Witness, seed: object, chance: float) -> None:
        self._witness = witness
        self._random = random.Random(f"fate {seed}")
        self._chance = chance

    def meet(self, point: str) -> None:
        """Reach a point, at which the process may be killed."""
        if self._chance and self._random.random() < self._chance:
            self._witness.note("fate", point=point)
            os.kill(os.getpid(), signal.SIGKILL)
